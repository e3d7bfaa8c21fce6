"""The row of the op table (`OpRow`), and the shape rules and costs that rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from camelid.plan.plan import Attr, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Actual counts of one step: rows by symbol (T, S, O), and keys summed over the attending rows."""

    rows: Mapping[str, int]
    keys: int


Rule = Callable[[Op], bool]
Cost = Callable[[Op, Counts], int]


@dataclass(frozen=True, kw_only=True)
class OpRow:
    """The contract of one op.

    - `writes`, `reads` and `updates` name views; an update is written in place. `weights` and `states` name
      the other operands. A trailing `?` marks an optional operand.
    - `attrs` are required attributes, `defaults` optional attributes with their values.
    - `rule` is the shape rule, `flops` the cost, `meaning` the maths.
    - `row_wise`: each row written depends on that row of the other views alone, not on its index in the step,
      its position, state or other rows. Such an op can run for output rows only (`outputs.py`).
    - `exact` names views that are float32 in every plan: expert ids and logits. Other views have any dtype:
      the op reads them exactly, and rounds each element that it writes to the dtype of the view.
    """

    name: str
    writes: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    attrs: tuple[str, ...] = ()
    defaults: Mapping[str, Attr] = field(default_factory=dict[str, Attr])
    rule: Rule = lambda op: True
    row_wise: bool = False
    exact: tuple[str, ...] = ()
    flops: Cost = lambda op, counts: 0
    meaning: str

    @property
    def _marked(self) -> tuple[str, ...]:
        return (*self.writes, *self.updates, *self.reads, *self.weights, *self.states)

    @cached_property  # cached, as below: building a plan reads rows thousands of times
    def roles(self) -> tuple[str, ...]:
        """Roles of all operands, in order."""
        return tuple(role.rstrip("?") for role in self._marked)

    @cached_property
    def required(self) -> frozenset[str]:
        return frozenset(role for role in self._marked if not role.endswith("?"))

    @cached_property
    def attr_names(self) -> tuple[str, ...]:
        return (*self.attrs, *self.defaults)

    def kind(self, role: str) -> str:
        """Class name of the operand of this role: View, Weight or StateRef."""
        return self._kinds.get(role, "View")

    @cached_property
    def _kinds(self) -> Mapping[str, str]:
        kinds = {"Weight": self.weights, "StateRef": self.states}
        return {role.rstrip("?"): kind for kind, roles in kinds.items() for role in roles}


def elementwise(role: str, each: int) -> Cost:
    """Cost of `each` operations per element of the view."""
    return lambda op, counts: each * counts.rows[op.view(role).rows] * op.view(role).cols


def matrix(role: str, out: str) -> Cost:
    """Cost of a matrix product: one multiply-add per weight element and row of `out`."""
    return lambda op, counts: 2 * counts.rows[op.view(out).rows] * op.weight(role).rows * op.weight(role).cols


def same(*roles: str) -> Rule:
    """Rule that these views have equal shapes."""
    return lambda op: len({(op.view(r).rows, op.view(r).cols) for r in roles}) == 1


def fits(op: Op, role: str, *shape: int) -> bool:
    """True if the weight of this role is absent or has this shape."""
    return not op.has(role) or op.weight(role).shape == shape
