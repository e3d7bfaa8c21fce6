"""Self-attention over the rows that a sequence has in the step, without a KV cache."""

from __future__ import annotations

from camelid.model.blocks.attention import heads, projected, turned, values
from camelid.model.lowering import Lowering
from camelid.model.relative import bias_around
from camelid.plan.plan import View


def bidirectional(c: Lowering, h: View, i: int) -> View:
    """attn_output(attention(rope(norm(q)), rope(norm(k)), v)) over all rows of a sequence; [T, C] -> [T, C].

    The layer's window covers half its width on each side. Optional, by the model's weights: norms, biases and
    a bias by distance.
    """
    return _attend(c, h, i, "symmetric" if c.layer(i).window else "full")


def causal(c: Lowering, h: View, i: int) -> View:
    """As `bidirectional`, over the rows up to each row: a decoder that encodes whole texts."""
    return _attend(c, h, i, "causal")


def _attend(c: Lowering, h: View, i: int, mask: str) -> View:
    layer = c.layer(i)
    spec = c.spec.of_layer(layer)
    q, k = heads(c, h, i, "q"), projected(c, h, i, "k")
    y = c.plan.attend_rows(
        q,
        k=turned(c, k, i, "k"),
        v=values(c, h, i, k),
        n_heads=spec.n_heads,
        n_kv_heads=spec.n_kv_heads,
        scale=spec.attention_scale or spec.head_dim**-0.5,
        mask=mask,
        window=layer.window if mask == "symmetric" else 0,
        bias=bias_around(c, i),
    )  # [T, H*D]
    return c.linear(y, f"blk.{i}.attn_output", "o")
