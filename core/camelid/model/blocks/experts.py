"""Mixture of experts: a router chooses a few feed-forward blocks, gated or plain, for each row."""

from __future__ import annotations

from collections.abc import Callable

from camelid.model.lowering import Lowering
from camelid.plan.plan import View
from camelid.plan.weights import inline_f32


def experts(c: Lowering, h: View, i: int) -> View:
    """sum of probs * down(act(gate(h)) * up(h)) over the chosen experts; [T, C] -> [T, C].

    Experts without a gate are down(act(up(h))), and a model with a latent maps to it before its experts and
    back after their sum. The results of a shared expert and of the experts of chunks,
    and a bias of the sum, are added if the model has them.
    """
    spec, blk = c.spec.experts, f"blk.{i}."
    assert spec is not None, "a layer of experts needs the sizes of spec.experts"
    logits = c.linear(h, blk + "ffn_gate_inp", "router") if c.router is None else c.router  # [T, E]
    c.plan.softcap(logits, spec.softcap)
    ids, probs = c.plan.router(
        logits,
        spec.n_used,
        gate=spec.gate,
        normalize=spec.normalize,
        scale=spec.scale,
        bias=c.weights.get(blk + "exp_probs_b.bias", c.weights.get(blk + "exp_probs_b")),
        gain=c.weights.get(blk + "ffn_down_exps.scale"),
        n_groups=spec.n_groups,
        n_groups_used=spec.n_groups_used,
    )  # [T, U] each
    if spec.weighs_input:
        return c.summed(_of_weighed(c, h, i, (ids, probs)))
    latent = c.linear(h, blk + "ffn_latent_down", "latent") if spec.latent_size else h
    y = _mixture(c, latent, i, (ids, probs), "exps")
    if spec.latent_size:
        y = c.linear(y, blk + "ffn_latent_up", "moe")
    if blk + "ffn_up_chexps" in c.weights:
        c.plan.add(y, _mixture(c, h, i, (ids, probs), "chexps"), spec.chunk_scale)
    if blk + "ffn_up_shexp" in c.weights:
        c.plan.add(y, _shared(c, h, i))
    if blk + "ffn_exps.bias" in c.weights:
        y = c.plan.affine(y, inline_f32("one", [1.0], (1,)), c.weights[blk + "ffn_exps.bias"])
    return c.summed(y)


def _mixture(c: Lowering, h: View, i: int, chosen: tuple[View, View], kind: str) -> View:
    """The weighted sum of the chosen (ids, probs) experts of one kind; [T, C]."""
    ids, probs = chosen
    y = _inner(c, i, kind, lambda name: _each(c, h, ids, f"blk.{i}.ffn_{name}_{kind}", name))  # [T, U*F]
    return c.plan.combine(_each(c, y, ids, f"blk.{i}.ffn_down_{kind}", "down"), probs)


def _inner(c: Lowering, i: int, kind: str, product: Callable[[str], View]) -> View:
    """act(gate) * up, or act(up) of experts without a gate; `product` multiplies by the matrix of a name."""
    act = c.layer(i).act
    if f"blk.{i}.ffn_gate_{kind}" in c.weights:
        return c.plan.glu(product("gate"), product("up"), act)
    up = product("up")
    c.plan.unary(up, act)
    return up


def _of_weighed(c: Lowering, h: View, i: int, chosen: tuple[View, View]) -> View:
    """shared(h) + the one chosen expert of prob * h; [T, C]."""
    ids, prob = chosen  # [T, 1] each
    y = _shared(c, h, i)
    c.plan.mul(h, prob)
    gate, up = (_each(c, h, ids, f"blk.{i}.ffn_{name}_exps", name) for name in ("gate", "up"))  # [T, F] each
    c.plan.add(y, _each(c, c.plan.glu(gate, up, c.layer(i).act), ids, f"blk.{i}.ffn_down_exps", "down"))
    return y


def _shared(c: Lowering, h: View, i: int) -> View:
    """The shared expert of all rows, times sigmoid(ffn_gate_inp_shexp(h)) if the model has that gate."""
    blk = f"blk.{i}.ffn_"
    inner = _inner(c, i, "shexp", lambda name: c.linear(h, f"{blk}{name}_shexp", name))  # [T, F]
    y = c.linear(inner, blk + "down_shexp", "shared")  # [T, C]
    if blk + "gate_inp_shexp" in c.weights:
        share = c.linear(h, blk + "gate_inp_shexp", "share")  # [T, 1]
        c.plan.unary(share, "sigmoid")
        c.plan.mul(y, share)
    return y


def _each(c: Lowering, x: View, ids: View, name: str, out: str) -> View:
    return c.plan.linear_experts(x, ids, c.weights[name], out, c.weights.get(f"{name}.bias"))
