"""Self-attention with grouped-query heads over a paged KV cache."""

from __future__ import annotations

from camelid.model.lowering import OF_QUERIES, Lowering
from camelid.model.relative import ALIBI, bias_back
from camelid.plan.plan import View


def attention(c: Lowering, h: View, i: int) -> View:
    """attn_output(sigmoid(gate) * attention(rope(norm(q)), rope(norm(k)), v)); [T, C] -> [T, C].

    Optional, by the model's weights: norms of queries and keys, biases, a bias by distance, sinks, the gate
    (`attn_gate`) and a norm of the result (`attn_sub_norm`). A norm of queries or keys as
    wide as a head applies to each head. A layer that shares the keys and values of another layer writes none.
    """
    spec, layer, blk = c.spec.of_layer(c.layer(i)), c.layer(i), f"blk.{i}."
    q = heads(c, h, i, "q")  # [T, H*D]
    if layer.kv_layer < 0:
        k = projected(c, h, i, "k")
        c.plan.kv_write(turned(c, k, i, "k"), values(c, h, i, k), c.state(i))  # [T, K*D] each
    y = c.plan.attention(
        q,
        c.state(i),
        n_heads=spec.n_heads,
        n_kv_heads=spec.n_kv_heads,
        v_dim=spec.head_dim,
        scale=spec.attention_scale or spec.head_dim**-0.5,
        mask=_mask(c, i),
        window=layer.window,
        softcap=spec.attention_softcap,
        sinks=c.weights.get(blk + "attn_sinks"),
        bias=c.weights.get(ALIBI) or bias_back(c, i),
    )  # [T, H*D]
    if blk + "attn_gate" in c.weights:
        c.plan.mul(y, _gate(c, h, blk + "attn_gate"))
    return c.summed(c.linear(c.norm_if(y, blk + "attn_sub_norm"), blk + "attn_output", "o"))


def _mask(c: Lowering, i: int) -> str:
    if c.side and c.spec.sees_images:
        return "held"
    return "chunked" if c.spec.is_chunked and c.layer(i).window else "causal"


def linear(c: Lowering, h: View, i: int) -> View:
    """attn_output(h), in place of attention (DeciLM); [T, C] -> [T, C]."""
    return c.linear(h, f"blk.{i}.attn_output", "o")


def _gate(c: Lowering, h: View, name: str) -> View:
    gate = c.linear(h, name, "gate")  # [T, H*D]
    c.plan.unary(gate, "sigmoid")
    return gate


def values(c: Lowering, h: View, i: int, k: View) -> View:
    """Values [T, K*D]; in a layer without `attn_v` the keys k before their norm."""
    spec = c.spec.of_layer(c.layer(i))
    v = projected(c, h, i, "v") if f"blk.{i}.attn_v" in c.weights else k
    return c.plan.norm(v, None, spec.norm_eps, size=spec.head_dim) if spec.norms_values else v


def heads(c: Lowering, h: View, i: int, name: str) -> View:
    """Queries (`name` "q") or keys ("k"), normed and rotated; [T, heads*D]."""
    return turned(c, projected(c, h, i, name), i, name)


def projected(c: Lowering, h: View, i: int, name: str) -> View:
    """Queries, keys or values ("v") before norms and rotation; [T, heads*D]."""
    x = c.linear(h, f"blk.{i}.attn_{name}", name)
    c.plan.clamp(x, c.spec.qkv_limit)
    return x


def turned(c: Lowering, x: View, i: int, name: str) -> View:
    """Queries ("q") or keys ("k") x with their norm and rotation; without a norm, x changes in place."""
    blk, spec = f"blk.{i}.attn_{name}", c.spec.of_layer(c.layer(i))
    x = x if spec.norms_rotated else _normed(c, x, f"{blk}_norm")
    rope = c.layer(i).rope
    is_own = name == "q" and rope + OF_QUERIES in spec.ropes
    c.rope(x, rope + OF_QUERIES if is_own else rope, spec.head_dim)
    if not rope and name == "q" and spec.nope_temperature:
        c.plan.temperature(x, spec.nope_temperature, spec.nope_temperature_length)
    if rope and spec.unit_heads:
        return c.plan.norm(x, None, spec.norm_eps, size=spec.head_dim)
    return _normed(c, x, f"{blk}_norm") if spec.norms_rotated else x


def _normed(c: Lowering, x: View, norm: str) -> View:
    """x with the norm of its heads, if the model has one. A gain [heads, D] has a row per head."""
    if norm not in c.weights:
        return x
    width = c.weights[norm].cols
    return c.norm(x, norm, width if width < x.cols else 0)
