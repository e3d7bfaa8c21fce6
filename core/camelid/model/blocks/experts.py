"""Mixture of experts: a router chooses a few gated feed-forward blocks for each row."""

from __future__ import annotations

from camelid.model.lowering import Lowering
from camelid.plan.plan import View


def experts(c: Lowering, h: View, i: int) -> View:
    """sum of probs * down(act(gate(h)) * up(h)) over the chosen experts; [T, C] -> [T, C]."""
    spec, blk = c.spec.experts, f"blk.{i}."
    assert spec is not None, "a layer of experts belongs to a model that has some"
    ids, probs = c.plan.router(
        c.linear(h, blk + "ffn_gate_inp", "router"),  # [T, E]
        spec.n_used,
        gate=spec.gate,
        normalize=spec.normalize,
        scale=spec.scale,
        bias=c.weights.get(blk + "exp_probs_b.bias"),
    )  # [T, U] each
    gate, up = (_each(c, h, ids, f"{blk}ffn_{name}_exps", name) for name in ("gate", "up"))  # [T, U*F]
    y = c.plan.glu(gate, up, c.layer(i).act)
    return c.plan.combine(_each(c, y, ids, blk + "ffn_down_exps", "down"), probs)


def _each(c: Lowering, x: View, ids: View, name: str, out: str) -> View:
    return c.plan.linear_experts(x, ids, c.weights[name], out, c.weights.get(f"{name}.bias"))
