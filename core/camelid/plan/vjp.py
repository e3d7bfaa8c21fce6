"""Vector-Jacobian products: for each op of a training plan the ops that carry a gradient back through it.

An op of `VJP` takes the gradient of what the op writes and adds to the gradients of what it reads; weights of
the model are frozen. An op without a row has no gradient: it stops it (`embed`), or the plan is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from camelid.plan.op_rows_training import FISHER, TRAINED
from camelid.plan.ops import make_op
from camelid.plan.plan import Attr, Buffer, Op, Operand, StateRef, View, whole

GRADIENT = "d."  # a gradient's name begins with it, then follows the buffer's
STATE = StateRef(TRAINED)


@dataclass(slots=True)
class Gradients:
    """Backward ops under construction, and the gradients that have a value already.

    `before` has the buffer that an op in place read, by the buffer that has its result. `measured` has the
    first floats of a weight's row and column sums in the state `fisher`, by the weight's name.
    """

    before: Mapping[Buffer, Buffer]
    measured: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    ops: list[Op] = field(default_factory=list[Op])
    held: dict[Buffer, Buffer] = field(default_factory=dict[Buffer, Buffer])

    def add_op(self, name: str, operands: Mapping[str, Operand | None], **attrs: Attr) -> None:
        present = {role: operand for role, operand in operands.items() if operand is not None}
        self.ops.append(make_op(name, present, attrs))

    def of(self, view: View) -> View | None:
        """The gradient of a view; None if the loss does not depend on it."""
        return whole(self.held[view.buffer]) if view.buffer in self.held else None

    def into(self, view: View) -> tuple[View, int]:
        """The gradient of a view to write to, and 1 if it has a value to add to, else 0."""
        adds = view.buffer in self.held
        if not adds:
            self.held[view.buffer] = replace(view.buffer, name=GRADIENT + view.buffer.name)
        return whole(self.held[view.buffer]), int(adds)

    def new(self, view: View) -> View:
        """The gradient of a view that has none yet, for an op that overwrites it; else space to add from."""
        if view.buffer not in self.held:
            return self.into(view)[0]
        name = f"{GRADIENT}{view.buffer.name}+{len(self.ops)}"
        return whole(replace(view.buffer, name=name))

    def add(self, view: View, part: View, scale: float = 1.0) -> None:
        """Adds `scale * part` to the gradient of a view, unless `part` is its gradient itself."""
        if self.of(view) == part:
            return
        gradient, adds = self.into(view)
        if adds or scale != 1.0:
            self.add_op("accumulate", {"y": gradient, "x": part}, scale=scale, adds=adds)
        else:
            self.add_op("copy_rows", {"y": gradient, "x": part})

    def value_before(self, view: View) -> View:
        """What an op in place read there."""
        return whole(self.before[view.buffer])


def _attrs(op: Op, *without: str) -> dict[str, Attr]:
    return {name: value for name, value in op.attrs if name not in without}


def _copy_rows(op: Op, g: Gradients) -> None:
    if dy := g.of(op.view("y")):
        g.add(op.view("x"), dy)


def _linear(op: Op, g: Gradients) -> None:
    if dy := g.of(op.view("y")):
        dx, adds = g.into(op.view("x"))
        g.add_op("linear_back", {"dx": dx, "dy": dy, "weight": op.weight("weight")}, adds=adds)
        if places := g.measured.get(op.weight("weight").name):
            operands = {"x": op.view("x"), "dy": dy, FISHER: StateRef(FISHER)}
            g.add_op("measure", operands, rows_at=places[0], cols_at=places[1])


def _acts(op: Op) -> dict[str, Operand | None]:
    return {"acts": op.view("acts") if op.has("acts") else None, TRAINED: STATE}


def _shrink(op: Op, g: Gradients) -> None:
    if du := g.of(op.view("u")):
        shared = _attrs(op)
        g.add_op("outer", {"u": du, "z": op.view("x"), **_acts(op)}, **shared)
        dx, adds = g.into(op.view("x"))
        g.add_op("expand", {"y": dx, "u": du, **_acts(op)}, **shared, adds=adds)


def _expand(op: Op, g: Gradients) -> None:
    if dy := g.of(op.view("y")):
        shared, u = _attrs(op, "adds"), op.view("u")
        g.add_op("outer", {"u": u, "z": dy, **_acts(op)}, **shared)
        du = g.new(u)
        g.add_op("shrink", {"u": du, "x": dy, **_acts(op)}, **shared)
        g.add(u, du)


def _norm(op: Op, g: Gradients) -> None:
    if dy := g.of(op.view("y")):
        dx, adds = g.into(op.view("x"))
        gain = op.weight("gain") if op.has("gain") else None
        g.add_op("norm_back", {"dx": dx, "x": op.view("x"), "dy": dy, "gain": gain}, **_attrs(op), adds=adds)


def _add(op: Op, g: Gradients) -> None:
    if dx := g.of(op.view("x")):
        g.add(op.view("r"), dx, op.number("scale"))


def _mul(op: Op, g: Gradients) -> None:
    if dx := g.of(op.view("x")):
        x, r = g.value_before(op.view("x")), op.view("r")
        dr = g.new(r)
        g.add_op("mul_back", {"dx": dx, "dr": dr, "x": x, "r": r})
        g.add(r, dr)


def _linear_in_place(op: Op, g: Gradients) -> None:
    """An op in place that multiplies by a number, which its gradient is multiplied by, too."""
    if dx := g.of(op.view("x")):
        g.add_op(op.name, {"x": dx}, **_attrs(op))


def _affine(op: Op, g: Gradients) -> None:
    if dy := g.of(op.view("y")):
        part = whole(replace(op.view("x").buffer, name=f"{GRADIENT}{op.view('y').buffer.name}*"))
        g.add_op("affine", {"y": part, "x": dy, "weight": op.weight("weight")})
        g.add(op.view("x"), part)


def _softcap(op: Op, g: Gradients) -> None:
    if dx := g.of(op.view("x")):
        g.add_op("softcap_back", {"dx": dx, "y": op.view("x")}, cap=op.number("cap"))


def _of_value_before(op: Op, g: Gradients) -> None:
    if dx := g.of(op.view("x")):
        g.add_op(f"{op.name}_back", {"dx": dx, "x": g.value_before(op.view("x"))}, **_attrs(op))


def _rope(op: Op, g: Gradients) -> None:
    if dx := g.of(op.view("x")):
        tables = {name: op.weight(name) for name in ("fine", "coarse")}
        g.add_op("rope_back", {"dx": dx, **tables}, **_attrs(op))


def _glu(op: Op, g: Gradients) -> None:
    if dy := g.of(op.view("y")):
        gate, up = op.view("gate"), op.view("up")
        dgate, dup = g.new(gate), g.new(up)
        views = {"dgate": dgate, "dup": dup, "gate": gate, "up": up, "dy": dy}
        g.add_op("glu_back", views, act=op.word("act"))
        g.add(gate, dgate)
        g.add(up, dup)


def _attend(op: Op, g: Gradients) -> None:
    if dy := g.of(op.view("y")):
        read = {role: op.view(role) for role in ("q", "k", "v")}
        made = {f"d{role}": g.new(view) for role, view in read.items()}
        g.add_op("attend_back", {**made, **read, "stats": op.view("stats"), "dy": dy}, **_attrs(op))
        for role, view in read.items():
            g.add(view, made[f"d{role}"])


def _gather(op: Op, g: Gradients) -> None:
    if dy := g.of(op.view("y")):
        dx, adds = g.into(op.view("x"))
        g.add_op("gather_back", {"dx": dx, "dy": dy}, adds=adds)


def _stop(op: Op, g: Gradients) -> None:
    """The embedding is frozen and reads no activation."""


VJP: dict[str, Callable[[Op, Gradients], None]] = {
    "add": _add,
    "affine": _affine,
    "attend_causal": _attend,
    "clamp": _of_value_before,
    "copy_rows": _copy_rows,
    "embed": _stop,
    "embed_position": _stop,
    "expand": _expand,
    "gather_rows": _gather,
    "glu": _glu,
    "linear_exact": _linear,
    "mul": _mul,
    "norm": _norm,
    "rope": _rope,
    "scale": _linear_in_place,
    "shrink": _shrink,
    "softcap": _softcap,
    "temperature": _linear_in_place,
    "unary": _of_value_before,
}
