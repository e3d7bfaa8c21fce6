"""The `Host` protocol, an executor of sections natively, in a page or in Node, and its errors."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from camelid.backends.base import Sources
from camelid.errors import BackendError, CamelidError, DeviceLostError, OutOfMemoryError

Json = dict[str, Any]
NO_MEMORY = ("out of memory", "not enough memory")  # in errors of browsers, and of wgpu


class Host(Protocol):
    """An executor of sections. Calls take effect in the order issued."""

    async def open(self, spec: Json) -> Json: ...
    async def load(self, section: Json, sources: Sources) -> None: ...
    async def allocate(self, section: Json) -> None: ...
    def prepare(self, section: Json) -> None: ...
    async def compile(self, section: Json) -> int: ...
    def run(self, program: int, step: bytes) -> Any: ...
    async def read(self, ticket: Any) -> bytes: ...
    async def read_state(self, buffer: str, offset: int, n_bytes: int) -> bytes: ...
    async def write_state(self, buffer: str, offset: int, data: bytes) -> None: ...
    def write(self, buffer: str, offset: int, data: bytes) -> None: ...
    def memory(self) -> Mapping[str, int]: ...
    async def close(self) -> None: ...


@runtime_checkable
class TimedHost(Protocol):
    """A host that may have a device with timestamps; `seconds` of a step is None without."""

    async def seconds(self, program: int, step: bytes) -> float | None: ...


@contextmanager
def host_errors(backend: str) -> Generator[None]:
    """Translates exceptions of a host to BackendError, DeviceLostError or OutOfMemoryError."""
    try:
        yield
    except CamelidError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError) or any(words in text.lower() for words in NO_MEMORY):
            raise OutOfMemoryError(f"{backend}: {text}; use a smaller context or model") from error
        if "device is lost" in text.lower():
            lost = f"{backend}: {text}; load the model again"
            raise DeviceLostError(lost, backend=backend, reason=text) from error
        raise BackendError(f"{backend}: {text}", backend=backend) from error
