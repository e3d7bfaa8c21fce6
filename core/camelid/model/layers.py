"""Layers: the tables of mixers and MLPs, and the residuals that join them to the stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from camelid.model.blocks import altup as streams
from camelid.model.blocks.attention import attention, linear
from camelid.model.blocks.bidirectional import bidirectional, causal
from camelid.model.blocks.cross import cross_attention
from camelid.model.blocks.delta import delta
from camelid.model.blocks.experts import experts
from camelid.model.blocks.glu import glu, mlp, sparse_glu
from camelid.model.blocks.mamba import attention_mamba2, mamba, mamba2, mamba_heads
from camelid.model.blocks.mla import mla
from camelid.model.blocks.rwkv import channel_mix, rwkv7, rwkv7_first
from camelid.model.blocks.rwkv6 import channel_mix6, gated_rwkv6, rwkv6
from camelid.model.blocks.shortconv import shortconv
from camelid.model.lowering import TOKENS, Block, Lowering
from camelid.plan.plan import View

INJECTED = "injected"  # feature of programs whose rows are of images

MIXERS: dict[str, Block] = {
    "attention": attention,
    "linear": linear,
    "bidirectional": bidirectional,
    "causal": causal,
    "mamba": mamba,
    "mamba2": mamba2,
    "mamba_heads": mamba_heads,
    "attention_mamba2": attention_mamba2,
    "delta": delta,
    "shortconv": shortconv,
    "mla": mla,
    "rwkv6": rwkv6,
    "gated_rwkv6": gated_rwkv6,
    "rwkv7_first": rwkv7_first,
    "rwkv7": rwkv7,
}
MLPS: dict[str, Block] = {
    "glu": glu,
    "mlp": mlp,
    "sparse_glu": sparse_glu,
    "experts": experts,
    "channel_mix": channel_mix,
    "channel_mix6": channel_mix6,
}


def embed(c: Lowering) -> View:
    """Embeds tokens; [T, C]. Optional: learned positions, token types (position channel 1), a norm."""
    x = c.plan.embed(c.weights["token_embd"], TOKENS, c.spec.embedding_scale)
    for channel, name in enumerate(("position_embd", "token_types")):
        if name in c.weights:
            c.plan.embed_position(x, c.weights[name], channel)
    return c.norm_if(x, "token_embd_norm")


def inject(c: Lowering, x: View) -> View:
    """Replaces the embeddings x of a program's rows, all of images, and returns their input [T, side].

    The embedding op still writes the rows' ids to the ring of tokens.
    """
    side = c.plan.given("side", c.spec.hidden_size * (1 + c.spec.n_deepstack))
    c.plan.scale(x, 0.0)
    c.plan.add(x, side.slice(0, c.spec.hidden_size))
    return side


def apply_layer(c: Lowering, x: View, i: int) -> View:
    """The stream after layer `i`; residuals other than `post` and `with_input` update it in place."""
    x = RESIDUALS[c.layer(i).residual](c, x, i)
    if c.side and i < c.spec.n_deepstack:
        c.plan.add(x, c.side.slice(c.spec.hidden_size * (1 + i), c.spec.hidden_size))
    if c.spec.rescale_every and (i + 1) % c.spec.rescale_every == 0:
        c.plan.scale(x, 0.5)
    return x


def sequential(c: Lowering, x: View, i: int) -> View:
    """x += mixer(norm(x)); x += mlp(norm(x)), with the model's norms before and after each block.

    A layer may lack one or both.
    """
    layer, blk, scale = c.layer(i), f"blk.{i}.", c.spec.residual_scale
    if layer.mixer:
        y = MIXERS[layer.mixer](c, c.norm_if(x, blk + "attn_norm"), i)
        c.plan.add(x, c.norm_if(y, blk + "post_attention_norm"), scale)
    if layer.mlp:
        y = MLPS[layer.mlp](c, c.norm_if(x, blk + "ffn_norm"), i)
        c.plan.add(x, c.norm_if(y, blk + "post_ffw_norm"), scale)
    return x


def single(c: Lowering, x: View, i: int) -> View:
    """x += block(norm(x)): the layer is a mixer or an MLP."""
    layer = c.layer(i)
    block = MIXERS[layer.mixer] if layer.mixer else MLPS[layer.mlp]
    c.plan.add(x, block(c, c.norm(x, f"blk.{i}.attn_norm"), i), c.spec.residual_scale)
    return x


def early_router(c: Lowering, x: View, i: int) -> View:
    """A sequential layer whose router reads the layer's input, before any norm (SmallThinker)."""
    return sequential(replace(c, router=c.linear(x, f"blk.{i}.ffn_gate_inp", "router")), x, i)


def early_experts(c: Lowering, x: View, i: int) -> View:
    """x += mixer(norm(x)); x += glu(norm(x)) + experts(norm(the layer's input)) (Arctic)."""
    layer, blk = c.layer(i), f"blk.{i}."
    early = c.norm(x, blk + "ffn_norm_exps")
    c.plan.add(x, MIXERS[layer.mixer](c, c.norm(x, blk + "attn_norm"), i))
    c.plan.add(x, glu(c, c.norm(x, blk + "ffn_norm"), i))
    c.plan.add(x, MLPS[layer.mlp](c, early, i))
    return x


def parallel(c: Lowering, x: View, i: int) -> View:
    """x += mixer(norm(x)) + mlp(norm(x)); the MLP has a norm of its own, or that of the mixer."""
    layer, blk, scale = c.layer(i), f"blk.{i}.", c.spec.residual_scale
    h = c.norm(x, blk + "attn_norm")
    y = MIXERS[layer.mixer](c, c.norm(x, own) if (own := blk + "attn_norm_2") in c.weights else h, i)
    z = MLPS[layer.mlp](c, c.norm(x, own) if (own := blk + "ffn_norm") in c.weights else h, i)
    c.plan.add(x, y, scale)
    c.plan.add(x, z, scale)
    return x


def post(c: Lowering, x: View, i: int) -> View:
    """x = norm(x + mixer(x)); x = norm(x + mlp(x)), as in the original transformer (arXiv 1706.03762)."""
    layer, blk = c.layer(i), f"blk.{i}."
    y = MIXERS[layer.mixer](c, x, i)
    c.plan.add(y, x)
    x = c.norm(y, blk + "attn_output_norm")
    y = MLPS[layer.mlp](c, x, i)
    c.plan.add(y, x)
    return c.norm(y, blk + "layer_output_norm")


def cross(c: Lowering, x: View, i: int) -> View:
    """x += mixer(norm(x)); x += attention to the encoder's rows(norm(x)); x += mlp(norm(x))."""
    layer, blk = c.layer(i), f"blk.{i}."
    c.plan.add(x, MIXERS[layer.mixer](c, c.norm(x, blk + "attn_norm"), i))
    c.plan.add(x, cross_attention(c, c.norm(x, blk + "cross_attn_norm"), i))
    c.plan.add(x, MLPS[layer.mlp](c, c.norm(x, blk + "ffn_norm"), i))
    return x


def altup(c: Lowering, x: View, i: int) -> View:
    """Predicts all streams [T, N*C], runs the layer on the first stream, and corrects all by its result."""
    layer, blk = c.layer(i), f"blk.{i}."
    first = streams.predict(c, x, i)  # [T, C]
    h = c.norm(first, blk + "attn_norm")
    y = c.norm(MIXERS[layer.mixer](c, h, i), blk + "post_attention_norm")
    c.plan.add(y, first)
    c.plan.add(y, streams.laurel(c, h, i))
    c.plan.scale(y, 0.5**0.5)
    c.plan.add(y, c.norm(MLPS[layer.mlp](c, c.norm(y, blk + "ffn_norm"), i), blk + "post_ffw_norm"))
    streams.correct(c, x, y, i)
    streams.add_layer_input(c, x, i)
    return x


def with_input(c: Lowering, x: View, i: int) -> View:
    """x += mixer; x += MLP; x += the token's embedding for the layer; x *= the layer's scale (Gemma 4).

    A layer of experts also has a dense MLP; both have their own norms. The router reads the stream.
    """
    layer, blk = c.layer(i), f"blk.{i}."
    y = MIXERS[layer.mixer](c, c.norm(x, blk + "attn_norm"), i)
    c.plan.add(x, c.norm(y, blk + "post_attention_norm"))
    y = glu(c, c.norm(x, blk + "ffn_norm"), i)
    if layer.mlp == "experts":
        y = c.norm(y, blk + "post_ffw_norm_1")
        c.plan.add(y, _experts_of_stream(c, x, i))
    c.plan.add(x, c.norm(y, blk + "post_ffw_norm"))
    if c.layer_inputs:
        c.plan.add(x, streams.layer_input(c, x, i))
    scale = c.weights.get(blk + "layer_output_scale")
    return c.plan.affine(x, scale) if scale else x


def _experts_of_stream(c: Lowering, x: View, i: int) -> View:
    """norm(experts(norm(x))), whose router reads norm(x) / sqrt(C)."""
    blk = f"blk.{i}."
    h = c.norm(x, blk + "ffn_gate_inp.scale")
    c.plan.scale(h, x.cols**-0.5)
    c = replace(c, router=c.linear(h, blk + "ffn_gate_inp", "router"))
    y = MLPS["experts"](c, c.norm(x, blk + "pre_ffw_norm_2"), i)
    return c.norm(y, blk + "post_ffw_norm_2")


RESIDUALS: dict[str, Callable[[Lowering, View, int], View]] = {
    "sequential": sequential,
    "single": single,
    "early_router": early_router,
    "early_experts": early_experts,
    "parallel": parallel,
    "post": post,
    "cross": cross,
    "altup": altup,
    "with_input": with_input,
}
