"""Feed-forward blocks: gated (GLU variants, arXiv 2002.05202) and plain."""

from __future__ import annotations

from camelid.model.lowering import Lowering
from camelid.plan.plan import View

XIELU = "xielu"  # activation with parameters of its own in each layer, and their weight


def glu(c: Lowering, h: View, i: int) -> View:
    """ffn_down(act(ffn_gate(h)) * ffn_up(h)), the product normed if there is a norm; [T, C] -> [T, C]."""
    blk = f"blk.{i}."
    gate, up = c.linear(h, blk + "ffn_gate", "gate"), c.linear(h, blk + "ffn_up", "up")  # [T, F] each
    y = c.norm_if(c.plan.glu(gate, up, c.layer(i).act), blk + "ffn_sub_norm")
    return c.summed(c.linear(y, blk + "ffn_down", "down"))


def sparse_glu(c: Lowering, h: View, i: int) -> View:
    """glu with gates cut off below mean + ffn_cutoff * std of their row (Gemma 3n); [T, C] -> [T, C]."""
    blk = f"blk.{i}."
    gate, up = c.linear(h, blk + "ffn_gate", "gate"), c.linear(h, blk + "ffn_up", "up")  # [T, F] each
    c.plan.cutoff(gate, c.spec.ffn_cutoff)
    return c.linear(c.plan.glu(gate, up, c.layer(i).act), blk + "ffn_down", "down")


def mlp(c: Lowering, h: View, i: int) -> View:
    """ffn_down(act(ffn_up(h))); [T, C] -> [T, C]."""
    up = c.linear(h, f"blk.{i}.ffn_up", "up")  # [T, F]
    if c.layer(i).act == XIELU:
        c.plan.xielu(up, c.weights[f"blk.{i}.{XIELU}"])
    else:
        c.plan.unary(up, c.layer(i).act)
    return c.summed(c.linear(up, f"blk.{i}.ffn_down", "down"))
