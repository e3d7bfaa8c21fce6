"""The forecast of a GPU's programs covers the arrays that kernels have besides a plan's views."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from tests.metal.on_rig import MetalOnRig
from tests.metal.rig import Rig
from tests.support.parity.case_tools import array, empty, weight
from tests.support.parity.cases_state import attention_case
from tests.support.parity.compare import run_on

from camelid.backends.base import OpenSpec, PoolSize, Program
from camelid.backends.common.op_runner import OpCase
from camelid.plan.plan import Plan, StateSpec
from camelid_native.mlx.metal.experts import FEW, TILE

Launch = tuple[str, Mapping[str, Any]]


class RecordingRig(Rig):
    """Keeps the arguments of launches by the kernel's name; outputs are zeros."""

    def __init__(self) -> None:
        super().__init__(runs=False)
        self.launches: list[Launch] = []

    def metal_kernel(self, **how: Any) -> Callable[..., Any]:
        made = super().metal_kernel(**how)

        def run(**given: Any) -> Any:
            self.launches.append((how["name"].rpartition("_")[0], given))
            return made(**given)

        return run


class Forecasting(MetalOnRig):
    """Keeps the forecast of a program with its real pools."""

    pools: Mapping[str, PoolSize]
    found = 0

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        self.pools = units
        await super().allocate(states, units)

    async def compile(self, plan: Plan) -> Program:
        self.found = self.forecast({"op": plan}, self.pools).programs["op"]
        return await super().compile(plan)


def forecast_and_launches(case: OpCase) -> tuple[int, dict[str, Mapping[str, Any]]]:
    rig = RecordingRig()
    backend = Forecasting(rig)
    asyncio.run(run_on(backend, OpenSpec(), [case]))
    return backend.found, dict(rig.launches)


def out_bytes(given: Mapping[str, Any]) -> int:
    return sum(4 * prod(shape) for shape in given["output_shapes"])


@pytest.mark.parametrize("n_rows", [1, 8, 9])
def test_attention_has_an_array_of_splits_for_few_rows(n_rows: int) -> None:
    case = attention_case(list(range(300, 300 + n_rows)), 4, 2, 32, 32, {}, {}, 0)
    forecast, launches = forecast_and_launches(case)
    parts = out_bytes(launches["attention_part"]) if n_rows <= 8 else 0
    assert forecast == parts and (parts > 0) == (n_rows <= 8)


@pytest.mark.parametrize("n_rows", [3, 9])
@pytest.mark.parametrize("op", ["linear_experts", "linear_experts_sum", "linear_heads"])
def test_experts_sort_rows_and_their_products(op: str, n_rows: int) -> None:
    forecast, launches = forecast_and_launches(experts_case(op, n_rows))
    given = launches["experts" if n_rows <= 8 else "experts_tile"]
    held = out_bytes(given) if op != "linear_experts" else 0
    inputs = dict(zip((TILE if n_rows > 8 else FEW).inputs, given["inputs"], strict=True))
    if op == "linear_heads" or n_rows > 8:
        held += inputs["x"].nbytes
    if n_rows > 8:
        held += inputs["order"].nbytes + inputs["borders"].nbytes
    assert held <= forecast <= 2 * held


def experts_case(op: str, n_rows: int) -> OpCase:
    n_experts, n_used, n_in, n_out = 3, 2, 256, 64
    given = {"weight": weight("q8_0", 46, n_experts, n_out, n_in)}
    if op == "linear_heads":
        y, x = empty(n_rows, n_experts * n_out), array(48, n_rows, n_experts * n_in)
        return OpCase(op=op, views={"y": y, "x": x}, weights=given)
    ids = np.argsort(array(45, n_rows, n_experts), axis=1)[:, :n_used].astype(np.float32)
    views = {"x": array(48, n_rows, n_used * n_in), "ids": ids}
    if op == "linear_experts":
        return OpCase(op=op, views={**views, "y": empty(n_rows, n_used * n_out)}, weights=given)
    views |= {"y": empty(n_rows, n_out), "probs": array(41, n_rows, n_used)}
    return OpCase(op=op, views=views, weights=given)
