"""Bidirectional self-attention over the rows that a sequence has in the step, without a KV cache."""

from __future__ import annotations

from camelid.model.blocks.attention import heads, values
from camelid.model.lowering import Lowering
from camelid.model.relative import bias_around
from camelid.plan.plan import View


def bidirectional(c: Lowering, h: View, i: int) -> View:
    """attn_output(attention(rope(norm(q)), rope(norm(k)), v)); [T, C] -> [T, C].

    The layer's window covers half its width on each side. Optional, by the model's weights: norms, biases and
    a bias by distance.
    """
    spec, layer = c.spec, c.layer(i)
    y = c.plan.attend_rows(
        heads(c, h, i, "q"),
        k=heads(c, h, i, "k"),
        v=values(c, h, i),
        n_heads=spec.n_heads,
        n_kv_heads=spec.n_kv_heads,
        scale=spec.attention_scale or spec.head_dim**-0.5,
        window=layer.window,
        bias=bias_around(c, i),
    )  # [T, H*D]
    return c.linear(y, f"blk.{i}.attn_output", "o")
