"""The browser's host: passes each call to web/executor.js or web/wasm_executor.js.

The page's worker puts `Executor`, `WasmExecutor` and `openSource` into `globalThis.camelid`. A section is
passed as one JSON string, which is far cheaper than converting nested objects; per token only a step's bytes
and its result are passed. Weights go from the source to the device without Python.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn, TypeVar

from camelid.errors import DeviceLostError, ModelFormatError

T = TypeVar("T")
Json = dict[str, Any]


class BrowserHost:
    """A `Host` over an executor of this worker, by its name."""

    def __init__(self, executor: str = "Executor") -> None:
        self._js: Any = import_module("js")
        self._ffi: Any = import_module("pyodide.ffi")
        self._executor: Any = getattr(self._js.camelid, executor).new()
        self._step: Any = self._js.Uint8Array.new(0)  # reused, so that a step creates no JavaScript object

    async def open(self, spec: Json) -> Json:
        with self._errors():
            return (await self._executor.open(self._crossed(spec))).to_py()

    async def load(self, section: Json, sources: Mapping[str, Any]) -> None:
        handles: Any = self._js.Object.new()
        for name, handle in sources.items():
            setattr(handles, name, handle)
        await self._awaited(self._executor.load(self._crossed(section), handles))

    async def allocate(self, section: Json) -> None:
        await self._awaited(self._executor.allocate(self._crossed(section)))

    async def seconds(self, program: int, step: bytes) -> float | None:
        """Seconds of a step by the device's clock; None without timestamp queries."""
        found: float = await self._awaited(self._executor.seconds(program, self._ffi.to_js(step)))
        return None if found < 0 else found

    def prepare(self, section: Json) -> None:
        with self._errors():
            self._executor.prepare(self._crossed(section))

    async def compile(self, section: Json) -> int:
        return await self._awaited(self._executor.compile(self._crossed(section)))

    def run(self, program: int, step: bytes) -> int:
        if self._step.byteLength != len(step):
            self._step = self._js.Uint8Array.new(len(step))
        self._step.assign(step)
        with self._errors():
            return self._executor.run(program, self._step)

    async def read(self, ticket: int) -> bytes:
        return (await self._awaited(self._executor.read(ticket))).to_bytes()

    async def read_state(self, buffer: str, offset: int, n_bytes: int) -> bytes:
        return (await self._awaited(self._executor.readState(buffer, offset, n_bytes))).to_bytes()

    async def write_state(self, buffer: str, offset: int, data: bytes) -> None:
        await self._awaited(self._executor.writeState(buffer, offset, self._ffi.to_js(data)))

    def write(self, buffer: str, offset: int, data: bytes) -> None:
        """Writes bytes before the next submitted step. An error is raised by the call of that step."""
        self._executor.writeState(buffer, offset, self._ffi.to_js(data))

    def memory(self) -> Mapping[str, int]:
        return self._executor.memory().to_py()

    async def close(self) -> None:
        await self._awaited(self._executor.close())

    def _crossed(self, data: Json) -> Any:
        return self._js.JSON.parse(json.dumps(data))

    async def _awaited(self, promise: Awaitable[T]) -> T:
        with self._errors():
            return await promise

    @contextmanager
    def _errors(self) -> Generator[None, None, None]:
        try:
            yield
        except self._ffi.JsException as error:
            fail(error.name, error.message)


def fail(name: str, message: str) -> NoReturn:
    """Raises the Python error of a JavaScript error. The backend classifies errors of other names."""
    if name == "DeviceLostError":
        raise DeviceLostError(f"webgpu: {message}; load the model again", backend="webgpu", reason=message)
    if name == "ModelFormatError":
        raise ModelFormatError(message, reason=message)
    raise RuntimeError(message)


class BrowserSource:
    """A model's bytes in a browser, as a `loading.ModelSource`. The executor reads from `handle`."""

    def __init__(self, handle: Any) -> None:
        """`handle` is a Source of web/source.js, as `globalThis.camelid.openSource` returns it."""
        self.handle = handle
        self.name: str = handle.name
        self.size: int = handle.size

    async def beside(self, name: str) -> BrowserSource:
        """Another file of a model in several. Raises ModelFormatError if it cannot be opened."""
        ffi: Any = import_module("pyodide.ffi")
        try:
            return BrowserSource(await self.handle.beside(name))
        except ffi.JsException as error:
            raise ModelFormatError(f"{self.name}: {error.message}", path=self.name) from None

    async def read(self, offset: int, length: int) -> bytes:
        """Reads exactly `length` bytes. Raises ModelFormatError if the source fails."""
        ffi: Any = import_module("pyodide.ffi")
        try:
            return (await self.handle.read(offset, length)).to_bytes()
        except ffi.JsException as error:
            raise ModelFormatError(
                f"{self.name}: bytes {offset} to {offset + length} cannot be read: {error.message}",
                path=self.name, offset=offset,
            ) from None  # fmt: skip
