"""Programs with more capacity than their steps, and ids beyond a table: nothing outside is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cuda.rig import open_rig
from tests.support.parity.case_tools import array, empty, weight
from tests.support.parity.cases import OP_CASES, one_of_each_kind
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec, Program, Ticket
from camelid.backends.common.op_runner import OpCase
from camelid.backends.proof.gate import inputs_of
from camelid.plan.plan import View
from camelid.plan.step import StepLayout
from camelid_native.cuda.backend import CudaBackend
from camelid_native.cuda.kernels import KERNELS
from camelid_native.cuda.types import EXACT_TYPES

SPARE, MORE = 3, 70  # rows in the blocks of the step's, and in blocks beyond
FAR = 10**6  # an id or a position beyond every table here
COUNTS = {"T": "rows", "O": "outputs"}


class Guarded(CudaBackend):
    """Fills rows beyond those of a step, and notes the views that the step changes there."""

    def __init__(self) -> None:
        super().__init__(open_rig()._open_parts)  # pyright: ignore[reportPrivateUsage]
        self.beyond: list[str] = []

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        filled = {view: filler(program, view) for view in (*inputs, *outputs)}
        own = {view: inputs.get(view, b"") for view in filled}
        given = {view: own[view] + data[len(own[view]) :] for view, data in filled.items()}
        ticket, found = await super().run_buffers(program, step, given, outputs)
        words = np.frombuffer(step, np.uint32)
        for view, data in zip(outputs, found, strict=True):
            start = int(words[StepLayout.header_word(COUNTS[view.rows])]) * view.row_bytes
            if data[start:] != filled[view][start:]:
                self.beyond.append(f"{program.plan.key.entry} {view}")
        return ticket, found


def filler(program: Program, view: View) -> bytes:
    """Floats for all rows of a view."""
    n = program.plan.rows[view.rows] * view.row_bytes // 4
    return (1.0 + np.arange(n) % 97 / 8).astype(np.float32).tobytes()


def spare_cases() -> list[OpCase]:
    """One case of each op, and one of each with weights that multiply x as it is."""
    known = [case for case in OP_CASES if case.op in KERNELS and len(kinds(case)) < 2]
    chosen = one_of_each_kind(known, lambda c: (c.op, *kinds(c)))
    return [replace(case, margins=(0, 0), spare=MORE if kinds(case) else SPARE) for case in chosen]


def kinds(case: OpCase) -> set[bool]:
    roles = ("weight", "v_weight")
    return {case.weights[role].type in EXACT_TYPES for role in roles if role in case.weights}


def test_rows_beyond_the_step_are_neither_written_nor_kept() -> None:
    """A row beyond would write the state of the first sequence too."""
    backend = Guarded()
    pairs = [inputs_of(case, backend.capabilities()) for case in spare_cases()]
    results = asyncio.run(run_on(backend, OpenSpec(), [given for given, _ in pairs]))
    assert backend.beyond == []
    off = [
        given.op
        for (given, expected), result in zip(pairs, results, strict=True)
        if not max(errors(result, reference_result(expected)), default=0.0) <= TOLERANCE
    ]
    assert off == []


def lookup(op: str, place: int) -> OpCase:
    at: dict[str, Any] = {"token_ids": [place]} if op == "embed" else {"positions": [place], "keys": None}
    view = {"y": empty(1, 64)} if op == "embed" else {"x": array(33, 1, 64)}
    return OpCase(op=op, views=view, weights={"weight": weight("q8_0", 1, 40, 64)}, **at)


def expert(number: float) -> OpCase:
    ids = np.array([[number, 1.0]], np.float32)
    views = {"y": empty(1, 64), "x": array(2, 1, 64), "ids": ids}
    return OpCase(op="linear_experts", views=views, weights={"weight": weight("q8_0", 3, 4, 32, 64)})


def outcome(case: OpCase) -> Any:
    (result,) = asyncio.run(run_on(open_rig(), OpenSpec(), [case]))
    return next(iter(result.views.values()))


@pytest.mark.parametrize("op", ["embed", "embed_position"])
def test_an_id_beyond_a_table_is_its_last(op: str) -> None:
    assert np.array_equal(outcome(lookup(op, FAR)), outcome(lookup(op, 39)))


@pytest.mark.parametrize(("number", "known"), [(FAR, 3), (-1, 0)])
def test_an_expert_beyond_the_matrix_is_its_nearest(number: float, known: float) -> None:
    assert np.array_equal(outcome(expert(number)), outcome(expert(known)))
