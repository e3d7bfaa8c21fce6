"""Residual of Gemma 3n: alternating updates of several streams (AltUp, arXiv 2301.13310), a learned residual
of low rank (LAuReL, arXiv 2411.07501), and an embedding of the token for every layer, also of Gemma 4.

The streams [T, N*C] are side by side in a row; layers compute on the first stream.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.model.lowering import Lowering
from camelid.plan.plan import View
from camelid.plan.weights import inline_f32

LEAST_POWER = 1e-5  # least mean square of a stream for the scaling to the length of the first stream


def layer_inputs(c: Lowering, x: View, tokens: str) -> View:
    """(embedding of the token + norm(per_layer_model_proj(x))) / sqrt(2), for every layer; [T, layers*P]."""
    size = c.weights["per_layer_proj_norm"].cols
    y = c.plan.embed(c.weights["per_layer_token_embd"], tokens, size**0.5)
    projected = c.linear(x, "per_layer_model_proj", "seen")
    c.plan.scale(projected, c.spec.hidden_size**-0.5)
    c.plan.add(y, c.norm(projected, "per_layer_proj_norm", size))
    c.plan.scale(y, 0.5**0.5)
    return y


def open_streams(c: Lowering, x: View) -> View:
    """x and its projections, scaled to the length of x; [T, C] -> [T, N*C]."""
    stack = c.weights["altup_proj"]  # [N-1, C, C]
    others = c.plan.linear(x, replace(stack, shape=(stack.rows, stack.cols)), "others")
    return c.plan.concat(x, _as_long(c, others, x), "streams")


def close_streams(c: Lowering, x: View) -> View:
    """Mean of all streams, the others projected back and scaled to the first; [T, N*C] -> [T, C]."""
    first, *rest = _streams(c, x)
    others = x.slice(first.cols, x.cols - first.cols)
    others = _as_long(c, c.plan.linear_heads(others, c.weights["altup_unembd_proj"], "others"), first)
    for other in _streams(c, others):
        c.plan.add(first, other)
    c.plan.scale(first, 1.0 / (1 + len(rest)))
    return first


def predict(c: Lowering, x: View, i: int) -> View:
    """Adds a mixture of all streams to each stream, in place. Returns the first stream."""
    first = _streams(c, x)[0]
    coefs = c.linear(_routed(c, first, i), f"blk.{i}.altup_predict_coef", "coefs")  # [T, N*N]
    c.plan.add(x, c.plan.mix(x, coefs, first.cols))
    return first


def correct(c: Lowering, x: View, y: View, i: int) -> None:
    """Adds to each stream its share (1 + a learned number) of the layer's result y minus the prediction."""
    coef = c.weights[f"blk.{i}.altup_correct_coef"]  # [N, N]
    one = inline_f32("altup_one", [1.0] * coef.rows, (coef.rows,))
    shares = c.plan.linear(_routed(c, y, i), coef, "shares", one)  # [T, N]
    c.plan.add(y, _streams(c, x)[0], -1.0)
    c.plan.add(x, c.plan.mix(y, shares, y.cols))


def add_layer_input(c: Lowering, x: View, i: int) -> None:
    """Adds norm(proj(gelu(inp_gate(scale * first)) * the layer's input)) to all streams but the first."""
    first, *rest = _streams(c, x)
    y = layer_input(c, c.plan.affine(first, c.weights[f"blk.{i}.altup_correct_scale"]), i)
    for stream in rest:
        c.plan.add(stream, y)


def layer_input(c: Lowering, x: View, i: int) -> View:
    """norm(proj(gelu(inp_gate(x)) * the layer's input)); [T, C] -> [T, C]."""
    assert c.layer_inputs is not None, "the layer belongs to a model with inputs for every layer"
    blk = f"blk.{i}."
    gate = c.linear(x, blk + "inp_gate", "gate")
    own = c.layer_inputs.slice(i * gate.cols, gate.cols)  # [T, P]
    y = c.linear(c.plan.glu(gate, own, c.layer(i).act), blk + "proj", "input")
    return c.norm(y, blk + "post_norm")


def laurel(c: Lowering, h: View, i: int) -> View:
    """h + norm(laurel_r(laurel_l(h)))."""
    blk = f"blk.{i}.laurel_"
    y = c.norm(c.linear(c.linear(h, blk + "l", "laurel"), blk + "r", "laurel"), blk + "post_norm")
    c.plan.add(y, h)
    return y


def _routed(c: Lowering, x: View, i: int) -> View:
    """tanh(altup_router(norm(x) / C)); [T, C] -> [T, N]."""
    h = c.norm(x, f"blk.{i}.altup_router_norm")
    c.plan.scale(h, 1.0 / x.cols)
    y = c.linear(h, f"blk.{i}.altup_router", "routed")
    c.plan.unary(y, "tanh")
    return y


def _as_long(c: Lowering, others: View, x: View) -> View:
    """Scales each of the other streams to the length of x."""
    y = c.plan.norm(others, None, (x.cols * LEAST_POWER) ** 0.5, kind="l2", size=x.cols)
    c.plan.mul(y, c.plan.length(x))
    return y


def _streams(c: Lowering, x: View) -> tuple[View, ...]:
    size = c.spec.hidden_size
    return c.split(x, *[size] * (x.cols // size))
