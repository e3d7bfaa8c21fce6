"""The forward ops of a training plan: whole sequences in a step, no KV cache, exact products, low-rank terms.

Each buffer is written once: an op in place works on a copy, so that the backward ops find every value. `tidy`
removes copies whose original nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from camelid.errors import PlanError
from camelid.plan.op_rows_training import TRAINED
from camelid.plan.ops import make_op, row_of
from camelid.plan.plan import Attr, Buffer, Op, Operand, StateRef, View, whole
from camelid.plan.vjp import VJP

DROPPED = frozenset({"tables", "copy", "sample", "candidates"})
LAYERS = "blk."  # names of the weights of layers
MOST_RANK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The low-rank term of a weight, by its GGUF name: A [rank, n_in] from float `at` of the trained values
    on, then B transposed [rank, n_out]."""

    name: str
    at: int
    n_in: int
    n_out: int
    rank: int

    @property
    def b_at(self) -> int:
        return self.at + self.rank * self.n_in

    @property
    def end(self) -> int:
        return self.b_at + self.rank * self.n_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The low-rank terms that training changes, by the name of a plan's weight: y += scale * B @ (A @ x)."""

    of: Mapping[str, Term]
    scale: float

    @property
    def n_values(self) -> int:
        return max((term.end for term in self.of.values()), default=0)

    @property
    def n_sums(self) -> int:
        """Floats of the state `fisher`."""
        return sum(term.n_out + term.n_in for term in self.of.values())

    @property
    def measured(self) -> dict[str, tuple[int, int]]:
        """The first floats of each weight's sums in the state `fisher`: over columns, and over rows."""
        of = self.of.values()
        rows_at = accumulate((term.n_out for term in of), initial=0)
        cols_at = accumulate((term.n_in for term in of), initial=0)
        return dict(zip(self.of, zip(rows_at, cols_at, strict=True), strict=False))


def terms_of(
    ops: Sequence[Op], *, rank: int, scale: float, is_target: Callable[[str], bool] = lambda name: True
) -> Terms:
    """Terms of rank `rank` for the linear maps of layers whose weight's name is a target.

    Raises PlanError for a rank out of range, or if no linear map is a target.
    """
    if not 1 <= rank <= MOST_RANK:
        raise PlanError(f"rank is {rank}, expected 1 to {MOST_RANK}", op="linear")
    found: dict[str, Term] = {}
    at = 0
    for op in ops:
        name = op.weight("weight").name if op.name == "linear" else ""
        if name.startswith(LAYERS) and name not in found and is_target(name):
            n_out, n_in = op.weight("weight").shape
            found[name] = Term(name=f"{name}.weight", at=at, n_in=n_in, n_out=n_out, rank=rank)
            at = found[name].end
    if not found:
        names = sorted({w.name for op in ops if op.name == "linear" for w in op.weights()})
        raise PlanError(f"no linear map of a layer is a target; the plan has {', '.join(names)}", op="linear")
    return Terms(of=found, scale=scale)


@dataclass(slots=True)
class Forward:
    """Forward ops under construction. `latest` is the buffer that holds a buffer's value now; `before` the
    one that held it before an op in place."""

    terms: Terms | None
    acts: Mapping[str, View]  # by row symbol: 1 in rows in which the adapter acts, else 0
    kv: Mapping[StateRef, Op]  # the kv_write of each layer's state
    prefix: str = ""
    ops: list[Op] = field(default_factory=list[Op])
    latest: dict[Buffer, Buffer] = field(default_factory=dict[Buffer, Buffer])
    before: dict[Buffer, Buffer] = field(default_factory=dict[Buffer, Buffer])
    n_versions: dict[str, int] = field(default_factory=dict[str, int])

    def add_op(self, name: str, operands: Mapping[str, Operand], attrs: Mapping[str, Attr]) -> None:
        """Adds an op with the latest buffers in place of those it reads, and new ones for those it writes."""
        row, placed = row_of(name), dict(operands)
        for role in (*row.reads, *row.updates):
            if role.rstrip("?") in operands:
                placed[role.rstrip("?")] = self.value(_whole_view(name, operands[role.rstrip("?")]))
        for role in row.updates:
            placed[role] = self._copy(_whole_view(name, operands[role]))
        for role in row.writes:
            placed[role] = self._written(_whole_view(name, operands[role]))
        self.ops.append(make_op(name, placed, attrs))

    def value(self, view: View) -> View:
        """The latest value of a buffer; an input of the plan has its first value from the start."""
        if view.buffer not in self.latest:
            self.latest[view.buffer] = view.buffer
            self.n_versions[view.buffer.name] = 1
        return whole(self.latest[view.buffer])

    def _written(self, view: View) -> View:
        self.latest[view.buffer] = self._new(view.buffer)
        return whole(self.latest[view.buffer])

    def _copy(self, view: View) -> View:
        old = self.value(view)
        new = self._written(view)
        self.before[new.buffer] = old.buffer
        self.ops.append(make_op("copy_rows", {"y": new, "x": old}, {}))
        return new

    def _new(self, buffer: Buffer) -> Buffer:
        n = self.n_versions[buffer.name] = self.n_versions.get(buffer.name, 0) + 1
        name = f"{self.prefix}{buffer.name}" + (f"'{n}" if n > 1 else "")
        return replace(buffer, name=name)


def _whole_view(op: str, operand: Operand) -> View:
    if not isinstance(operand, View) or operand.cols != operand.buffer.cols:
        raise PlanError(f"{op}: {operand} is a part of a buffer, which cannot be differentiated", op=op)
    return operand


def add_forward(f: Forward, ops: Sequence[Op]) -> None:
    """Adds the training form of a model's ops. Raises PlanError for an op without a gradient."""
    for op in ops:
        if op.name not in DROPPED:
            TRANSLATIONS.get(op.name, _as_it_is)(f, op)


def writes_of_kv(ops: Sequence[Op]) -> dict[StateRef, Op]:
    """The kv_write of each layer's state."""
    return {op.state("state"): op for op in ops if op.name == "kv_write"}


def _as_it_is(f: Forward, op: Op) -> None:
    if op.name not in VJP:
        known = ", ".join(sorted({*VJP, *TRANSLATIONS}))
        raise PlanError(
            f"the op {op.name!r} has no gradient, so a model with it cannot be trained here; ops with one: "
            f"{known}. Train the adapter elsewhere and load it, or choose another model",
            op=op.name,
        )
    f.add_op(op.name, dict(op.operands), dict(op.attrs))


def _skip(f: Forward, op: Op) -> None:
    """Keys and values of a sequence are rows of the step; attention reads them there."""


def _linear(f: Forward, op: Op) -> None:
    f.add_op("linear_exact", dict(op.operands), {})
    term = f.terms.of.get(op.weight("weight").name) if f.terms else None
    if not f.terms or term is None:
        return
    x, y = op.view("x"), op.view("y")
    u = whole(Buffer(f"{y.buffer.name}.low", y.rows, term.rank))
    state = {TRAINED: StateRef(TRAINED)}
    shrunk = {"u": u, "x": x, "acts": f.acts[y.rows], **state}
    f.add_op("shrink", shrunk, {"at": term.at, "scale": f.terms.scale})
    f.add_op("expand", {"y": y, "u": u, **state}, {"at": term.b_at})


def _attention(f: Forward, op: Op) -> None:
    lacking = [role for role in ("sinks", "bias", "tail") if op.has(role)]
    write = f.kv.get(op.state("state"))
    if lacking or op.word("mask") != "causal" or write is None or not write.has("v"):
        what = ", ".join(lacking) or f"the mask {op.word('mask')!r} or values within keys"
        raise PlanError(f"attention with {what} has no gradient; choose another model", op=op.name)
    kv = {"k": write.view("k"), "v": write.view("v")}
    _attend(f, op, kv, {"window": op.integer("window"), "softcap": op.number("softcap")})


def _attend_rows(f: Forward, op: Op) -> None:
    if op.word("mask") != "causal" or op.has("bias"):
        raise PlanError(
            f"attend_rows with the mask {op.word('mask')!r} or a bias has no gradient; choose another model",
            op=op.name,
        )
    _attend(f, op, {"k": op.view("k"), "v": op.view("v")}, {})


def _attend(f: Forward, op: Op, kv: Mapping[str, View], attrs: Mapping[str, Attr]) -> None:
    n_heads, y = op.integer("n_heads"), op.view("y")
    stats = whole(Buffer(f"{y.buffer.name}.stats", y.rows, 2 * n_heads))
    heads: dict[str, Attr] = {"n_heads": n_heads, "n_kv_heads": op.integer("n_kv_heads")}
    operands = {"y": y, "stats": stats, "q": op.view("q"), **kv}
    f.add_op("attend_causal", operands, {**heads, "scale": op.number("scale"), **attrs})


TRANSLATIONS: dict[str, Callable[[Forward, Op], None]] = {
    "linear": _linear,
    "attention": _attention,
    "attend_rows": _attend_rows,
    "kv_write": _skip,
}


def used_by(op: Op) -> Iterator[Buffer]:
    """Buffers that an op reads or updates."""
    row = row_of(op.name)
    yield from (op.view(r.rstrip("?")).buffer for r in (*row.reads, *row.updates) if op.has(r.rstrip("?")))


def made_by(op: Op) -> Iterator[Buffer]:
    """Buffers that an op writes or updates."""
    row = row_of(op.name)
    yield from (op.view(role).buffer for role in (*row.writes, *row.updates))
