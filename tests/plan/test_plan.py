"""Waist 2 alone: the step's words, the arena, invalid rewrites, and the op contract."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from camelid.errors import PlanError
from camelid.plan.builder import PlanBuilder
from camelid.plan.fuse import fuse
from camelid.plan.memory import ALIGN, plan_arena
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.step import (
    FROM_RING,
    Capacity,
    ProgramKey,
    Step,
    StepLayout,
    StepRow,
    StepSampling,
    StepSequence,
    decode_step,
    encode_step,
)
from camelid.plan.weights import inline_f32

CAPACITY = Capacity(rows=2, sequences=1, outputs=1, updates=1, copies=1, biases=3)
LAYOUT = StepLayout(CAPACITY, n_groups=1)
STEP = Step(
    rows=[StepRow(source=FROM_RING, value=7, sequence=0, state_row=40, positions=(41,))],
    sequences=[StepSequence(first_row=0, rows=1, groups=((1, 2, 40),), adapter=3, sampling=0)],
    outputs=[(0, 0, 41)],
    sampling=[
        StepSampling(
            temperature=0.5,
            seed=2**32 + 9,
            choice=4,
            offset=17,
            top_k=40,
            top_p=0.75,
            min_p=0.125,
            repeat_penalty=1.5,
            frequency_penalty=0.25,
            presence_penalty=-0.5,
            penalty_last_n=64,
            biases=((21, -2.0), (11, 0.5)),
        )
    ],
    updates=[(0, 1, 2, 5)],
    copies=[(0, 6, 7, 16)],
    ordinal=99,
)
WORDS = [
    *(1, 1, 1, 1, 1, 99),  # rows, sequences, outputs, updates, copies, ordinal
    *(22, 29, 32, 46, 52, 56),  # starts of sequences, outputs, sampling, biases, updates and copies
    *(1, 7, 0, 40, 41),  # source, value, sequence, state row, position
    *(0, 0, 0, 0, 0),  # the second row is unused
    *(0, 1, 3, 0, 1, 2, 40),  # first row, rows, adapter, sampling; table row, first kept, held
    *(0, 0, 41),  # row, sequence, position
    *(0x3F000000, 9, 1, 4, 17),  # temperature 0.5, seed low and high, choice, offset
    *(40, 0x3F400000, 0x3E000000),  # top-k, top-p 0.75, min-p 0.125
    *(0x3FC00000, 0x3E800000, 0xBF000000, 64),  # repeat 1.5, frequency 0.25, presence -0.5, last n
    *(2, 0),  # biases: count, first
    *(21, 0xC0000000, 11, 0x3F000000, 0, 0),  # id and value of each bias, the third is unused
    *(0, 1, 2, 5),  # group, table row, index, unit
    *(0, 6, 7, 16),  # group, source, destination, rows
]


def test_a_step_encodes_to_its_words() -> None:
    assert list(struct.unpack(f"<{LAYOUT.n_words}I", encode_step(STEP, LAYOUT))) == WORDS


def test_a_step_round_trips() -> None:
    assert decode_step(encode_step(STEP, LAYOUT), LAYOUT) == STEP


def test_a_step_beyond_capacity_is_refused() -> None:
    with pytest.raises(PlanError, match="3 rows, but the program's capacity is 2"):
        encode_step(replace(STEP, rows=STEP.rows * 3), LAYOUT)


def test_a_row_with_more_positions_than_the_layout_is_refused() -> None:
    rows = [row._replace(positions=(0,) * 9) for row in STEP.rows]
    with pytest.raises(PlanError, match="a row has too many positions"):
        encode_step(replace(STEP, rows=rows), LAYOUT)


def test_biases_beyond_capacity_are_refused() -> None:
    how = replace(STEP.sampling[0], biases=((1, 1.0),) * 4)
    with pytest.raises(PlanError, match="4 biases, but the program's capacity is 3"):
        encode_step(replace(STEP, sampling=[how]), LAYOUT)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (StepSampling(top_k=257), "top_k is 257, a device supports 0 to 256"),
        (StepSampling(penalty_last_n=65), "penalty_last_n is 65"),
        (StepSampling(biases=((1, 1.0),) * 17), "number of biases is 17"),
        (StepSampling(top_p=0.9), "top_p is 0.9 without top_k"),
    ],
)
def test_samplers_without_a_device_kernel_are_refused(how: StepSampling, message: str) -> None:
    layout = StepLayout(replace(CAPACITY, biases=99), n_groups=1)
    with pytest.raises(PlanError, match=f"{message}.*sample on the host"):
        encode_step(replace(STEP, sampling=[how]), layout)


def test_each_sequence_has_its_own_biases() -> None:
    layout = StepLayout(replace(CAPACITY, sequences=2), n_groups=1)
    sampling = [StepSampling(biases=((3, 1.0),)), StepSampling(biases=((4, -0.5), (5, 2.0)))]
    step = replace(STEP, sequences=STEP.sequences * 2, sampling=sampling)
    assert decode_step(encode_step(step, layout), layout) == step


@pytest.mark.parametrize("copies", [[(0, 6, 7, 16), (0, 7, 8, 1)], [(0, 6, 7, 16), (0, 5, 7, 1)]])
def test_order_dependent_copies_are_refused(copies: list[tuple[int, int, int, int]]) -> None:
    layout = StepLayout(replace(CAPACITY, copies=2), n_groups=1)
    with pytest.raises(PlanError, match="depend on their order"):
        encode_step(replace(STEP, copies=copies), layout)


def test_an_entry_of_a_page_table_changes_once_in_a_step() -> None:
    layout = StepLayout(replace(CAPACITY, updates=2), n_groups=1)
    with pytest.raises(PlanError, match=r"updates .* depend on their order"):
        encode_step(replace(STEP, updates=[(0, 1, 2, 6), (0, 1, 2, 7)]), layout)


def builder() -> PlanBuilder:
    states = (StateSpec("tokens", "ring", (), (("id", 1),), 128),)
    return PlanBuilder(ProgramKey(entry="decode", capacity=CAPACITY), states)


def chain(plan: PlanBuilder, *, is_read_again: bool) -> Plan:
    """embed, then three linears; optionally the end reads the first activation again."""
    square = inline_f32("w", [0.0] * 64, (8, 8))
    x = plan.embed(inline_f32("e", [0.0] * 32, (4, 8)), "tokens")
    y = plan.linear(plan.linear(plan.linear(x, square), square), square)
    plan.add(y, x if is_read_again else y)
    return plan.build()


def spans(plan: Plan) -> list[tuple[int, int, int, int]]:
    """(first op, last op, first byte, end) of each buffer."""
    arena, seen = plan_arena(plan), dict[str, list[int]]()
    for i, op in enumerate(plan.ops):
        for _, view in op.views():
            seen.setdefault(view.buffer.name, []).append(i)
    return [(min(at), max(at), arena.offsets[n], arena.offsets[n] + ALIGN) for n, at in seen.items()]


@pytest.mark.parametrize("is_read_again", [False, True])
def test_live_buffers_share_no_bytes(is_read_again: bool) -> None:
    found = spans(chain(builder(), is_read_again=is_read_again))
    for i, (first, last, start, end) in enumerate(found):
        for other_first, other_last, other_start, other_end in found[:i]:
            together = first <= other_last and other_first <= last
            assert not together or end <= other_start or other_end <= start


def test_an_arena_reuses_dead_buffers() -> None:
    short = plan_arena(chain(builder(), is_read_again=False)).n_bytes
    assert short == 2 * ALIGN < plan_arena(chain(builder(), is_read_again=True)).n_bytes


def test_add_and_norm_of_different_buffers_stay_apart() -> None:
    plan, gain = builder(), inline_f32("g", [1.0] * 8, (8,))
    x = plan.embed(inline_f32("e", [0.0] * 32, (4, 8)), "tokens")
    y = plan.norm(x, gain, 1e-5)
    plan.add(x, y)
    plan.norm(y, gain, 1e-5)  # not on x
    assert [op.name for op in fuse(plan.build(), {"add_norm"}).ops] == ["embed", "norm", "add", "norm"]
    plan.add(x, y)
    plan.norm(x, gain, 1e-5)
    assert fuse(plan.build(), {"add_norm"}).ops[-1].name == "add_norm"


def test_gate_and_up_are_joined_up_to_a_devices_binding_limit() -> None:
    plan = builder()
    x = plan.embed(inline_f32("e", [0.0] * 32, (4, 8)), "tokens")
    gate, up = (plan.linear(x, inline_f32(name, [0.0] * 32, (4, 8)), name) for name in ("gate", "up"))
    plan.glu(gate, up, "silu")
    for most_bytes, last in ((256, "linear_glu"), (255, "glu")):
        assert fuse(plan.build(), {"linear_glu"}, most_bytes=most_bytes).ops[-1].name == last


def test_a_misshapen_op_is_refused() -> None:
    plan = builder()
    x = plan.embed(inline_f32("e", [0.0] * 32, (4, 8)), "tokens")
    with pytest.raises(PlanError, match="linear: shapes do not fit"):
        plan.linear(x, inline_f32("w", [0.0] * 32, (4, 4)), "y")
