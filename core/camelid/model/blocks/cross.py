"""Cross-attention of a decoder to the rows of its encoder (arXiv 1706.03762).

The keys and values are in the static state group `cross`: the encoder's last ops write them once, and each
layer of the decoder reads its own.
"""

from __future__ import annotations

from camelid.model.lowering import Lowering
from camelid.model.spec import ModelSpec
from camelid.plan.plan import StateRef, View

CROSS = "cross"  # name of the state group, and of the residual of layers that read it


def cross_layers(spec: ModelSpec) -> tuple[int, ...]:
    """Layers of the decoder that attend to the encoder's rows."""
    return tuple(i for i, layer in enumerate(spec.layers) if layer.residual == CROSS)


def cross_attention(c: Lowering, h: View, i: int) -> View:
    """cross_attn_o(attention(cross_attn_q(h), all rows of the encoder)); [T, C] -> [T, C]."""
    spec, blk = c.spec, f"blk.{i}.cross_attn_"
    y = c.plan.attention(
        c.linear(h, blk + "q", "q"),
        StateRef(CROSS, i),
        n_heads=spec.n_heads,
        n_kv_heads=spec.n_kv_heads,
        v_dim=spec.head_dim,
        scale=spec.attention_scale or spec.head_dim**-0.5,
        mask="held",
    )  # [T, H*D]
    return c.linear(y, blk + "o", "o")


def write_cross(c: Lowering, x: View, i: int) -> None:
    """Writes the keys and values of the encoder's rows x [T, C] for layer `i` of the decoder."""
    blk = f"blk.{i}.cross_attn_"
    c.plan.kv_write(c.linear(x, blk + "k", "k"), c.linear(x, blk + "v", "v"), StateRef(CROSS, i))
