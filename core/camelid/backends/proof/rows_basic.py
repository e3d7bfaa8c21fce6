"""Rows of elementwise and row-wise ops: norms, activations, RoPE, streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from camelid.backends.common.op_runner import F32
from camelid.backends.proof.inputs import CaseRow, normal, row
from camelid.backends.reference.basic import ACTS, GATES, NORMS

# Numbers whose exp overflows or underflows.
HUGE = np.array([[0.0, -0.0, 1e-20, 1e-3, -0.2, 19.0, -21.0, 88.0, -90.0, 1e4, -1e4, 1e15]], np.float32)
# NaN must stay NaN, so that the row's status becomes "nan".
BROKEN = np.array([[1.0, np.nan, -2.0, 0.5]], np.float32)


def rows() -> Iterator[CaseRow]:
    """All rows of this file."""
    yield from norm_rows()
    yield from plain_rows()
    yield from act_rows()
    yield from rope_rows()
    yield from temperature_rows()
    yield from stream_rows()


def norm_rows() -> Iterator[CaseRow]:
    """Norms: odd widths, groups of columns, zeros, NaN, and an eps larger than the numbers."""
    for shape in ((3, 256), (1, 8), (2, 1000)):
        yield row("norm", y=shape, x=shape, gain=shape[1:], eps=1e-5)
        yield row("add_norm", y=shape, x=shape, r=shape, gain=shape[1:], eps=1e-5, scale=0.22)
    for kind in NORMS:
        how: dict[str, Any] = {"eps": 1e-5, "kind": kind}
        yield row("norm", y=(3, 100), x=normal("off", 3, 100) + np.float32(3.0), bias=(100,), **how)
        yield row("norm", y=(3, 96), x=(3, 96), gain=(3, 32), bias=(32,), size=32, **how)
        yield row("norm", y=(2, 64), x=np.zeros((2, 64), np.float32), gain=(64,), **how)
        yield row("norm", y=(1, 4), x=BROKEN, **how)
    yield row("norm", y=(1, 64), x=normal("tiny", 1, 64, scale=1e-4), eps=0.1, kind="l2")


def plain_rows() -> Iterator[CaseRow]:
    """Copies, sums, products, bounds and gathers."""
    for shape in ((3, 77), (1, 1), (2, 256)):
        yield row("add", x=shape, r=shape, scale=-1.5)
        yield row("all_reduce", x=shape)
        yield row("scale", x=shape, by=-0.37)
        yield row("softcap", x=normal("wide", *shape, scale=40.0), cap=30.0)
        yield row("concat", y=(shape[0], shape[1] + 5), a=shape, b=(shape[0], 5))
        yield row("clamp", x=normal("clamped", *shape, scale=4.0), limit=3.5)
    yield row("softcap", x=HUGE, cap=0.5)
    yield row("clamp", x=BROKEN, limit=0.5)
    yield row("softcap", x=BROKEN, cap=30.0)
    for cols, factors in ((96, 3), (64, 64), (64, 1), (15, 5)):
        yield row("mul", x=(2, cols), r=(2, factors))
    yield row("gather_rows", y=(3, 70), x=(5, 70), output_rows=[4, 0, 4])
    yield row("gather_rows", y=(1, 33), x=(1, 33), output_rows=[0])


def act_rows() -> Iterator[CaseRow]:
    """Every activation, alone and as a gate."""
    for act in ACTS:
        yield row("unary", x=normal("act", 3, 100, scale=3.0), act=act)
        yield row("unary", x=BROKEN, act=act)
        if act != "relu2":  # its squares overflow float32
            yield row("unary", x=HUGE, act=act)
    for alpha in ((0.8, 1.1, 0.5, -1e-6), (1.3, 0.4, -0.25, -0.3)):
        yield row("xielu", x=normal("act", 3, 100, scale=3.0), alpha=np.array(alpha, np.float32))
        yield row("xielu", x=BROKEN, alpha=np.array(alpha, np.float32))
    for act in (*ACTS, *GATES):
        yield row("glu", y=(3, 100), gate=normal("gate", 3, 100, scale=4.0), up=(3, 100), act=act)
    yield row("glu", y=HUGE.shape, gate=HUGE, up=HUGE[:, ::-1].copy(), act="swiglu_oai")


def rope_rows() -> Iterator[CaseRow]:
    """RoPE: both orders of pairs, parts of a head, positions at and beyond the end of the fine table.

    Rows of images have several channels of positions.
    """
    for style in ("norm", "neox"):
        for dim, offset, positions in ((64, 0, [0, 15, 16, 79]), (32, 32, [33]), (32, 12, [3, 40])):
            yield row(
                "rope", x=(len(positions), 192), fine=angles(16, dim, 1.0), coarse=angles(5, dim, 16.0),
                head_dim=64, dim=dim, offset=offset, style=style, positions=positions, channel=offset // 16,
                channels=3,
            )  # fmt: skip


def temperature_rows() -> Iterator[CaseRow]:
    """Rows before, at and behind the borders of steps."""
    yield row("temperature", x=(4, 96), by=0.3, length=16, positions=[14, 15, 31, 700])


def angles(n: int, dim: int, step: float) -> F32:  # [n, dim], cos and sin side by side
    """A RoPE table of rotations by multiples of `step` positions."""
    turns = step * np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    return np.stack([np.cos(turns), np.sin(turns)], axis=-1).reshape(n, dim).astype(np.float32)


def stream_rows() -> Iterator[CaseRow]:
    """Groups of columns as vectors side by side in a row."""
    for n in (1, 3):
        yield row("affine", y=(n, 70), x=(n, 70), weight=(70,), bias=(70,))
        yield row("length", y=(n, 3), x=(n, 96), size=32)
        yield row("cutoff", x=(n, 100), deviations=1.64)
        yield row("mix", y=(n, 4 * 33), x=(n, 2 * 33), coefs=(n, 8), size=33)
    yield row("affine", y=(2, 7), x=(2, 7), weight=(7,))
    yield row("affine", y=(3, 70), x=(3, 70), weight=(1,))
    yield row("length", y=(2, 1), x=(2, 33))
