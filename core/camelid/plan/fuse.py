"""Named rewrites: each takes a plan's ops and returns fewer. A backend asks for those it has kernels for.

A rewrite never changes the meaning, and one that joins weights declares a new `Weight`. An intermediate value
that a fused op no longer stores is not rounded to its buffer's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from camelid.plan.ops import make_op
from camelid.plan.plan import Op, Plan, Stage
from camelid.plan.weights import concat_rows

Ops = tuple[Op, ...]


UNBOUNDED = 1 << 63


def fuse(plan: Plan, known: Collection[str], *, most_bytes: int = UNBOUNDED) -> Plan:
    """The plan with every rewrite applied whose op is in `known`; none joins weights beyond `most_bytes`."""
    stages: tuple[Stage, ...] = plan.stages
    for name, rewrite in REWRITES.items():
        if name in known:
            stages = tuple(replace(stage, ops=rewrite(stage.ops, most_bytes)) for stage in stages)
    return replace(plan, stages=stages)


def fuse_add_norm(ops: Ops, _: int = UNBOUNDED) -> Ops:
    """`add(x, r); norm(x)` becomes `add_norm`: x is read and written once instead of twice."""
    out: list[Op] = []
    for op in ops:
        last = out[-1] if out else None
        if last and last.name == "add" and _is_plain_norm(op) and op.view("x") == last.view("x"):
            out[-1] = _add_norm(last, op)
        else:
            out.append(op)
    return tuple(out)


def _is_plain_norm(op: Op) -> bool:
    """An RMS norm over whole rows with a gain and no bias."""
    return op.name == "norm" and (op.word("kind"), op.integer("size"), op.has("gain"), op.has("bias")) == (
        "rms", 0, True, False,
    )  # fmt: skip


def _add_norm(add: Op, norm: Op) -> Op:
    views = {"y": norm.view("y"), "x": add.view("x"), "r": add.view("r")}
    attrs = {"eps": norm.number("eps"), "scale": add.number("scale")}
    return make_op("add_norm", {**views, "gain": norm.weight("gain")}, attrs)


def fuse_linear_glu(ops: Ops, most_bytes: int = UNBOUNDED) -> Ops:
    """`linear gate; linear up; glu` becomes one op over joined weights: one pass over x, no gate and up."""
    out: list[Op] = []
    for op in ops:
        if op.name == "glu" and _feeds(out, op, most_bytes):
            up, gate = out.pop(), out.pop()
            out.append(_linear_glu(gate, up, op))
        else:
            out.append(op)
    return tuple(out)


def _feeds(out: list[Op], glu: Op, most_bytes: int) -> bool:
    if len(out) < 2 or {out[-1].name, out[-2].name} != {"linear"}:
        return False
    gate, up = out[-2], out[-1]
    made = (gate.view("y"), up.view("y")) == (glu.view("gate"), glu.view("up"))
    if gate.has("bias") or up.has("bias") or gate.weight("weight").load_ops or up.weight("weight").load_ops:
        return False
    weights = gate.weight("weight"), up.weight("weight")
    fits = weights[0].type == weights[1].type and sum(w.n_bytes for w in weights) <= most_bytes
    return made and fits and gate.view("x") == up.view("x")


def _linear_glu(gate: Op, up: Op, glu: Op) -> Op:
    gate_weight, up_weight = gate.weight("weight"), up.weight("weight")
    name = f"{gate_weight.name}+up"
    joined = concat_rows(name, gate_weight, up_weight)  # [2*F, C]
    operands = {"y": glu.view("y"), "x": gate.view("x"), "weight": joined}
    return make_op("linear_glu", operands, {"act": glu.word("act")})


REWRITES: dict[str, Callable[[Ops, int], Ops]] = {"add_norm": fuse_add_norm, "linear_glu": fuse_linear_glu}
