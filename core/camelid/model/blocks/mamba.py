"""Selective scans: Mamba-2 over heads (Dao and Gu, arXiv 2405.21060), and the first Mamba."""

from __future__ import annotations

from camelid.model.blocks.attention import attention
from camelid.model.lowering import RECURRENT, Lowering, Tensors
from camelid.model.spec import ModelSpec, SsmSpec
from camelid.plan.plan import StateRef, View


def mamba2(c: Lowering, h: View, i: int) -> View:
    """ssm_out(norm(scan(silu(conv(x, B, C)), dt) * silu(z))), all five from ssm_in(h); [T, C] -> [T, C].

    The norm, if the model has it, applies to each group of the inner columns, with its own gain (`ssm_norm`
    [groups, size]).
    """
    ssm, blk, state = _ssm(c.spec), f"blk.{i}.", StateRef(RECURRENT, i)
    z, xbc, dt = c.split(c.linear(h, blk + "ssm_in", "ssm"), ssm.inner_size, ssm.conv_size, ssm.n_heads)
    conv, bias = c.weights[blk + "ssm_conv1d"], c.weights.get(blk + "ssm_conv1d.bias")
    xbc = c.plan.conv1d(xbc, conv, state=state, act="silu", bias=bias)
    x, b, k = c.split(xbc, ssm.inner_size, ssm.bc_size, ssm.bc_size)
    y = c.plan.scan_mamba2(
        x,
        b=b,
        c=k,
        dt=dt,
        state=state,
        n_groups=ssm.n_groups,
        a=c.weights[blk + "ssm_a"],
        d=c.weights[blk + "ssm_d"],
        dt_bias=c.weights[blk + "ssm_dt.bias"],
    )  # [T, H*P]
    y = c.plan.glu(z, y, "silu")
    return c.linear(c.norm_if(y, blk + "ssm_norm", ssm.inner_size // ssm.n_groups), blk + "ssm_out", "o")


def mamba(c: Lowering, h: View, i: int) -> View:
    """ssm_out(scan(x, B, C, dt) * silu(z)), with x and z from ssm_in(h) (arXiv 2312.00752); [T, C] -> [T, C].

    x = silu(conv(x)); dt, B, C = split(ssm_x(x)), normed if the model has norms; dt = ssm_dt(dt). Each column
    of x is a head, with a decay for each column of its state.
    """
    ssm, blk, state = _ssm(c.spec), f"blk.{i}.", StateRef(RECURRENT, i)
    x, z = c.split(c.linear(h, blk + "ssm_in", "ssm"), ssm.inner_size, ssm.inner_size)
    conv, bias = c.weights[blk + "ssm_conv1d"], c.weights.get(blk + "ssm_conv1d.bias")
    x = c.plan.conv1d(x, conv, state=state, act="silu", bias=bias)
    parts = c.split(c.linear(x, blk + "ssm_x", "dbc"), ssm.dt_rank, ssm.state_size, ssm.state_size)
    dt, b, k = (
        _normed(c, part, f"{blk}ssm_{n}_norm") for part, n in zip(parts, ("dt", "b", "c"), strict=True)
    )
    y = c.plan.scan_mamba2(
        x,
        b=b,
        c=k,
        dt=c.linear(dt, blk + "ssm_dt", "dt"),
        state=state,
        n_groups=1,
        a=c.weights[blk + "ssm_a"],
        d=c.weights[blk + "ssm_d"],
    )  # [T, I]
    return c.linear(c.plan.glu(z, y, "silu"), blk + "ssm_out", "o")


def mamba_heads(c: Lowering, h: View, i: int) -> View:
    """ssm_out(scan(x, B, C, dt) * silu(ssm_z(h))) (PLaMo 2, arXiv 2509.04897); [T, C] -> [T, C].

    x = silu(conv(ssm_in(h))); B, C, dt = split(ssm_x(x)), normed; dt = ssm_dt(dt). A head has columns and one
    decay, as in Mamba 2.
    """
    ssm, blk, state = _ssm(c.spec), f"blk.{i}.", StateRef(RECURRENT, i)
    z = c.linear(h, blk + "ssm_z", "z")
    x = c.plan.conv1d(
        c.linear(h, blk + "ssm_in", "ssm"), c.weights[blk + "ssm_conv1d"], state=state, act="silu"
    )
    parts = c.split(c.linear(x, blk + "ssm_x", "dbc"), ssm.state_size, ssm.state_size, ssm.dt_rank)
    b, k, dt = (c.norm(part, f"{blk}ssm_{n}_norm") for part, n in zip(parts, ("b", "c", "dt"), strict=True))
    y = c.plan.scan_mamba2(
        x,
        b=b,
        c=k,
        dt=c.linear(dt, blk + "ssm_dt", "dt"),
        state=state,
        n_groups=1,
        a=c.weights[blk + "ssm_a"],
        d=c.weights[blk + "ssm_d"],
    )  # [T, H*P]
    return c.linear(c.plan.glu(z, y, "silu"), blk + "ssm_out", "o")


def _normed(c: Lowering, x: View, name: str) -> View:
    """x, normed with the gain `name` or without gain, if the model has such norms."""
    eps = _ssm(c.spec).part_eps
    return c.plan.norm(x, None, eps) if eps else c.norm_if(x, name)


def attention_mamba2(c: Lowering, h: View, i: int) -> View:
    """attention(h) + mamba2(h) (Falcon-H1, arXiv 2507.22448); [T, C] -> [T, C]."""
    y = mamba2(c, h, i)
    c.plan.add(y, attention(c, h, i))
    return y


def mamba2_state(spec: ModelSpec) -> Tensors:
    """State tensors of a layer: the last inputs of the convolution, and one matrix per head."""
    ssm = _ssm(spec)
    return ("conv", (ssm.conv_width - 1) * ssm.conv_size), ("scan", ssm.inner_size * ssm.state_size)


def _ssm(spec: ModelSpec) -> SsmSpec:
    assert spec.ssm is not None, "a mamba2 layer needs the sizes of spec.ssm"
    return spec.ssm
