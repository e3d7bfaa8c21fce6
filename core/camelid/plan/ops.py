"""The op set: one row per op with its operands, shape rule, cost and meaning.

A row is the whole contract between models and backends. The rows are in `op_rows*.py`; `backends/reference/`
implements their meaning in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping

from camelid.errors import PlanError
from camelid.plan import (
    op_rows,
    op_rows_adapters,
    op_rows_encoder,
    op_rows_fused,
    op_rows_recurrent,
    op_rows_state,
    op_rows_streams,
    op_rows_training,
)
from camelid.plan.dtypes import F32, element_bytes
from camelid.plan.op_rows_adapters import LOW_RANK
from camelid.plan.op_rows_fused import KV_OPS
from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid.plan.op_rows_state import attended
from camelid.plan.oprow import Counts, OpRow
from camelid.plan.plan import Attr, Op, Operand, Plan, View
from camelid.plan.tiers import TAIL
from camelid.plan.weights import Weight

__all__ = ["OPS", "TRAINING_OPS", "Counts", "OpRow", "check_op", "make_op", "op_bytes", "op_flops", "row_of"]

TABLE_OPS = frozenset({"embed", "embed_position"})
EXPERT_OPS = frozenset({"linear_experts", "linear_experts_glu", "linear_experts_sum"})
TABLE_ROLES = frozenset({"fine", "coarse"})
FILES = (
    op_rows, op_rows_fused, op_rows_state, op_rows_recurrent, op_rows_streams, op_rows_encoder,
    op_rows_adapters,
)  # fmt: skip
OPS: dict[str, OpRow] = {row.name: row for file in FILES for row in file.ROWS}
TRAINING_OPS: dict[str, OpRow] = {row.name: row for row in op_rows_training.ROWS}  # of `differentiate` alone


def make_op(name: str, operands: Mapping[str, Operand], attrs: Mapping[str, Attr]) -> Op:
    """Makes an op with operands and attributes in the row's order and defaults filled in.

    Raises PlanError for unknown or missing names, and for operands that break the row's contract.
    """
    row = row_of(name)
    values = {**row.defaults, **attrs}
    unknown = sorted({*operands} - {*row.roles} | {*values} - {*row.attr_names})
    missing = sorted(row.required - {*operands} | {*row.attr_names} - {*values})
    if unknown or missing:
        raise PlanError(f"{name}: unknown {unknown}, missing {missing}; its row is {row}", op=name)
    ordered = tuple((role, operands[role]) for role in row.roles if role in operands)
    return check_op(Op(name, ordered, tuple((a, values[a]) for a in row.attr_names)))


def row_of(name: str) -> OpRow:
    """The row of an op of models or of training plans. Raises PlanError for an unknown op."""
    row = OPS.get(name) or TRAINING_OPS.get(name)
    if row is None:
        raise PlanError(f"unknown op {name!r}; known: {', '.join(sorted(OPS))}", op=name)
    return row


def check_op(op: Op) -> Op:
    """Returns the op. Raises PlanError if it breaks its row's contract."""
    row = row_of(op.name)
    names = tuple(role for role, _ in op.operands)
    ordered = tuple(role for role in row.roles if role in row.required or op.has(role))
    if names != ordered or tuple(name for name, _ in op.attrs) != row.attr_names:
        raise PlanError(f"{op.name} has operands {names}, expected {row.roles} {row.attr_names}", op=op.name)
    if not (_kinds_fit(op, row) and row.rule(op)):
        raise PlanError(f"{op.name}: shapes do not fit: {op.operands}; meaning: {row.meaning}", op=op.name)
    for role, operand in op.operands:
        if type(operand) is View and operand.buffer.dtype != F32:
            _check_dtype(op.name, role, operand, row)
    return op


def _check_dtype(name: str, role: str, view: View, row: OpRow) -> None:
    """Checks a dtype other than float32. Raises PlanError if it is unknown or the role is exact."""
    element_bytes(view.dtype)
    if role in row.exact:
        raise PlanError(f"{name}: {role} is {view}, but the op requires {F32} there", op=name)


def _kinds_fit(op: Op, row: OpRow) -> bool:
    return all(type(operand).__name__ == row.kind(role) for role, operand in op.operands)


def op_flops(op: Op, counts: Counts) -> int:
    """Floating-point operations of an op in a step with these counts."""
    return row_of(op.name).flops(op, counts)


def op_bytes(op: Op, plan: Plan, counts: Counts) -> int:
    """The least bytes that an op moves: views, state and weights once each, one row per token of a table."""
    views = sum(counts.rows[v.rows] * v.row_bytes for _, v in op.views())
    weights = ((role, o) for role, o in op.operands if isinstance(o, Weight))
    return views + sum(_weight_bytes(op, *w, counts) for w in weights) + _state_bytes(op, plan, counts)


def _weight_bytes(op: Op, role: str, weight: Weight, counts: Counts) -> int:
    """Bytes of a weight that an op reads: one row per token of a table, the used experts of a stack."""
    if op.name in TABLE_OPS or role in TABLE_ROLES:
        return weight.n_bytes // weight.rows * min(counts.rows["T"], weight.rows)
    if op.name in EXPERT_OPS:
        n_experts = weight.shape[0]
        n_slots = op.view("ids").cols * counts.rows[op.view("ids").rows]
        return weight.n_bytes // n_experts * min(n_slots, n_experts)
    return weight.n_bytes


def _state_bytes(op: Op, plan: Plan, counts: Counts) -> int:
    if op.name in SLOT_TENSORS:  # 4 bytes read and 4 bytes written per float and sequence
        return 8 * counts.rows["S"] * dict(plan.state(op.state("state").group).tensors)[SLOT_TENSORS[op.name]]
    if op.name in KV_OPS:
        written = [role for role in ("state", "tail") if op.has(role)]
        return counts.rows["T"] * sum(_row_bytes(op, plan, role) for role in written)
    if op.name in LOW_RANK:  # at most the slot of each row, not the ranks that are unused
        return 2 * op_flops(op, counts)
    return _read_bytes(op, plan, counts) if op.name == "attention" else 0


def _read_bytes(op: Op, plan: Plan, counts: Counts) -> int:
    """Bytes of keys and values that attention reads; with two tiers, `TAIL` rows per row from the tail."""
    n_keys = attended(op, counts)
    if not op.has("tail"):
        return n_keys * _row_bytes(op, plan, "state")
    recent = min(n_keys, counts.rows["T"] * TAIL)
    return recent * _row_bytes(op, plan, "tail") + (n_keys - recent) * _row_bytes(op, plan, "state")


def _row_bytes(op: Op, plan: Plan, role: str) -> int:
    return plan.state(op.state(role).group).row_bytes
