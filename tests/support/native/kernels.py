"""The compiled kernels, called directly: matrices into panels and back, single ops on several threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ctypes import CDLL, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, case_plan, run_case
from camelid.formats.quants import quant, row_bytes
from camelid.plan.ops import make_op
from camelid.plan.plan import Stage
from camelid.plan.step import FROM_ID, Step, StepRow, encode_step
from camelid_native.cpu.api import Library
from camelid_native.cpu.backend import CpuBackend, open_backend
from camelid_native.cpu.library import load

T = TypeVar("T")
U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]
FUNCTIONS = {
    "cam_panel_bytes": (c_uint64, (c_uint32,) * 4),
    "cam_pack": (None, (c_uint32, c_uint32, c_void_p, c_void_p, *(c_uint32,) * 5, c_void_p)),
    "cam_unpack_row": (None, (c_uint32, c_uint32, c_void_p, c_uint32, c_uint32, c_uint32, c_void_p)),
}
NUMBERS = {name: i for i, name in enumerate(Library().variants)}
ROW = StepRow(source=FROM_ID, value=0, sequence=0, state_row=0, positions=(0,))
VARIANTS = [name for name, can in Library().variants.items() if can]


@cache
def library() -> CDLL:
    loaded = load()
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


@dataclass(frozen=True)
class Panels:
    """A matrix [rows, cols] of one type in one variant's panels."""

    variant: str
    type: str
    rows: int
    cols: int
    data: U8

    def row(self, number: int) -> F32:
        values = np.full(self.cols, np.nan, np.float32)
        where = NUMBERS[self.variant], quant(self.type).id, self.data.ctypes.data
        library().cam_unpack_row(*where, self.rows, self.cols, number, values.ctypes.data)
        return values


def panel_bytes(variant: str, type_name: str, rows: int, cols: int) -> int:
    return library().cam_panel_bytes(NUMBERS[variant], quant(type_name).id, rows, cols)


def pack(variant: str, type_name: str, stored: U8, cols: int, order: list[int] | None = None) -> Panels:
    """Packs `stored` [rows, row_bytes], the first and last panel last: the order must not matter. Unwritten
    bytes stay 0xA5.
    """
    rows = len(order) if order else len(stored)
    assert stored.shape[1] == row_bytes(type_name, cols)
    data = np.full(panel_bytes(variant, type_name, rows, cols), 0xA5, np.uint8)
    end = -(-rows // 16)
    numbers = np.array(order, np.uint32) if order else None
    for first, last in ((1, end - 1), (0, 1), (end - 1, end)):
        library().cam_pack(
            NUMBERS[variant],
            quant(type_name).id,
            stored.ctypes.data,
            None if numbers is None else numbers.ctypes.data,
            *(rows, cols, first, max(first, last), 1),
            data.ctypes.data,
        )
    return Panels(variant, type_name, rows, cols, data)


def run_op(case: OpCase, variant: str, threads: int) -> Mapping[str, F32]:
    """Output views of a case."""

    async def run(backend: CpuBackend) -> Mapping[str, F32]:
        return (await run_case(backend, case)).views

    return asyncio.run(_opened(run, variant, threads))


def run_linears(cases: Sequence[OpCase], variant: str, threads: int) -> F32:
    """The y of the last case, run after all the others in one plan; all share the x of the first."""
    plans = [case_plan(case) for case in cases]
    x = plans[0][1]["x"]
    outputs = [roles["y"] for _, roles in plans]
    outputs = [replace(y, buffer=replace(y.buffer, name=f"y{i}")) for i, y in enumerate(outputs)]
    weights = [replace(plan.weights()["weight"], name=f"weight{i}") for i, (plan, _) in enumerate(plans)]
    operands = [{"x": x, "y": y, "weight": weight} for y, weight in zip(outputs, weights, strict=True)]
    ops = tuple(make_op("linear", each, {}) for each in operands)
    plan = replace(plans[0][0], stages=(Stage("main", ops),), states=())

    async def run(backend: CpuBackend) -> F32:
        await backend.load(weights, {})
        await backend.allocate((), {})
        program = await backend.compile(plan)
        rows = cases[0].views["x"]
        step = encode_step(Step(rows=[ROW] * len(rows)), plan.layout)
        _, raw = await backend.run_buffers(program, step, {x: rows.tobytes()}, outputs[-1:])
        return np.frombuffer(raw[0], np.float32).reshape(len(rows), -1)

    return asyncio.run(_opened(run, variant, threads))


async def _opened(run: Callable[[CpuBackend], Awaitable[T]], variant: str, threads: int) -> T:
    backend = open_backend()
    await backend.open(OpenSpec(adapter=variant, threads=threads))
    try:
        return await run(backend)
    finally:
        await backend.close()
