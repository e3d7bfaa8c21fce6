"""Quantizers of blocks with one float16 scale, of codes that are integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from camelid.backends.common.codecs.bits import Bytes, pack
from camelid.backends.common.quantizers.blocks import Blocks
from camelid.backends.common.quantizers.fit import fit_affine, fit_scale, inverse, quotient, total, whole

PAST_TOP = (-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)  # starts of codes, beside the largest code
SHARES = (0.8, 0.9, 1.0)
STARTS_4 = (-6.0, -6.5, -7.0, -7.5, -8.0, -8.5, -9.0, 7.0, 8.0)
STARTS_5 = (-14.0, -15.0, -15.5, -16.0, -16.5, -17.0, 15.0, 16.0)
TERNARY_STARTS = (1.0, 2.0, 3.0, 4.5)
Q2_0_STARTS = (1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -3.0, -4.0)


def _scaled(blocks: Blocks, low: int, high: int, starts: Sequence[float]) -> tuple[Bytes, Bytes]:
    """Codes less `low`, [n, block], and d as float16."""
    nearest = whole(low, high)
    d, step = blocks.stored(fit_scale(blocks.x, blocks.w, nearest, starts).scale)
    q = nearest(blocks.x * inverse(step))
    return (q.T - np.float32(low)).astype(np.uint8), d


def _with_minimum(blocks: Blocks, top: int) -> tuple[Bytes, Bytes]:
    """Codes [n, block], and d and m as float16, [n, 4]."""
    starts = [top + past for past in PAST_TOP]
    fit = fit_affine(blocks.x, blocks.w, top, starts, SHARES, signed=True)
    (d, step), (m, low) = blocks.stored(fit.scale), blocks.stored(fit.minimum)
    q = whole(0, top)((blocks.x - low) * inverse(step))
    return q.T.astype(np.uint8), np.hstack([d, m])


def quantize_q4_0(blocks: Blocks) -> Bytes:
    """Blocks as q4_0; see `decode_q4_0` for the layout, here and below."""
    q, d = _scaled(blocks, -8, 7, STARTS_4)
    return np.hstack([d, pack(q, bits=4, width=16)])


def quantize_q5_0(blocks: Blocks) -> Bytes:
    q, d = _scaled(blocks, -16, 15, STARTS_5)
    return np.hstack([d, pack(q >> np.uint8(4), bits=1), pack(q & np.uint8(15), bits=4, width=16)])


def quantize_q4_1(blocks: Blocks) -> Bytes:
    q, parameters = _with_minimum(blocks, 15)
    return np.hstack([parameters, pack(q, bits=4, width=16)])


def quantize_q5_1(blocks: Blocks) -> Bytes:
    q, parameters = _with_minimum(blocks, 31)
    return np.hstack([parameters, pack(q >> np.uint8(4), bits=1), pack(q & np.uint8(15), bits=4, width=16)])


def quantize_tq2_0(blocks: Blocks) -> Bytes:
    q, d = _scaled(blocks, -1, 1, TERNARY_STARTS)
    return np.hstack([pack(q, bits=2, width=32), d])


def quantize_tq1_0(blocks: Blocks) -> Bytes:
    q, d = _scaled(blocks, -1, 1, TERNARY_STARTS)
    return np.hstack([_base_3(q[:, :160], 5), _base_3(q[:, 160:240], 5), _base_3(q[:, 240:], 4), d])


def quantize_q1_0(blocks: Blocks) -> Bytes:
    """d = weighted mean of the magnitudes."""
    d, _ = blocks.stored(quotient(total(blocks.w * np.abs(blocks.x)), total(blocks.w)))
    return np.hstack([d, pack((blocks.x.T >= 0).astype(np.uint8), bits=1)])


def quantize_q2_0(blocks: Blocks) -> Bytes:
    q, d = _scaled(blocks, -1, 2, Q2_0_STARTS)
    return np.hstack([d, pack(q, bits=2)])


def _base_3(q: Bytes, n_digits: int) -> Bytes:
    """[n, k] -> [n, k / n_digits]; digits as fractions of 256, rounded up, the first digits first."""
    powers = np.array([81, 27, 9, 3, 1], np.uint16)[:n_digits, None]
    number = (q.reshape(len(q), n_digits, -1) * powers).sum(axis=1, dtype=np.uint16)
    return ((number * np.uint32(256) + np.uint32(242)) // np.uint32(243)).astype(np.uint8)
