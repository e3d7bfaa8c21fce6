"""Dtypes of activations in plans: bytes, texts, and views that stay float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.model.runs import make_plan
from tests.support.model.stress.shapes import SHAPES

from camelid.errors import PlanError
from camelid.plan.builder import PlanBuilder
from camelid.plan.dtypes import DTYPES
from camelid.plan.memory import buffer_bytes, plan_arena
from camelid.plan.ops import OPS, Counts, check_op, make_op, op_bytes
from camelid.plan.plan import Buffer, Op, Plan, View, whole
from camelid.plan.stages import boundary_bytes, row_bytes
from camelid.plan.step import Capacity, ProgramKey, Step, StepRow, StepSampling, StepSequence, encode_step
from camelid.plan.weights import inline_f32

KEY = ProgramKey(entry="mixed", capacity=Capacity(rows=64, sequences=1, outputs=2, updates=1))
SMALL = ("f16", "bf16")


def built(dtype: str) -> Plan:
    """A plan of norm, linear, add, gather_rows, emit."""
    plan = PlanBuilder(KEY, (), dtype=dtype)
    x = plan.new("x", "T", 128)
    plan.add(x, plan.linear(plan.norm(x, None, 1.0), inline_f32("w", [0.0] * 128 * 128, (128, 128))))
    plan.cut("head")
    plan.emit(plan.gather_rows(x))
    return plan.build()


def buffers(plan: Plan) -> dict[str, Buffer]:
    return {view.buffer.name: view.buffer for op in plan.ops for _, view in op.views()}


@pytest.mark.parametrize("dtype", SMALL)
def test_every_byte_count_halves(dtype: str) -> None:
    small, full = built(dtype), built("f32")
    counts = Counts(rows={"T": 5, "S": 1, "O": 1}, keys=0)
    assert {buffer.dtype for buffer in buffers(small).values()} == {dtype}
    assert plan_arena(full).n_bytes == 2 * plan_arena(small).n_bytes > 0
    for a, b in zip(full.ops, small.ops, strict=True):
        weights = sum(weight.n_bytes for weight in a.weights())
        assert op_bytes(a, full, counts) - weights == 2 * (op_bytes(b, small, counts) - weights) > 0
    for a, b in zip(buffers(full).values(), buffers(small).values(), strict=True):
        assert buffer_bytes(a, full) == 2 * buffer_bytes(b, small)


@pytest.mark.parametrize("dtype", SMALL)
def test_a_boundary_has_the_bytes_of_its_dtype(dtype: str) -> None:
    plan = built(dtype)
    row = StepRow(source=0, value=1, sequence=0, state_row=0, positions=(0,))
    share = StepSequence(first_row=0, rows=3, groups=())
    step = Step(rows=[row] * 3, sequences=[share], sampling=[StepSampling()], outputs=[(0, 0, 1)])
    assert boundary_bytes(plan.stages[1].inputs, encode_step(step, plan.layout)) == {"x": 3 * 128 * 2}
    assert row_bytes(plan.stages[1].inputs) == 128 * 2


def test_a_text_states_each_dtype_except_f32() -> None:
    texts = {dtype: built(dtype).text() for dtype in DTYPES}
    assert ":f16" not in texts["f32"] and "x[T,128]  " in texts["f32"]
    assert "takes x[T,128]:f16" in texts["f16"]
    for dtype in SMALL:
        assert texts[dtype].replace(f"]:{dtype}", "]") == texts["f32"]
    assert len({built(dtype).hash() for dtype in DTYPES}) == 3


def test_a_slice_counts_its_own_bytes() -> None:
    part = whole(Buffer("x", "T", 12, "bf16")).slice(4, 6)
    assert str(part) == "x[T,4:10]:bf16"
    assert (part.row_bytes, part.offset_bytes, part.buffer.row_bytes) == (12, 8, 24)


def test_an_unknown_dtype_is_named() -> None:
    plan = PlanBuilder(KEY, (), dtype="f8")
    with pytest.raises(PlanError, match="'f8' of an activation; known: f32, f16, bf16"):
        plan.scale(plan.new("x", "T", 4), 2.0)


def in_dtype(op: Op, role: str, dtype: str) -> Op:
    """The op with the role's view stored as `dtype`."""
    view = op.view(role)
    moved = replace(view, buffer=replace(view.buffer, dtype=dtype))
    return replace(op, operands=tuple((name, moved if name == role else o) for name, o in op.operands))


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("name", ["gemma3n", "gpt_oss", "mamba2", "qwen3next"])
def test_exact_views_of_models_stay_f32(name: str, dtype: str) -> None:
    """Expert numbers and logits. All other views have the plan's dtype."""
    plan = make_plan(SHAPES[name].model(), 7, context=32, dtype=dtype)
    logits = plan.ops[-1].view("logits").buffer
    exact = {op.view(r).buffer for op in plan.ops for r in OPS[op.name].exact}
    for buffer in buffers(plan).values():
        assert buffer.dtype == ("f32" if buffer in exact else dtype)
    assert logits in exact and logits.dtype == "f32"
    for op in plan.ops:
        for role in OPS[op.name].exact:
            with pytest.raises(PlanError, match=f"{op.name}: {role} is .*:{dtype}, but the op requires f32"):
                check_op(in_dtype(op, role, dtype))


def test_rows_are_gathered_in_their_own_dtype() -> None:
    """`only_outputs` moves the gather, with other values."""
    x, y = View(Buffer("x", "T", 8, "f16"), 8), View(Buffer("y", "O", 8), 8)
    with pytest.raises(PlanError, match="gather_rows: shapes do not fit"):
        make_op("gather_rows", {"x": x, "y": y}, {})


def test_plans_for_outputs_alone_keep_the_dtype() -> None:
    plan = make_plan(SHAPES["gpt_oss"].model(), 7, context=32, n_outputs=1, dtype="bf16")
    moved = [buffer for buffer in buffers(plan).values() if buffer.name.endswith(".out")]
    assert moved and {buffer.dtype for buffer in moved} == {"bf16"}
