"""Multi-head latent attention in absorbed form (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

from __future__ import annotations

from camelid.model.lowering import Lowering, Tensors
from camelid.model.spec import MlaSpec, ModelSpec
from camelid.plan.plan import View


def mla(c: Lowering, h: View, i: int) -> View:
    """attn_output(v_b(attention(k_b(q), latent))); [T, C] -> [T, C].

    All heads share one row of keys and values: the normed latent, then the rotated part. `attn_k_b` [H, rank,
    nope] maps a head's queries to the latent space, and `attn_v_b` [H, value, rank] maps the attended latent
    to the head's values, so keys and values are never expanded.
    """
    spec, size, blk = c.spec, _mla(c.spec), f"blk.{i}."
    q = _queries(c, h, i)  # [T, H*(nope + rope)]
    c.rope(q, c.layer(i).rope, spec.head_dim, spec.head_dim - size.rope_dim)
    q = c.plan.linear_heads(q, c.weights[blk + "attn_k_b"], "q")  # [T, H*(rank + rope)]
    c.plan.kv_write(_keys(c, h, i), None, c.state(i))
    y = c.plan.attention(
        q,
        c.state(i),
        n_heads=spec.n_heads,
        n_kv_heads=1,
        v_dim=size.kv_rank,
        scale=spec.attention_scale or spec.head_dim**-0.5,
        window=c.layer(i).window,
    )  # [T, H*rank]
    y = c.plan.linear_heads(y, c.weights[blk + "attn_v_b"], "attn")  # [T, H*value]
    return c.linear(y, blk + "attn_output", "o")


def mla_state(spec: ModelSpec) -> Tensors:
    """State tensor of a layer: the latent, whose columns are also the values, and the rotated part."""
    size = _mla(spec)
    return (("k", size.kv_rank + size.rope_dim),)


def _queries(c: Lowering, h: View, i: int) -> View:
    """Queries, through the low-rank `attn_q_a` if the model has it; [T, H*(nope + rope)]."""
    blk = f"blk.{i}.attn_q"
    if f"{blk}_a" not in c.weights:
        return c.linear(h, blk, "q")
    latent = c.norm(c.linear(h, f"{blk}_a", "q_a"), f"{blk}_a_norm", eps=_mla(c.spec).norm_eps)
    return c.linear(latent, f"{blk}_b", "q")


def _keys(c: Lowering, h: View, i: int) -> View:  # [T, rank + rope]
    size, blk = _mla(c.spec), f"blk.{i}.attn_kv_a"
    latent, rotated = c.split(c.linear(h, f"{blk}_mqa", "kv"), size.kv_rank, size.rope_dim)
    c.rope(rotated, c.layer(i).rope, size.rope_dim)
    return c.plan.concat(c.norm(latent, f"{blk}_norm", eps=size.norm_eps), rotated, "k")


def _mla(spec: ModelSpec) -> MlaSpec:
    assert spec.mla is not None, "a layer of latent attention needs the sizes of spec.mla"
    return spec.mla
