"""RWKV-6: mixes and decays of columns that depend on the data (Finch, arXiv 2404.05892)."""

from __future__ import annotations

from camelid.model.arch import MIXED
from camelid.model.blocks.rwkv import CHANNEL, TIME, low_rank, norm_heads, sizes
from camelid.model.lowering import RECURRENT, Lowering
from camelid.plan.plan import StateRef, View
from camelid.plan.weights import Weight


def rwkv6(c: Lowering, h: View, i: int) -> View:
    """output(norm(scan) * silu(gate)), the norm over each head; [T, C] -> [T, C]."""
    blk = f"blk.{i}.time_mix_"
    y, gate = _scanned(c, h, i, c.weights[blk + "first"])
    return c.linear(c.plan.glu(gate, norm_heads(c, y, i), "silu"), blk + "output", "o")


def gated_rwkv6(c: Lowering, h: View, i: int) -> View:
    """output(scan * sigmoid(gate)): gated linear attention with RWKV-6's mixes (QRWKV6); [T, C] -> [T, C]."""
    y, gate = _scanned(c, h, i, None)
    c.plan.scale(y, sizes(c.spec).head_dim ** -0.5)
    return c.linear(c.plan.glu(gate, y, "sigmoid"), f"blk.{i}.time_mix_output", "o")


def channel_mix6(c: Lowering, h: View, i: int) -> View:
    """sigmoid(receptance) * value(act(key)), each of its own mix; [T, C] -> [T, C]."""
    blk, change = f"blk.{i}.channel_mix_", _change(c, h, i, CHANNEL)
    k = c.linear(_moved(c, h, change, blk + "lerp_k"), blk + "key", "key")  # [T, F]
    c.plan.unary(k, c.layer(i).act)
    r = c.linear(_moved(c, h, change, blk + "lerp_r"), blk + "receptance", "r")  # [T, C]
    return c.plan.glu(r, c.linear(k, blk + "value", "value"), "sigmoid")


def _scanned(c: Lowering, h: View, i: int, first: Weight | None) -> tuple[View, View]:
    """The scan of receptances, decays, keys and values, and the gate; [T, C] each."""
    blk, mixed = f"blk.{i}.time_mix_", _mixed(c, h, i)
    r, k, v = (
        c.linear(mixed[name[0]], blk + name, name[0]) for name in ("receptance", "key", "value")
    )  # k and v: [T, key heads * D]
    w = low_rank(c, mixed["w"], blk + "decay_w", "tanh", c.weights[blk + "decay"])
    state, n_heads = StateRef(RECURRENT, i), sizes(c.spec).n_heads
    y = c.plan.scan_rwkv6(r, w=w, k=k, v=v, state=state, n_heads=n_heads, u=first)
    return y, c.linear(mixed["g"], blk + "gate", "gate")


def _mixed(c: Lowering, h: View, i: int) -> dict[str, View]:
    """The inputs of the time mix by letter: h + change * lerp, with a lerp of h's own; [T, C] each."""
    blk, change = f"blk.{i}.time_mix_", _change(c, h, i, TIME)
    ranks = c.linear(_moved(c, h, change, blk + "lerp_x"), blk + "w1", "rank")
    c.plan.unary(ranks, "tanh")
    each = c.split(ranks, *[sizes(c.spec).mix_rank] * len(MIXED))
    return {x: _mix(c, h, change, rank, blk, x) for x, rank in zip(MIXED, each, strict=True)}


def _mix(c: Lowering, h: View, change: View, rank: View, blk: str, letter: str) -> View:
    y = c.plan.linear(rank, c.weights[f"{blk}w2_{letter}"], "mix", c.weights[f"{blk}lerp_{letter}"])
    c.plan.mul(y, change)
    c.plan.add(y, h)
    return y


def _change(c: Lowering, h: View, i: int, part: int) -> View:
    """The row before each row, less the row; [T, C]."""
    one = c.weights[f"blk.{i}.one"]
    change = c.plan.token_shift(h, one, state=StateRef(RECURRENT, i), part=part)
    c.plan.add(change, h, -1.0)
    return change


def _moved(c: Lowering, h: View, change: View, name: str) -> View:
    """h + change * lerp, with the stored lerp `name`; [T, C]."""
    y = c.plan.affine(change, c.weights[name])
    c.plan.add(y, h)
    return y
