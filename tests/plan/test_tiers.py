"""State of two tiers in a plan: ops write and read both, and bytes are counted by tier."""

from __future__ import annotations

from typing import Any

import pytest

from camelid.errors import PlanError
from camelid.plan.builder import PlanBuilder
from camelid.plan.ops import Counts, op_bytes, op_flops
from camelid.plan.plan import Op, Plan, StateRef, StateSpec
from camelid.plan.step import Capacity, ProgramKey

KEY = ProgramKey(entry="mixed", capacity=Capacity(rows=2, sequences=1, outputs=1, updates=1))
TENSORS = (("k", 64), ("v", 32))
STORE = StateSpec("kv", "paged", (0, 1), TENSORS, 16, "q8_0")
TAIL = StateSpec("kv_tail", "window", (0, 1), TENSORS, 16, "f16", 320)
LOCAL = StateSpec("window", "window", (0,), TENSORS, 16, "f16", 8)
Q, Y, STORED, HALF = 64, 32, 3 * 34, 2 * 96  # floats of a query and of its result, bytes of a row


def attention_plan(states: tuple[StateSpec, ...], group: str = "kv", **how: Any) -> Plan:
    plan = PlanBuilder(KEY, states)
    q, k, v = plan.new("q", "T", Q), plan.new("k", "T", 64), plan.new("v", "T", 32)
    plan.kv_write(k, v, StateRef(group, 0))
    plan.attention(q, StateRef(group, 0), n_heads=1, n_kv_heads=1, v_dim=32, scale=1.0, **how)
    return plan.build()


def places(op: Op) -> dict[str, str]:
    return {role: str(operand) for role, operand in op.operands if isinstance(operand, StateRef)}


def test_both_tiers_are_written_and_read() -> None:
    found = [(op.name, places(op)) for op in attention_plan((STORE, TAIL, LOCAL)).ops]
    assert found == [
        ("kv_write", {"state": "kv.0"}),
        ("kv_write", {"state": "kv_tail.0"}),
        ("attention", {"state": "kv.0", "tail": "kv_tail.0"}),
    ]


@pytest.mark.parametrize(("states", "group"), [((STORE,), "kv"), ((STORE, TAIL, LOCAL), "window")])
def test_a_group_without_a_tail_is_read_alone(states: tuple[StateSpec, ...], group: str) -> None:
    found = [(op.name, places(op)) for op in attention_plan(states, group).ops]
    assert found == [("kv_write", {"state": f"{group}.0"}), ("attention", {"state": f"{group}.0"})]


def test_the_plan_s_text_states_types_and_windows() -> None:
    lines = attention_plan((STORE, TAIL)).text().splitlines()
    assert lines[1] == "state kv paged q8_0 layers=2 unit=16 rows  k[64] v[32]"
    assert lines[2] == "state kv_tail window f16 window=320 layers=2 unit=16 rows  k[64] v[32]"


@pytest.mark.parametrize("how", [{"mask": "held"}, {"window": 8}])
def test_a_tail_needs_causal_rows(how: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="attention: shapes do not fit"):
        attention_plan((STORE, TAIL), **how)


def moved(plan: Plan, name: str, *, n_rows: int, keys: int) -> int:
    """Bytes of state that the ops of that name move."""
    counts = Counts(rows={"T": n_rows, "S": 1, "O": 1}, keys=keys)
    ops = [op for op in plan.ops if op.name == name]
    views = sum(4 * n_rows * view.cols for op in ops for _, view in op.views())
    return sum(op_bytes(op, plan, counts) for op in ops) - views


def test_bytes_are_counted_by_tier() -> None:
    tiered, alone = attention_plan((STORE, TAIL)), attention_plan((STORE,))
    assert moved(tiered, "kv_write", n_rows=2, keys=0) == 2 * (STORED + HALF)
    assert moved(alone, "kv_write", n_rows=2, keys=0) == 2 * STORED
    assert moved(alone, "attention", n_rows=2, keys=2000) == 2000 * STORED
    assert moved(tiered, "attention", n_rows=2, keys=2000) == 2 * 256 * HALF + (2000 - 512) * STORED
    assert moved(tiered, "attention", n_rows=2, keys=300) == 300 * HALF


def test_a_window_bounds_the_rows_read_by_attention() -> None:
    plan = attention_plan((LOCAL,), "window", window=8)
    assert moved(plan, "attention", n_rows=3, keys=1500) == 3 * 8 * HALF
    assert moved(plan, "attention", n_rows=3, keys=6) == 6 * HALF
    counts = Counts(rows={"T": 3, "S": 1, "O": 1}, keys=1500)
    assert op_flops(plan.ops[-1], counts) == 2 * (Q + Y) * 3 * 8
