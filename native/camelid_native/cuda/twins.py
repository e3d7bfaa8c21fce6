"""Rounded twins: 8-bit codes of a view, written by the op that writes the view, for products that round it.

A product whose input has a twin needs no launch that rounds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from camelid.plan.ops import OPS
from camelid.plan.plan import Buffer, Op, Plan, View
from camelid_native.cuda.types import BLOCK, EXACT_TYPES, FACTOR_BYTES

MAKERS = {
    "linear_add_norm": "z", "add_norm": "y", "linear_glu": "y", "norm_linear_glu": "y", "attention": "y",
    "linear_experts_glu": "y", "defer_norm": "z",
}  # fmt: skip
READERS = frozenset({
    "linear", "norm_linear", "linear_glu", "norm_linear_glu", "linear_add", "linear_add_norm", "qkv",
    "norm_qkv", "linear_experts",
    "linear_experts_glu", "linear_experts_sum",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Twin:
    """The twin of a view: the op that makes it, the products that read it, its columns and its slot."""

    maker: int
    readers: tuple[int, ...]
    cols: int
    slot: int

    def n_bytes(self, rows: int) -> int:
        return rows * self.cols + rows * self.cols // BLOCK * FACTOR_BYTES


def twins_of(ops: Sequence[Op]) -> list[Twin]:
    """The twins of a plan's ops. A slot is free again behind the last reader of its twin."""
    found: list[Twin] = []
    for maker, readers in _readers(ops).items():
        busy = {twin.slot for twin in found if twin.readers[-1] >= maker}
        slot = next(slot for slot in range(len(busy) + 1) if slot not in busy)
        found.append(Twin(maker, tuple(readers), ops[maker].view("y").cols, slot))
    return found


def slot_bytes(twins: Sequence[Twin], ops: Sequence[Op], plan: Plan) -> Mapping[int, int]:
    """Bytes of each slot: of its largest twin."""
    sizes: dict[int, int] = {}
    for twin in twins:
        rows = plan.rows[ops[twin.maker].view(MAKERS[ops[twin.maker].name]).rows]
        sizes[twin.slot] = max(sizes.get(twin.slot, 0), twin.n_bytes(rows))
    return sizes


def _can_round(op: Op) -> bool:
    """True if a block of the op's kernel writes whole blocks of columns."""
    if op.name not in MAKERS:
        return False
    return op.view("y").cols // _n_parts(op) % BLOCK == 0


def _n_parts(op: Op) -> int:
    """Parts of a row that blocks write apart: heads, or slots of experts."""
    if op.name == "linear_experts_glu":
        return op.view("ids").cols
    return op.integer("n_heads") if op.name == "attention" else 1


def _readers(ops: Sequence[Op]) -> dict[int, list[int]]:
    """The products that round a view by its maker: those before the next op that writes the view's buffer."""
    makers: dict[Buffer, tuple[int, View]] = {}
    readers: dict[int, list[int]] = {}
    for number, op in enumerate(ops):
        if op.name in READERS and op.weight("weight").type not in EXACT_TYPES:
            maker, view = makers.get(op.view("x").buffer, (number, None))
            if view == op.view("x"):
                readers.setdefault(maker, []).append(number)
        for buffer in _written(op):
            makers.pop(buffer, None)
        if _can_round(op):
            view = op.view(MAKERS[op.name])
            makers[view.buffer] = number, view
    return dict(sorted(readers.items()))


def _written(op: Op) -> list[Buffer]:
    row = OPS[op.name]
    return [op.view(role).buffer for role in (*row.writes, *row.updates) if op.has(role)]
