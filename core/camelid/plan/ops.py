"""The op set: one row per op with its operands, shape rule, cost and meaning.

A row is the whole contract between a model and the backends. `writes`, `reads` and `updates` name views
(an update is written in place), `weights` and `states` the other operands. The meaning in NumPy, executable,
is `backends/reference/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from camelid.errors import PlanError
from camelid.plan.plan import Op, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one step really holds: rows by symbol, and keys summed over the rows that attend."""

    rows: Mapping[str, int]
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """The contract of one op."""

    name: str
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    attrs: tuple[str, ...] = ()
    rule: Callable[[Op], bool] = lambda op: True
    flops: Callable[[Op, Counts], int] = lambda op, counts: 0
    meaning: str

    @property
    def roles(self) -> tuple[str, ...]:
        return (*self.writes, *self.updates, *self.reads, *self.weights, *self.states)


def _elementwise(role: str, each: int) -> Callable[[Op, Counts], int]:
    return lambda op, counts: each * counts.rows[op.view(role).rows] * op.view(role).cols


def _matrix(role: str, out: str) -> Callable[[Op, Counts], int]:
    return lambda op, counts: 2 * counts.rows[op.view(out).rows] * op.weight(role).rows * op.weight(role).cols


def _attention_flops(op: Op, counts: Counts) -> int:
    return 4 * op.view("q").cols * counts.keys


def _rope_rule(op: Op) -> bool:
    head_dim, dim = op.integer("head_dim"), op.integer("dim")
    return op.view("x").cols % head_dim == 0 and 0 < dim <= head_dim and op.weight("fine").cols == dim


def _linear_rule(op: Op) -> bool:
    w = op.weight("weight")
    return (op.view("y").cols, op.view("x").cols) == w.shape


def _glu_rule(op: Op) -> bool:
    w = op.weight("weight")
    return w.shape == (2 * op.view("y").cols, op.view("x").cols)


def _same(*roles: str) -> Callable[[Op], bool]:
    return lambda op: len({(op.view(r).rows, op.view(r).cols) for r in roles}) == 1


def _norm_rule(op: Op) -> bool:
    return _same("x", "y")(op) and op.weight("gain").cols == op.view("x").cols


def _attention_rule(op: Op) -> bool:
    return _same("q", "y")(op) and op.integer("n_heads") % op.integer("n_kv_heads") == 0


OPS: dict[str, OpRow] = {
    row.name: row
    for row in (
        OpRow(
            name="tables",
            states=("state",),
            meaning="table[table_row, index] = unit, for each of the step's updates of this group",
        ),
        OpRow(
            name="copy",
            states=("state",),
            meaning="pool[destination][:rows] = pool[source][:rows], for each of the step's copies",
        ),
        OpRow(
            name="embed",
            writes=("y",),
            weights=("weight",),
            states=("tokens",),
            rule=lambda op: op.weight("weight").cols == op.view("y").cols,
            meaning="y = weight[token]; the token is the row's id, or ring[sequence, state_row] "
            "if sampled on the device",
        ),
        OpRow(
            name="norm",
            writes=("y",),
            reads=("x",),
            weights=("gain",),
            attrs=("eps",),
            rule=_norm_rule,
            flops=_elementwise("x", 4),
            meaning="y = x * gain / sqrt(mean(x * x) + eps)",
        ),
        OpRow(
            name="add",
            updates=("x",),
            reads=("r",),
            rule=_same("x", "r"),
            flops=_elementwise("x", 1),
            meaning="x = x + r",
        ),
        OpRow(
            name="add_norm",
            updates=("x",),
            writes=("y",),
            reads=("r",),
            weights=("gain",),
            attrs=("eps",),
            rule=_norm_rule,
            flops=_elementwise("x", 5),
            meaning="x = x + r; y = norm(x, gain)",
        ),
        OpRow(
            name="linear",
            writes=("y",),
            reads=("x",),
            weights=("weight",),
            rule=_linear_rule,
            flops=_matrix("weight", "y"),
            meaning="y = weight @ x",
        ),
        OpRow(
            name="rope",
            updates=("x",),
            weights=("fine", "coarse"),
            attrs=("head_dim", "dim", "style"),
            rule=_rope_rule,
            flops=_elementwise("x", 3),
            meaning="pairs of each head turn by position * frequency; tables hold cos and sin of "
            "position % n * frequency (fine) and position // n * n * frequency (coarse)",
        ),
        OpRow(
            name="kv_write",
            reads=("k", "v"),
            states=("state",),
            rule=_same("k", "v"),
            meaning="pool[table[state_row // n], state_row % n] = k, v",
        ),
        OpRow(
            name="attention",
            writes=("y",),
            reads=("q",),
            states=("state",),
            attrs=("n_heads", "n_kv_heads", "head_dim", "scale", "mask"),
            rule=_attention_rule,
            flops=_attention_flops,
            meaning="y = softmax(scale * q @ K.T) @ V over the sequence's keys first_kept .. state_row",
        ),
        OpRow(
            name="glu",
            writes=("y",),
            reads=("gate", "up"),
            attrs=("act",),
            rule=_same("y", "gate", "up"),
            flops=_elementwise("y", 5),
            meaning="y = act(gate) * up",
        ),
        OpRow(
            name="linear_glu",
            writes=("y",),
            reads=("x",),
            weights=("weight",),
            attrs=("act",),
            rule=_glu_rule,
            flops=_matrix("weight", "y"),
            meaning="gate, up = split(weight @ x); y = act(gate) * up",
        ),
        OpRow(
            name="gather_rows",
            writes=("y",),
            reads=("x",),
            rule=lambda op: op.view("y").cols == op.view("x").cols,
            meaning="y[o] = x[outputs[o].row]",
        ),
        OpRow(
            name="sample",
            reads=("logits",),
            states=("tokens",),
            flops=_elementwise("logits", 4),
            meaning="id = argmax(logits / temperature + gumbel); ring[sequence, position] = id; "
            "result = id, status, logit, log-sum-exp",
        ),
    )
}


def check_op(op: Op) -> Op:
    """The op itself, or PlanError if it breaks its row's contract."""
    row = OPS.get(op.name)
    if row is None:
        raise PlanError(f"unknown op {op.name!r}; known: {', '.join(sorted(OPS))}", op=op.name)
    names = tuple(role for role, _ in op.operands)
    if names != row.roles or tuple(name for name, _ in op.attrs) != row.attrs:
        raise PlanError(f"{op.name} has operands {names}, its row says {row.roles} {row.attrs}", op=op.name)
    if not (_kinds_fit(op, row) and row.rule(op)):
        raise PlanError(f"{op.name}: shapes do not fit: {op.operands}; meaning: {row.meaning}", op=op.name)
    return op


def _kinds_fit(op: Op, row: OpRow) -> bool:
    kinds = dict.fromkeys(row.weights, "Weight") | dict.fromkeys(row.states, "StateRef")
    return all(type(operand).__name__ == kinds.get(role, "View") for role, operand in op.operands)


def op_flops(op: Op, counts: Counts) -> int:
    """Floating-point operations of the op in a step with these counts."""
    return OPS[op.name].flops(op, counts)


def op_bytes(op: Op, plan: Plan, counts: Counts) -> int:
    """Bytes that the op must move at least: views and state once, weights once (a row each of tables)."""
    views = sum(4 * counts.rows[v.rows] * v.cols for _, v in op.views())
    weights = sum(w.n_bytes for w in op.weights())
    if op.name in {"embed", "rope"}:
        weights = sum(w.n_bytes // w.rows * min(counts.rows["T"], w.rows) for w in op.weights())
    return views + weights + _state_bytes(op, plan, counts)


def _state_bytes(op: Op, plan: Plan, counts: Counts) -> int:
    per_row = {"kv_write": counts.rows["T"], "attention": counts.keys}
    if op.name not in per_row:
        return 0
    return plan.state(op.state("state").group).row_bytes * per_row[op.name]
