"""The webgpu backend after the loss of its device, on a host that computes nothing."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.parity.case_tools import array, empty
from tests.support.parity.sections import PaperHost

from camelid.backends.base import OpenSpec, PoolSize, Program
from camelid.backends.common.op_runner import OpCase, case_plan
from camelid.backends.webgpu.backend import WebGpuBackend
from camelid.errors import BackendError, DeviceLostError
from camelid.plan.plan import Plan

POOLS = {"other": PoolSize(2, 2, 1), "kv": PoolSize(2, 2, 1), "tokens": PoolSize(2)}


class LostHost(PaperHost):
    """Numbers programs anew after `close`, as a host with a device does; fails where a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_absent = self.is_cancelled = False

    async def open(self, spec: dict[str, object]) -> dict[str, object]:
        if self.is_absent:
            raise RuntimeError("no adapter")
        return await super().open(spec)

    async def read(self, ticket: int) -> bytes:
        if self.is_cancelled:
            raise asyncio.CancelledError
        return b""

    def name_of(self, program: Program) -> str:
        return self.sections[program.handle.number - 1]["name"]

    async def close(self) -> None:
        self.sections.clear()


def plan_of(rows: int) -> Plan:
    return case_plan(OpCase(op="gather_rows", views={"y": empty(rows, 8), "x": array(1, rows, 8)}))[0]


async def opened() -> tuple[WebGpuBackend, LostHost]:
    host = LostHost()
    backend = WebGpuBackend(host)
    await backend.open(OpenSpec())
    await backend.load([], {})
    await backend.allocate(plan_of(1).states, POOLS)
    return backend, host


def test_programs_keep_their_plans_though_a_compilation_was_cancelled() -> None:
    async def visit() -> None:
        backend, host = await opened()
        host.is_cancelled = True
        with pytest.raises(asyncio.CancelledError):
            await backend.compile(plan_of(1))
        host.is_cancelled = False
        programs = [await backend.compile(plan_of(rows)) for rows in (1, 2, 3)]
        assert await backend.recover()
        assert [host.name_of(program) for program in programs] == [str(p.plan.key) for p in programs]

    asyncio.run(visit())


def test_a_device_that_did_not_come_back_is_asked_for_again() -> None:
    async def visit() -> None:
        backend, host = await opened()
        program = await backend.compile(plan_of(1))
        host.is_absent = True
        with pytest.raises(BackendError, match="no adapter"):
            await backend.recover()
        with pytest.raises(DeviceLostError, match="could not be opened again"):
            backend.run(program, b"")
        host.is_absent = False
        assert await backend.recover() and host.name_of(program) == str(program.plan.key)

    asyncio.run(visit())
