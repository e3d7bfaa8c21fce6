"""The gated feed-forward block: down(act(gate(h)) * up(h)) (GLU variants, arXiv 2002.05202)."""

from __future__ import annotations

from collections.abc import Mapping

from camelid.model.spec import ModelSpec
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import View
from camelid.plan.weights import Weight


def glu(plan: PlanBuilder, x: View, spec: ModelSpec, weights: Mapping[str, Weight], layer: int) -> None:
    """x += ffn_down(act(ffn_gate(h)) * ffn_up(h)); [T, C] in place."""
    blk = f"blk.{layer}."
    h = plan.norm(x, weights[blk + "ffn_norm"], spec.norm_eps)  # [T, C]
    gate = plan.linear(h, weights[blk + "ffn_gate"], "gate")  # [T, F]
    up = plan.linear(h, weights[blk + "ffn_up"], "up")  # [T, F]
    y = plan.glu(gate, up, spec.layers[layer].act)
    plan.add(x, plan.linear(y, weights[blk + "ffn_down"], "down"))
