"""The gate's cases on the WASM kernels in Node: the reference's results, with equal bits in every variant."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.node_host import wasm_host

from camelid.backends.base import OpenSpec, OutputRow, Result, Ticket
from camelid.backends.common.op_runner import OpResult, run_case
from camelid.backends.proof.cases import all_cases
from camelid.backends.proof.gate import FAILED, PASSED, judge
from camelid.backends.proof.inputs import GateCase
from camelid.plan.op_rows_fused import FUSED
from camelid.plan.ops import OPS
from camelid.plan.parallel import SUM
from camelid_native.wasm.backend import WasmBackend

pytestmark = pytest.mark.parity

# Variants besides relaxed SIMD on one thread: instruction set, threads.
WAYS = {
    "plain on two threads": ("wasm", 2),
    "plain": ("wasm", 1),
    "relaxed on two threads": ("wasm_relaxed", 2),
}
OWN = [op for op in OPS if op not in {*FUSED, SUM}]
FEW = 4  # ordinary runs judge each 4th case of an op: the same C is tested natively
EVERY = 11  # every 11th case of an op, starting with the first, runs in these variants


def opened(variant: str, threads: int, make: type[WasmBackend] = WasmBackend) -> Iterator[WasmBackend]:
    backend = make(wasm_host())
    asyncio.run(backend.open(OpenSpec(adapter=variant, threads=threads)))
    device = backend.capabilities().device
    assert device == f"{variant}, {threads} thread{'s' if threads > 1 else ''}", device
    yield backend
    asyncio.run(backend.close())


@pytest.fixture(scope="module")
def relaxed() -> Iterator[WasmBackend]:
    yield from opened("wasm_relaxed", 1)


@pytest.fixture(scope="module", params=share_of(WAYS))
def other(request: Any) -> Iterator[WasmBackend]:
    yield from opened(*WAYS[request.param])


def cases(backend: WasmBackend, op: str, every: int = 1) -> list[GateCase]:
    planned = list(all_cases(backend.capabilities().weight_types, op))
    return [case.made() for case in planned[::every]]


@pytest.mark.parametrize("every", share_of([FEW, 1]))
@pytest.mark.parametrize("op", OWN)
def test_every_case_passes(op: str, every: int, relaxed: WasmBackend) -> None:
    outcomes = [asyncio.run(judge(relaxed, case)) for case in cases(relaxed, op, every)]
    assert outcomes and [str(o) for o in outcomes if o.status != PASSED] == []


@pytest.fixture(scope="module")
def wanted(relaxed: WasmBackend) -> list[tuple[GateCase, list[Any]]]:
    """Cases of all ops, with their results by relaxed SIMD on one thread."""
    some = [case for op in OWN for case in cases(relaxed, op, EVERY)]
    return [(case, bits(asyncio.run(run_case(relaxed, case.case)))) for case in some]


def test_every_variant_gives_equal_bits(other: WasmBackend, wanted: list[tuple[GateCase, list[Any]]]) -> None:
    for case, want in wanted:
        assert bits(asyncio.run(run_case(other, case.case))) == want, case


def bits(result: OpResult) -> list[Any]:
    arrays = [*result.views.items(), *result.state.items()]
    rows = [(row.token_id, row.status, row.logit.hex(), row.log_sum_exp.hex()) for row in result.rows]
    given = [(name, array.tobytes()) for name, array in arrays]
    return [*given, *rows, *(bytes(ring) for ring in result.rings)]


class Off(WasmBackend):
    """A backend whose results are 1 % too large: views, float state and rows."""

    async def run_buffers(self, *given: Any) -> tuple[Ticket, list[bytes]]:
        ticket, outputs = await super().run_buffers(*given)
        return ticket, [larger(raw) for raw in outputs]

    async def read_state(self, group: str, unit: int) -> bytes:
        raw = await super().read_state(group, unit)
        return raw if group == "tokens" else larger(raw)

    async def read(self, ticket: Ticket) -> Result:
        return [larger_row(row) for row in await super().read(ticket)]


def larger(raw: bytes | memoryview[Any]) -> bytes:
    return (np.float32(1.01) * np.frombuffer(raw, np.float32)).tobytes()


def larger_row(row: OutputRow) -> OutputRow:
    logits = None if row.logits is None else memoryview(larger(row.logits.cast("B"))).cast("f")
    best = row.candidates and replace(
        row.candidates, logits=memoryview(larger(row.candidates.logits.cast("B"))).cast("f")
    )
    return row._replace(logit=1.01 * row.logit, logits=logits, candidates=best)


@pytest.fixture(scope="module")
def off() -> Iterator[WasmBackend]:
    yield from opened("wasm", 1, Off)


@pytest.mark.parametrize("op", OWN)
def test_one_percent_of_error_is_detected(op: str, off: WasmBackend) -> None:
    assert asyncio.run(judge(off, cases(off, op)[0])).status == FAILED
