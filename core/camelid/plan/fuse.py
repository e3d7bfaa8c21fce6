"""Op fusion: named rewrites that replace ops of a plan by one fused or joined op.

A rewrite keeps the meaning, up to rounding: an intermediate value that a fused op does not store is not
rounded to its buffer's dtype. A rewrite that joins weights declares a new `Weight`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from camelid.plan.defer import defer_norms, fuse_linear_add
from camelid.plan.experts import fuse_experts
from camelid.plan.join import join_linears, join_ropes
from camelid.plan.norm_rope import fuse_norm_rope
from camelid.plan.ops import make_op
from camelid.plan.plan import Op, Plan, Stage
from camelid.plan.qkv import fuse_qkv
from camelid.plan.qkv_heads import fuse_qkv_heads
from camelid.plan.weights import can_concat, concat_rows

Ops = tuple[Op, ...]


UNBOUNDED = 1 << 63


def fuse(plan: Plan, known: Collection[str], *, most_bytes: int = UNBOUNDED) -> Plan:
    """Applies each rewrite whose name is in `known`.

    No rewrite joins weights to more than `most_bytes` bytes.
    """
    stages: tuple[Stage, ...] = plan.stages
    for name, rewrite in REWRITES.items():
        if name in known:
            stages = tuple(_rewritten(stage, rewrite(stage.ops, most_bytes)) for stage in stages)
    return replace(plan, stages=stages)


def _rewritten(stage: Stage, ops: Ops) -> Stage:
    """The stage with these ops, or unchanged if they lack a buffer that another stage makes or reads."""
    used = {view.buffer for op in ops for _, view in op.views()}
    return replace(stage, ops=ops) if used.issuperset((*stage.inputs, *stage.outputs)) else stage


def fuse_add_norm(ops: Ops, _: int = UNBOUNDED) -> Ops:
    """Replaces `add(x, r); norm(x)` by `add_norm`, which reads and writes x once instead of twice."""
    out: list[Op] = []
    for op in ops:
        last = out[-1] if out else None
        if last and last.name == "add" and _is_plain_norm(op) and op.view("x") == last.view("x"):
            out[-1] = _add_norm(last, op)
        else:
            out.append(op)
    return tuple(out)


def _is_plain_norm(op: Op) -> bool:
    """True for an RMS norm over whole rows with a gain and no bias."""
    return op.name == "norm" and (op.word("kind"), op.integer("size"), op.has("gain"), op.has("bias")) == (
        "rms", 0, True, False,
    )  # fmt: skip


def _add_norm(add: Op, norm: Op) -> Op:
    views = {"y": norm.view("y"), "x": add.view("x"), "r": add.view("r")}
    attrs = {"eps": norm.number("eps"), "scale": add.number("scale")}
    return make_op("add_norm", {**views, "gain": norm.weight("gain")}, attrs)


def fuse_linear_glu(ops: Ops, most_bytes: int = UNBOUNDED) -> Ops:
    """Replaces `linear gate; linear up; glu` by `linear_glu` over the joined weight.

    The fused op reads x once and stores neither gate nor up.
    """
    out: list[Op] = []
    for op in ops:
        if op.name == "glu" and _feeds(out, op, most_bytes):
            up, gate = out.pop(), out.pop()
            out.append(_linear_glu(gate, up, op))
        else:
            out.append(op)
    return tuple(out)


def _feeds(out: list[Op], glu: Op, most_bytes: int) -> bool:
    """True if the last two ops are the plain linear maps of this glu, and their weights can be joined."""
    if len(out) < 2 or {out[-1].name, out[-2].name} != {"linear"}:
        return False
    gate, up = out[-2], out[-1]
    made = (gate.view("y"), up.view("y")) == (glu.view("gate"), glu.view("up"))
    weights = gate.weight("weight"), up.weight("weight")
    if gate.has("bias") or up.has("bias") or not can_concat(*weights):
        return False
    fits = weights[0].type == weights[1].type and sum(w.n_bytes for w in weights) <= most_bytes
    return made and fits and gate.view("x") == up.view("x")


def _linear_glu(gate: Op, up: Op, glu: Op) -> Op:
    gate_weight, up_weight = gate.weight("weight"), up.weight("weight")
    name = f"{gate_weight.name}+{up_weight.name}"
    joined = concat_rows(name, gate_weight, up_weight)  # [2*F, C]
    operands = {"y": glu.view("y"), "x": gate.view("x"), "weight": joined}
    return make_op("linear_glu", operands, {"act": glu.word("act")})


# In this order: rotations become neighbours when their inputs are joined; joined maps read deferred norms.
REWRITES: dict[str, Callable[[Ops, int], Ops]] = {
    "add_norm": fuse_add_norm,
    "linear_glu": fuse_linear_glu,
    "experts": fuse_experts,
    "join_linears": join_linears,
    "join_ropes": join_ropes,
    "linear_add": fuse_linear_add,
    "linear_add_norm": defer_norms,
    "qkv": fuse_qkv,
    "norm_rope_write": fuse_norm_rope,
    "qkv_heads": fuse_qkv_heads,
}
