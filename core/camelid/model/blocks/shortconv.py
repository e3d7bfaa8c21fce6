"""Gated short convolution (LFM2, arXiv 2511.23404)."""

from __future__ import annotations

from camelid.model.lowering import RECURRENT, Lowering, Tensors
from camelid.model.spec import ModelSpec
from camelid.plan.plan import StateRef, View


def shortconv(c: Lowering, h: View, i: int) -> View:
    """out_proj(gate * conv(b * x)), with b, gate and x from in_proj(h); [T, C] -> [T, C]."""
    blk, width = f"blk.{i}.shortconv.", c.spec.hidden_size
    b, gate, x = c.split(c.linear(h, blk + "in_proj", "bcx"), width, width, width)
    c.plan.mul(x, b)
    conv, bias = c.weights[blk + "conv"], c.weights.get(blk + "conv.bias")
    y = c.plan.conv1d(x, conv, state=StateRef(RECURRENT, i), bias=bias)
    c.plan.mul(y, gate)
    return c.linear(y, blk + "out_proj", "o")


def shortconv_state(spec: ModelSpec) -> Tensors:
    """State tensor of a layer: the last inputs of the convolution."""
    return (("conv", (spec.conv_width - 1) * spec.hidden_size),)
