"""The backend mlx with Metal's kernels on the rig: MLX's CPU device, named a GPU.

Rows of input buffers up to the program's capacity are NaN, as unused memory of a device may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from tests.metal.rig import Rig
from tests.support.parity.compare import run_on

from camelid.backends.base import OpenSpec, Program, check_plan
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.proof.cases import GateCase
from camelid.backends.proof.gate import Outcome, judge
from camelid.plan.plan import Plan, View
from camelid_native.mlx import device, opened, ops_metal
from camelid_native.mlx.backend import MlxBackend
from camelid_native.mlx.device import Facts, device_of, most_bytes
from camelid_native.mlx.metal import launch, products
from camelid_native.mlx.programs import MlxProgram

METAL = tuple(sorted(name.removeprefix("op_") for name in vars(ops_metal) if name.startswith("op_")))
mx.disable_compile()  # the rig runs kernels while a graph is built


def as_gpu(adapter: str) -> Facts:
    """The CPU as a GPU."""
    facts = device_of(adapter or "cpu")
    return replace(facts, name=f"Metal's text on {facts.name}", is_gpu=True)


def most_of_cpu(facts: Facts) -> int:
    return most_bytes(replace(facts, is_gpu=False))


def with_nan(program: MlxProgram, view: View, data: bytes) -> mx.array:  # [capacity, cols]
    """The rows of a buffer, and NaN beyond."""
    rows = np.full((program.plan.rows[view.rows], view.stride), np.nan, np.float32)
    given = np.frombuffer(data, np.float32).reshape(-1, view.stride)
    rows[: len(given)] = given
    return mx.array(rows)


class MetalOnRig(MlxBackend):
    """A backend whose kernels the rig creates from its opening to its close.

    While several are open, all use the rig of the last one opened. MLX's own functions return when the last
    of them closes, in whatever order they close.
    """

    _open: ClassVar[set[MetalOnRig]] = set()
    _kept: ClassVar[list[tuple[Any, str, Any]]] = []

    def __init__(self, rig: Rig | None = None) -> None:
        super().__init__()
        self.rig = rig or Rig()

    async def open(self, spec: OpenSpec) -> None:
        await super().close()
        self._open.add(self)
        self._set(launch, "create", self.rig.metal_kernel)
        self._set(opened, "device_of", as_gpu)
        self._set(opened, "most_bytes", most_of_cpu)
        self._set(device, "free_bytes", most_of_cpu)
        self._set(MlxProgram, "padded", with_nan)
        try:
            await super().open(spec)
        except BaseException:
            self._restore()
            raise

    async def compile(self, plan: Plan) -> Program:
        check_plan(plan, self.capabilities())
        return await super().compile(plan)

    async def close(self) -> None:
        is_open = self._parts is not None  # MlxBackend.open closes a backend that is not
        await super().close()
        if is_open:
            self._restore()

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._kept.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _restore(self) -> None:
        self._open.discard(self)
        if not self._open:
            self.restore_all()

    @classmethod
    def restore_all(cls) -> int:
        """MLX's own functions again; how many backends were open."""
        n_open = len(cls._open)
        cls._open.clear()
        while cls._kept:
            setattr(*cls._kept.pop())
        return n_open


async def _judged(cases: Iterable[GateCase], rig: Rig) -> list[Outcome]:
    backend = MetalOnRig(rig)
    await backend.open(OpenSpec())
    try:
        return [await judge(backend, case) for case in cases]
    finally:
        await backend.close()


def outcomes(cases: Iterable[GateCase], rig: Rig | None = None) -> list[Outcome]:
    """Each case against the reference."""
    return asyncio.run(_judged(cases, rig or Rig()))


def result(case: OpCase, rig: Rig | None = None) -> OpResult:
    """The values that an op writes."""
    return asyncio.run(run_on(MetalOnRig(rig), OpenSpec(), [case]))[0]


@contextmanager
def created_by(rig: Rig) -> Iterator[None]:
    """Kernels are created by the rig within this context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "create", rig.metal_kernel)
        yield


def decoded(rig: Rig, weight_type: str, blocks: bytes, n: int) -> npt.NDArray[np.float32]:  # [n]
    """A row of `n` weights, through the lookup of rows."""
    raw, ids, count = np.frombuffer(blocks, np.uint8), mx.zeros(1, mx.uint32), mx.ones(1, mx.uint32)
    with created_by(rig):
        rows = products.embed(ids, mx.array(raw), weight_type=weight_type, cols=n, count=count)
    return np.array(rows)[0]
