"""Recurrent ops on webgpu: chunks of a prompt and company in a step change no bit of rows or state, and NaN
stays NaN.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.support.parity.adapters import need_driver
from tests.support.parity.cases import OP_CASES

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult, run_case
from camelid.backends.webgpu.backend import WebGpuBackend, open_backend
from camelid.plan.op_rows_recurrent import SLOT_TENSORS

pytestmark = pytest.mark.parity

# Cases of two sequences of 21 rows and 2, of each op and shape.
CASES = [case for case in OP_CASES if tuple(case.lengths) == (21, 2)]
CUTS = ((0, 21), (0, 1, 2, 21), (0, 8, 9, 19, 21))


def part(case: OpCase, start: int, end: int, slot: Any) -> OpCase:
    """Rows `start .. end` of the case's first sequence, whose slot is `slot` before them."""
    views = {role: array[start:end] for role, array in case.views.items()}
    return replace(case, views=views, lengths=(end - start,), positions=case.positions[start:end], slots=slot)


async def in_chunks(backend: WebGpuBackend, case: OpCase, cuts: Sequence[int]) -> tuple[Any, Any]:
    """y of the first sequence and its state after the last row."""
    assert case.slots is not None
    slot, rows = case.slots[:1], list[Any]()
    for start, end in pairwise(cuts):
        got = await run_case(backend, part(case, start, end, slot))
        rows.append(got.views["y"])
        slot = got.state[SLOT_TENSORS[case.op]]
    return np.concatenate(rows), slot


async def all_ways(case: OpCase) -> list[tuple[Any, Any]]:
    backend = open_backend("Vulkan")
    await backend.open(OpenSpec(adapter=need_driver("llvmpipe")))
    together = await run_case(backend, case)
    ways = [(together.views["y"][:21], together.state[SLOT_TENSORS[case.op]][:1])]
    ways += [await in_chunks(backend, case, cuts) for cuts in CUTS]
    await backend.close()
    return ways


@pytest.mark.parametrize("i", range(len(CASES)), ids=lambda i: f"{i}-{CASES[i].op}")
def test_chunks_and_company_change_no_bit(i: int) -> None:
    together, *alone = asyncio.run(all_ways(CASES[i]))
    assert np.any(together[0]) and np.any(together[1])
    for y, slot in alone:
        assert y.tobytes() == together[0].tobytes()
        assert slot.tobytes() == together[1].tobytes()


ALONE = [case for case in OP_CASES if case.op.startswith("scan") and tuple(case.lengths) == (1,)]


def broken_role(case: OpCase) -> str:
    """The view with decays; with `u` that of keys, since the decays of scan_rwkv6 are for the row behind."""
    if "u" in case.weights:
        return "k"
    return "w" if "w" in case.views else "dt"


def head_count(case: OpCase) -> int:
    return int(case.attrs["n_heads"]) if "w" in case.views else case.views["dt"].shape[1]


async def broken(case: OpCase) -> OpResult:
    """The case with NaN in its first head."""
    role = broken_role(case)
    values = case.views[role].copy()
    values[0, : values.shape[1] // head_count(case)] = np.nan
    backend = open_backend("Vulkan")
    await backend.open(OpenSpec(adapter=need_driver("llvmpipe")))
    found = await run_case(backend, replace(case, views={**case.views, role: values}))
    await backend.close()
    return found


@pytest.mark.parametrize("i", range(len(ALONE)), ids=lambda i: f"{i}-{ALONE[i].op}")
def test_a_head_keeps_nan(i: int) -> None:
    found, n_heads = asyncio.run(broken(ALONE[i])), head_count(ALONE[i])
    (y,) = (y.reshape(n_heads, -1) for y in found.views.values())
    state = found.state["scan"].reshape(n_heads, -1)
    for rows in (y, state):
        assert np.isnan(rows[0]).all() and np.isfinite(rows[1:]).all()
