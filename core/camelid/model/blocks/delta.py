"""Gated DeltaNet: linear attention with the gated delta rule (arXiv 2412.06464)."""

from __future__ import annotations

from camelid.model.lowering import RECURRENT, Lowering, Tensors
from camelid.model.spec import DeltaSpec, ModelSpec
from camelid.plan.plan import StateRef, View


def delta(c: Lowering, h: View, i: int) -> View:
    """ssm_out(norm(scan(q, k, v; decay, beta)) * silu(attn_gate(h))); [T, C] -> [T, C].

    q, k, v = split(silu(conv(attn_qkv(h)))), with q and k normed to length 1 per head. `ssm_beta` and
    `ssm_alpha` give one number per head each: the strength of the correction and (with `ssm_dt.bias` and
    `ssm_a`) the decay of the state.
    """
    size, blk, state = _delta(c.spec), f"blk.{i}.", StateRef(RECURRENT, i)
    qkv = c.linear(h, blk + "attn_qkv", "qkv")  # [T, 2*keys + values]
    qkv = c.plan.conv1d(qkv, c.weights[blk + "ssm_conv1d"], state=state, act="silu")
    q, k, v = c.split(qkv, size.key_size, size.key_size, size.value_size)
    beta, dt = c.linear(h, blk + "ssm_beta", "beta"), c.linear(h, blk + "ssm_alpha", "dt")  # [T, H] each
    c.plan.unary(beta, "sigmoid")
    q, k = _unit(c, q), _unit(c, k)
    if size.is_tiled:
        q, k = _tiled(c, q), _tiled(c, k)
    y = c.plan.scan_delta(
        q,
        k=k,
        v=v,
        dt=dt,
        beta=beta,
        state=state,
        n_key_heads=size.n_heads if size.is_tiled else size.n_key_heads,
        scale=size.key_dim**-0.5,
        a=c.weights[blk + "ssm_a"],
        dt_bias=c.weights[blk + "ssm_dt.bias"],
    )  # [T, H*V]
    y = c.norm(y, blk + "ssm_norm", size.value_dim)
    return c.linear(c.plan.glu(c.linear(h, blk + "attn_gate", "z"), y, "silu"), blk + "ssm_out", "o")


def delta_state(spec: ModelSpec) -> Tensors:
    """State tensors of a layer: the last inputs of the convolution, and one matrix per value head."""
    size = _delta(spec)
    conv = ("conv", (size.conv_width - 1) * (2 * size.key_size + size.value_size))
    return conv, ("scan", size.value_size * size.key_dim)


def _tiled(c: Lowering, x: View) -> View:
    """All key heads, repeated in turn until each head has its own."""
    size, tiled = _delta(c.spec), x
    for _ in range(size.n_heads // size.n_key_heads - 1):
        tiled = c.plan.concat(tiled, x, "tiled")
    return tiled


def _unit(c: Lowering, x: View) -> View:
    """Norms the vector of each key head to length 1."""
    return c.plan.norm(x, None, c.spec.norm_eps, kind="l2", size=_delta(c.spec).key_dim)


def _delta(spec: ModelSpec) -> DeltaSpec:
    assert spec.delta is not None, "a delta layer needs the sizes of spec.delta"
    return spec.delta
