"""Rewrites of experts: the gated products of all chosen experts in one op, and their sum by probability.

`linear_experts gate; linear_experts up; glu` becomes `linear_experts_glu`, and `linear_experts; combine`
becomes `linear_experts_sum`. The fused ops store neither gate, up nor the outputs of single experts.
"""

from __future__ import annotations

from camelid.plan.defer import Uses, uses_of
from camelid.plan.ops import make_op
from camelid.plan.plan import Op, Operand, View

Ops = tuple[Op, ...]
NAME = "linear_experts"


def fuse_experts(ops: Ops, _: int) -> Ops:
    """Replaces both groups, where no other op has the views between their ops."""
    out, uses = list[Op](), uses_of(ops)
    for op in ops:
        if op.name == "glu" and _are_halves(out[-2:], op, uses):
            up, gate = out.pop(), out.pop()
            out.append(_glu(gate, up, op))
        elif op.name == "combine" and out and _makes(out[-1], op.view("x"), uses):
            out.append(_sum(out.pop(), op))
        else:
            out.append(op)
    return tuple(out)


def _makes(linear: Op, view: View, uses: Uses) -> bool:
    """True for experts that make a view for one reader alone."""
    return linear.name == NAME and linear.view("y") == view and len(uses[view.buffer]) == 2


def _are_halves(pair: list[Op], glu: Op, uses: Uses) -> bool:
    """True for the gate and the up of a `glu`: of the same rows and experts, with weights of one type."""
    if len(pair) < 2:
        return False
    gate, up = pair
    made = _makes(gate, glu.view("gate"), uses) and _makes(up, glu.view("up"), uses)
    return made and _facts(gate) == _facts(up)


def _facts(linear: Op) -> tuple[object, ...]:
    weight = linear.weight("weight")
    return (linear.view("x"), linear.view("ids"), weight.type, weight.shape, linear.has("bias"))


def _glu(gate: Op, up: Op, glu: Op) -> Op:
    operands: dict[str, Operand] = {**dict(gate.operands), "y": glu.view("y")}
    operands |= {f"up_{role}": up.weight(role) for role in ("weight", "bias") if up.has(role)}
    return make_op("linear_experts_glu", operands, {"act": glu.word("act")})


def _sum(linear: Op, combine: Op) -> Op:
    operands = {**dict(linear.operands), "y": combine.view("y"), "probs": combine.view("probs")}
    return make_op("linear_experts_sum", operands, {})
