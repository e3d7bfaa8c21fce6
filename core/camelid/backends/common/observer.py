"""A backend that observes another: the inputs of all linear maps of a step, as squares summed by column.

The inputs become outputs of the plan's last stage, which keeps them in memory and readable; no kernel
changes, and a run without an observer costs nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Backend, Capabilities, Program, Result, Ticket
from camelid.plan.ops import OPS, make_op
from camelid.plan.plan import Buffer, Op, Plan, View
from camelid.plan.weights import Weight, inline_f32

F64 = npt.NDArray[np.float64]
LINEAR = ("linear", "linear_glu", "linear_experts", "linear_heads")


@dataclass(slots=True)
class ColumnSums:
    """Sums of squares [matrices, cols], and the number of rows of each matrix [matrices]."""

    squares: F64
    counts: F64

    @classmethod
    def of(cls, matrices: int, cols: int) -> ColumnSums:
        """Sums of no rows."""
        return cls(np.zeros((matrices, cols)), np.zeros(matrices))

    def add(self, x: F64, which: npt.NDArray[Any]) -> None:  # [rows, cols], [rows]
        """Adds rows, each to its matrix."""
        np.add.at(self.counts, which, 1)
        for matrix in np.unique(which):
            chosen = x[which == matrix]
            self.squares[matrix] += np.einsum("tc,tc->c", chosen, chosen)

    def arrays(self) -> tuple[array[float], array[float]]:
        """Both in float32, flat."""
        return array("f", self.squares.ravel().tolist()), array("f", self.counts.tolist())


@dataclass(slots=True)
class Observer:
    """The observed backend; `names_of` gives a weight's names in the sums, none to leave it out."""

    inner: Backend
    names_of: Callable[[Weight], Sequence[str]]
    sums: dict[str, ColumnSums] = field(default_factory=dict[str, ColumnSums])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def as_backend(self) -> Backend:
        """Itself: the calls that it does not change are the inner backend's."""
        return cast(Backend, self)

    def capabilities(self) -> Capabilities:
        """Without fusions, which have no input of a linear map; one step in flight, whose inputs are read."""
        return replace(self.inner.capabilities(), fused=frozenset(), max_in_flight=1)

    async def compile(self, plan: Plan) -> Program:
        """Compiles the plan with the inputs of its linear maps as outputs."""
        *before, last = plan.stages
        ops = tuple(_with_copies(last.ops))
        buffers = {view.buffer.name: view.buffer for op in ops for view in _observed(op)}
        outputs = {buffer.name: buffer for buffer in (*last.outputs, *buffers.values())}
        stage = replace(last, ops=ops, outputs=tuple(outputs.values()))
        return await self.inner.compile(replace(plan, stages=(*before, stage)))

    async def read(self, ticket: Ticket) -> Result:
        """The step's results; its inputs of linear maps are added to the sums."""
        result = await self.inner.read(ticket)
        data = await self.inner.read_boundary(ticket)
        added = set[tuple[str, str]]()  # parts of a tensor, such as query and key of attn_qkv, share an input
        for op in ticket.program.plan.stages[-1].ops:
            if op.name in LINEAR:
                names = {
                    (name, op.view("x").buffer.name) for name in self.names_of(op.weight("weight"))
                } - added
                added |= names
                self._add(op, data, [name for name, _ in names])
        return result

    def _add(self, op: Op, data: Mapping[str, bytes], names: Sequence[str]) -> None:
        weight = op.weight("weight")
        matrices = weight.shape[0] if len(weight.shape) > 2 else 1
        for name in names:
            sums = self.sums.setdefault(name, ColumnSums.of(matrices, weight.cols))
            sums.add(*SHAPES[op.name](_rows(op.view("x"), data), op, data, weight))


def _observed(op: Op) -> Iterator[View]:
    """Views that must be read for an op."""
    if op.name in LINEAR:
        yield op.view("x")
        if op.name == "linear_experts":
            yield op.view("ids")


def _with_copies(ops: Sequence[Op]) -> Iterator[Op]:
    """The ops, in which a linear map reads a copy of an input that a later op overwrites."""
    last = {name: i for i, op in enumerate(ops) for name in _changed(op)}
    for i, op in enumerate(ops):
        view = op.view("x") if op.name in LINEAR else None
        if view is None or last.get(view.buffer.name, -1) <= i:
            yield op
            continue
        copy = View(replace(view.buffer, name=f"observed.{i}", cols=view.cols), view.cols)
        ones = inline_f32(f"observed.{view.cols}", [1.0] * view.cols, (view.cols,))
        yield make_op("affine", {"y": copy, "x": view, "weight": ones}, {})
        yield replace(op, operands=tuple((r, copy if r == "x" else o) for r, o in op.operands))


def _changed(op: Op) -> set[str]:
    """Names of the buffers that an op writes."""
    row = OPS[op.name]
    roles = (name.rstrip("?") for name in (*row.writes, *row.updates))
    return {op.view(name).buffer.name for name in roles if op.has(name)}


def _rows(view: View, data: Mapping[str, bytes]) -> F64:  # [rows, cols]
    buffer: Buffer = view.buffer
    values = np.frombuffer(data[buffer.name], np.float32).reshape(-1, buffer.cols)
    return values[:, view.offset : view.offset + view.cols].astype(np.float64)


def _plain(x: F64, *_: object) -> tuple[F64, npt.NDArray[Any]]:
    return x, np.zeros(len(x), np.int64)


def _of_experts(x: F64, op: Op, data: Mapping[str, bytes], weight: Weight) -> tuple[F64, npt.NDArray[Any]]:
    """A row for each expert that a token uses."""
    ids = _rows(op.view("ids"), data).astype(np.int64)  # [T, U]
    slots = np.broadcast_to(x.reshape(len(ids), -1, weight.cols), (*ids.shape, weight.cols))
    return slots.reshape(-1, weight.cols), ids.ravel()


def _of_heads(x: F64, _op: Op, _data: object, weight: Weight) -> tuple[F64, npt.NDArray[Any]]:
    """A row for each head."""
    heads = x.reshape(-1, weight.shape[0], weight.cols)
    return heads.reshape(-1, weight.cols), np.tile(np.arange(weight.shape[0]), len(heads))


SHAPES: Mapping[str, Callable[..., tuple[F64, npt.NDArray[Any]]]] = {
    "linear": _plain,
    "linear_glu": _plain,
    "linear_experts": _of_experts,
    "linear_heads": _of_heads,
}
