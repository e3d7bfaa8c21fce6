"""The contract of `allocate`: groups of new names keep state and programs; a known name replaces all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.native.cpu_children import KV, POOLS, doubling
from tests.support.node_host import wasm_backend
from tests.support.parity.adapters import need_driver

from camelid.backends.base import OpenSpec, PoolSize
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.webgpu.backend import WebGpuBackend
from camelid.backends.webgpu.host_python import WgpuHost
from camelid.errors import BackendError, OutOfMemoryError
from camelid.plan.op_rows_adapters import KIND, slot_cols
from camelid.plan.plan import StateSpec
from camelid_native.cpu.backend import open_backend as open_cpu

pytestmark = pytest.mark.parity

SLOTS = StateSpec("adapters.0", KIND, (0, 1), (("0", 12), ("1", 20)), 1)
ADDED = {"adapters.0": PoolSize(3)}
UNIT = bytes(range(256))[: SLOTS.unit_bytes]
KEYS = bytes([7]) * KV.unit_bytes


def open_lavapipe() -> WebGpuBackend:
    need_driver("llvmpipe")
    return WebGpuBackend(WgpuHost())


BACKENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "reference": (ReferenceBackend, ""),
    "cpu": (open_cpu, ""),
    "wasm": (wasm_backend, "wasm"),
    "webgpu": (open_lavapipe, "llvmpipe"),
}


def run_on(name: str, work: Callable[[Any], Any]) -> None:
    async def opened() -> None:
        make, adapter = BACKENDS[name]
        backend = make()
        await backend.open(OpenSpec(adapter=adapter))
        try:
            await work(backend)
        finally:
            await backend.close()

    asyncio.run(opened())


@pytest.mark.parametrize("name", BACKENDS)
def test_added_groups_keep_state_and_programs(name: str) -> None:
    async def work(backend: Any) -> None:
        made = doubling(width=64, rows=2)
        await backend.load(list(made.plan.weights().values()), {})
        await backend.allocate([KV], POOLS)
        program = await backend.compile(made.plan)
        await backend.write_state("kv", 1, KEYS)
        before = backend.memory().state_bytes
        await backend.allocate([SLOTS], ADDED)
        assert backend.memory().state_bytes >= before + 3 * SLOTS.unit_bytes
        assert await backend.read_state("adapters.0", 2) == bytes(SLOTS.unit_bytes)
        await backend.write_state("adapters.0", 2, UNIT)
        assert await backend.read_state("adapters.0", 2) == UNIT
        assert await backend.read_state("adapters.0", 1) == bytes(SLOTS.unit_bytes)
        assert await backend.read_state("kv", 1) == KEYS
        assert await made.y_of(backend, program, 3.0) == 6.0

    run_on(name, work)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_known_name_replaces_all_groups(name: str) -> None:
    async def work(backend: Any) -> None:
        await backend.allocate([KV], POOLS)
        before = backend.memory().state_bytes
        await backend.write_state("kv", 1, KEYS)
        await backend.allocate([SLOTS], ADDED)
        await backend.allocate([KV], POOLS)
        assert await backend.read_state("kv", 1) == bytes(KV.unit_bytes)
        assert backend.memory().state_bytes == before
        await backend.allocate([SLOTS], ADDED)
        assert await backend.read_state("adapters.0", 1) == bytes(SLOTS.unit_bytes)

    run_on(name, work)


def test_webgpu_adds_no_page_tables() -> None:
    async def work(backend: Any) -> None:
        await backend.allocate([KV], POOLS)
        other = StateSpec("more", "paged", (0,), (("k", 32), ("v", 32)), 16)
        with pytest.raises(BackendError, match="state more comes after other groups"):
            await backend.allocate([other], {"more": PoolSize(2, 1, 2)})
        await backend.write_state("kv", 1, KEYS)

    run_on("webgpu", work)


def test_slots_above_a_binding_are_refused() -> None:
    """A group's bound is that of its largest matrix, whatever the number of layers and matrices."""

    async def work(backend: Any) -> None:
        backend._limits |= {"maxStorageBufferBindingSize": 1 << 20}  # pyright: ignore[reportPrivateUsage]
        floats = slot_cols(16, 4096, 4096)
        spec = StateSpec("adapters.0", KIND, (0, 1, 2), (("0", floats), ("1", 12)), 1)
        with pytest.raises(OutOfMemoryError, match=r"adapters\.0\.0/0 binds .* fewer adapters at a time"):
            await backend.allocate([spec], {"adapters.0": PoolSize(3)})
        await backend.allocate([spec], {"adapters.0": PoolSize(1)})

    run_on("webgpu", work)
