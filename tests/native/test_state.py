"""State ops on the CPU backend: rows written, copied and read, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from tests.support.native.attention_oracle import F32, normal, run, stored
from tests.support.native.kernels import VARIANTS

from camelid.backends.base import OpenSpec, PoolSize, Program
from camelid.backends.common.op_runner import OpCase, Quantized, case_plan
from camelid.plan.op_rows_encoder import POOLINGS
from camelid.plan.ops import make_op
from camelid.plan.plan import Buffer, Plan, Stage, StateRef, StateSpec, View
from camelid.plan.step import (
    FROM_ID,
    FROM_RING,
    Capacity,
    ProgramKey,
    Step,
    StepRow,
    StepSampling,
    StepSequence,
    encode_step,
)
from camelid_native.cpu.backend import CpuBackend, open_backend

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")
WIDTHS = (96, 32)  # of keys and values: an odd number of blocks
RING_ROWS = 128


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_rows_are_stored_as_gguf_stores_them(kv_type: str, variant: str) -> None:
    k, v = (rough(normal(i, 5, width)) for i, width in enumerate(WIDTHS))
    positions = [15, 16, 17, 35, 40]
    held: dict[str, Any] = {"keys": np.zeros((48, 96), np.float32), "values": np.zeros((48, 32), np.float32)}
    case = OpCase(op="kv_write", views={"k": k, "v": v}, positions=positions, kv_type=kv_type, **held)
    for threads in (1, 3):
        state = run(case, variant, threads).state
        for name, rows in (("k", k), ("v", v)):
            want = np.zeros_like(state[name])
            want[positions] = stored(kv_type, rows)
            np.testing.assert_array_equal(state[name], want)


def rough(rows: F32) -> F32:
    """Rows that stress a quantizer: small and large scales, exact halves with ties for the largest, zeros."""
    rows[0] *= 1e-5
    rows[1] *= 1e3
    rows[2, :32] = np.arange(-16, 16) + 0.5
    rows[3, :32] = 0.0
    return rows


LAYERS, N_UNITS, UNIT_ROWS = (2, 3, 7), 6, 4
STATES = tuple(
    StateSpec(name, "paged", LAYERS, (("k", 64), ("v", 32)), UNIT_ROWS, kv_type)
    for name, kv_type in (("first", "q8_0"), ("second", "f16"))
)


def run_plan(
    ops: Sequence[Any], step: Step, inputs: Mapping[View, F32], threads: int
) -> Mapping[str, list[bytes]]:
    """Units of both groups after a step; initially, byte i of unit u is (i + u) % 251."""
    capacity = Capacity(rows=4, sequences=2, outputs=1, updates=8, copies=8)
    plan = Plan(
        key=ProgramKey(entry="state", capacity=capacity), stages=(Stage("main", tuple(ops)),), states=STATES
    )

    async def units() -> Mapping[str, list[bytes]]:
        backend = open_backend()
        await backend.open(OpenSpec(threads=threads))
        try:
            await fill(backend)
            program: Program = await backend.compile(plan)
            data = {view: rows.tobytes() for view, rows in inputs.items()}
            await backend.run_buffers(program, encode_step(step, plan.layout), data, [])
            return {s.name: [await backend.read_state(s.name, u) for u in range(N_UNITS)] for s in STATES}
        finally:
            await backend.close()

    return asyncio.run(units())


async def fill(backend: CpuBackend) -> None:
    await backend.allocate(STATES, {s.name: PoolSize(N_UNITS, 2, 5) for s in STATES})
    for s in STATES:
        for u in range(N_UNITS):
            await backend.write_state(s.name, u, before(s, u))


def before(spec: StateSpec, unit: int) -> bytes:
    return bytes((i + unit) % 251 for i in range(spec.unit_bytes))


def by_layer(spec: StateSpec, unit: bytes) -> list[list[bytes]]:
    """Rows of each tensor of each layer."""
    widths = spec.row_bytes * 2 // 3, spec.row_bytes // 3  # of 64 and 32 columns
    found: list[list[bytes]] = []
    at = 0
    for _ in spec.layers:
        for width in widths:
            found.append([unit[at + i * width : at + (i + 1) * width] for i in range(spec.unit_rows)])
            at += width * spec.unit_rows
    assert at == len(unit)
    return found


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_copies_take_the_first_rows_of_every_layer(threads: int) -> None:
    ops = [make_op("copy", {"state": StateRef(s.name)}, {}) for s in STATES]
    copies = [(0, 1, 4, 3), (1, 2, 5, 4), (0, 2, 3, 1)]
    units = run_plan(ops, Step(copies=copies), {}, threads)
    for group, spec in enumerate(STATES):
        want = [by_layer(spec, before(spec, u)) for u in range(N_UNITS)]
        for _, source, destination, n in (copy for copy in copies if copy[0] == group):
            for to, rows in zip(want[destination], by_layer(spec, before(spec, source)), strict=True):
                to[:n] = rows[:n]
        assert [by_layer(spec, unit) for unit in units[spec.name]] == want


def test_rows_are_written_to_their_layer_and_page() -> None:
    """The table decides: updates of this group alone, at their row and index."""
    k, v = (View(Buffer(name, "T", width), width) for name, width in (("k", 64), ("v", 32)))
    keys, values = normal(1, 2, 64), normal(2, 2, 32)
    ops = [make_op("tables", {"state": StateRef(s.name)}, {}) for s in STATES]
    ops.append(make_op("kv_write", {"k": k, "v": v, "state": StateRef("second", 3)}, {}))
    step = Step(
        rows=[row(sequence=0, state_row=6), row(sequence=1, state_row=1)],
        sequences=[StepSequence(first_row=i, rows=1, groups=((i, 0, 0),) * 2) for i in range(2)],
        sampling=[StepSampling()] * 2,
        updates=[(1, 0, 1, 5), (0, 0, 1, 2), (1, 1, 0, 3), (0, 1, 0, 4), (1, 1, 1, 1)],
    )
    units = run_plan(ops, step, {k: keys, v: values}, 2)
    spec = STATES[1]
    want = [by_layer(spec, before(spec, u)) for u in range(N_UNITS)]
    for (unit, place), key, value in zip(((5, 2), (3, 1)), keys, values, strict=True):
        want[unit][2][place], want[unit][3][place] = (a.astype(np.float16).tobytes() for a in (key, value))
    assert [by_layer(spec, unit) for unit in units["second"]] == want
    assert units["first"] == [before(STATES[0], u) for u in range(N_UNITS)]


def row(**facts: Any) -> StepRow:
    return StepRow(**({"source": FROM_ID, "value": 0, "positions": (0,)} | facts))


TABLE = normal(9, 40, 64)


def embed(token_ids: Sequence[int], type_name: str = "f32", **more: Any) -> OpCase:
    raw = quantize(TABLE, GGMLQuantizationType[type_name.upper()]).tobytes()
    views = {"y": np.zeros((len(token_ids), 64), np.float32)}
    weights = {"weight": Quantized(type_name, TABLE.shape, raw)}
    return OpCase(op="embed", views=views, weights=weights, token_ids=token_ids, **more)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("type_name", ["f32", "f16", "bf16", "q4_0", "q5_1", "q8_0"])
def test_embedding_rows(type_name: str, variant: str) -> None:
    ids = [0, 39, 7, 7, 21]
    type_id = GGMLQuantizationType[type_name.upper()]
    table = dequantize(quantize(TABLE, type_id), type_id)
    got = run(embed(ids, type_name, attrs={"scale": 3.5}), variant, threads=2).views["y"]
    np.testing.assert_array_equal(got, table[ids] * np.float32(3.5))
    placed = replace(embed(ids, type_name), op="embed_position", token_ids=(), positions=ids)
    got = run(replace(placed, views={"x": np.ones((5, 64), np.float32)}), variant, threads=2).views["x"]
    np.testing.assert_array_equal(got, table[ids] + np.float32(1))


@pytest.mark.parametrize("token_id", [40, 2**31, 2**32 - 1])
@pytest.mark.parametrize("type_name", ["f32", "q8_0"])
def test_an_id_beyond_the_embedding_reads_its_first_row(type_name: str, token_id: int) -> None:
    got, first = (run(embed([i], type_name), VARIANTS[-1]).views["y"] for i in (token_id, 0))
    np.testing.assert_array_equal(got, first)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n", [1, 7, 130, 300])
def test_ids_of_the_last_rows_enter_the_ring(n: int, threads: int) -> None:
    """Rows from the ring read the id before the step, and leave it unchanged."""
    history, start = [i * 7 % 40 for i in range(150)], 140
    ids = [-1 if i % 3 == 1 else i * 11 % 40 for i in range(n)]
    case = embed(ids, positions=range(start, start + n), history=history)
    result = run(case, VARIANTS[-1], threads)
    ring = np.zeros(RING_ROWS, np.int64)
    for position, token_id in enumerate(history):
        ring[position % RING_ROWS] = token_id
    places = np.arange(start, start + n) % RING_ROWS
    tokens = np.where(np.array(ids) < 0, ring[places], ids)
    np.testing.assert_array_equal(result.views["y"], TABLE[tokens])
    for i in range(max(0, n - RING_ROWS), n):
        ring[places[i]] = ring[places[i]] if ids[i] < 0 else ids[i]
    assert [list(ring) for ring in result.rings] == [list(ring)]


def test_ring_slots_are_those_of_the_step() -> None:
    """Ids are read from the step's read slot and written to its write slot."""
    case = embed([0, 0], history=[5, 6, 7])
    plan, roles = case_plan(case)
    ids = np.arange(100, 100 + RING_ROWS, dtype=np.uint32)
    slots = {name: (2, 1, 0) if name == "tokens" else (0, 0, 0) for name in (s.name for s in plan.states)}
    rows = [row(sequence=0, state_row=3, source=FROM_RING), row(sequence=0, state_row=4, value=9)]
    sequence = StepSequence(first_row=0, rows=2, groups=tuple(slots.values()))
    step = encode_step(Step(rows=rows, sequences=[sequence], sampling=[StepSampling()]), plan.layout)

    async def result() -> tuple[bytes, list[memoryview[int]]]:
        backend = open_backend()
        await backend.open(OpenSpec())
        await backend.load(list(plan.weights().values()), {})
        await backend.allocate(plan.states, {s.name: PoolSize(3, 1, 1) for s in plan.states})
        await backend.write_state("tokens", 2, (ids - 90).tobytes())
        await backend.write_state("tokens", 1, ids.tobytes())
        _, (y,) = await backend.run_buffers(await backend.compile(plan), step, {}, [roles["y"]])
        rings = [memoryview(await backend.read_state("tokens", slot)).cast("I") for slot in (2, 1)]
        await backend.close()
        return y, rings

    y, (read, written) = asyncio.run(result())
    np.testing.assert_array_equal(np.frombuffer(y, np.float32).reshape(2, -1), TABLE[[13, 9]])
    ids[4] = 9
    assert list(read) == list(range(10, 10 + RING_ROWS)) and list(written) == list(ids)


@pytest.mark.parametrize("kind", POOLINGS)
def test_pooled_rows(kind: str) -> None:
    x, lengths = normal(3, 10, 33), (4, 1, 5)
    y = np.zeros((3, 33), np.float32)
    case = OpCase(
        op="pool", views={"y": y, "x": x}, lengths=lengths, positions=range(10), attrs={"kind": kind}
    )
    got = run(replace(case, output_rows=[3, 4, 9]), VARIANTS[-1], threads=2).views["y"]
    parts = np.split(x.astype(np.float64), [4, 5])
    pooled = {
        "mean": lambda rows: rows.mean(axis=0),
        "cls": lambda rows: rows[0],
        "last": lambda rows: rows[-1],
    }
    np.testing.assert_allclose(got, [pooled[kind](rows) for rows in parts], rtol=1e-6, atol=1e-7)


def test_floats_are_emitted_with_their_status() -> None:
    x = normal(4, 3, 20)
    x[1, 19] = np.nan
    rows = run(OpCase(op="emit", views={"x": x}), VARIANTS[-1], threads=2).rows
    assert [(r.token_id, r.status, r.logit, r.log_sum_exp) for r in rows] == [
        (0, status, 0.0, 0.0) for status in ("ok", "nan", "ok")
    ]
    np.testing.assert_array_equal([list(r.logits or ()) for r in rows], x)


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_of_outputs(threads: int) -> None:
    x = normal(5, 6, 50)
    case = OpCase(
        op="gather_rows", views={"y": np.zeros((4, 50), np.float32), "x": x}, output_rows=[5, 0, 5, 2]
    )
    np.testing.assert_array_equal(run(case, VARIANTS[-1], threads).views["y"], x[[5, 0, 5, 2]])
