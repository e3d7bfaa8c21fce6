"""Self-attention with grouped-query heads over a paged key/value state."""

from __future__ import annotations

from collections.abc import Mapping

from camelid.model.spec import ModelSpec
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import StateRef, View
from camelid.plan.weights import Weight


def attention(plan: PlanBuilder, x: View, spec: ModelSpec, weights: Mapping[str, Weight], layer: int) -> None:
    """x += attn_output(attention(rope(q), rope(k), v)); [T, C] in place."""
    blk = f"blk.{layer}."
    h = plan.norm(x, weights[blk + "attn_norm"], spec.norm_eps)  # [T, C]
    q = plan.linear(h, weights[blk + "attn_q"], "q")  # [T, H*D]
    k = plan.linear(h, weights[blk + "attn_k"], "k")  # [T, K*D]
    v = plan.linear(h, weights[blk + "attn_v"], "v")  # [T, K*D]
    for heads in (q, k):
        fine, coarse = weights["rope_fine"], weights["rope_coarse"]
        plan.rope(heads, fine, coarse, head_dim=spec.head_dim, dim=spec.rope.dim, style=spec.rope.style)
    state = StateRef(spec.layers[layer].state_group, layer)
    plan.kv_write(k, v, state)
    scale = spec.attention_scale
    y = plan.attention(q, state, n_heads=spec.n_heads, n_kv_heads=spec.n_kv_heads, scale=scale)
    plan.add(x, plan.linear(y, weights[blk + "attn_output"], "o"))
