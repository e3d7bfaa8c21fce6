"""Quantizers of types whose codes name values of a table: iq4_nl, iq4_xs and the 4-bit floats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from camelid.backends.common.codecs.bits import Bytes, pack
from camelid.backends.common.grid_tables import VALUES
from camelid.backends.common.quantizers.blocks import Blocks
from camelid.backends.common.quantizers.fit import Floats, Nearest, fit_scale, inverse, total, whole

IQ4 = VALUES["iq4"]
E2M1 = VALUES["e2m1"][:8]  # magnitudes, doubled
NL_STARTS = (-127.0, -119.0, -111.0, -104.0, -135.0, 113.0, 106.0, 97.0, 89.0, 120.0)
XS_SCALE_STARTS = (-31.0, -32.0, -33.0)
EXPONENTS = (-2, -1, -3)  # of mxfp4's scale, relative to the largest value's
NEIGHBOURS = (0, 1, -1, 2, -2, 3, -3)  # codes of nvfp4's scale around the largest value's


def _steps(table: Sequence[int], results: Sequence[int]) -> Nearest:
    """The result of the nearest value of an ascending table; a tie takes the lower."""
    middles = [np.float32((a + b) / 2) for a, b in pairwise(table)]

    def nearest(x: Floats) -> Floats:
        found = np.full_like(x, results[0])
        for middle, result in zip(middles, results[1:], strict=True):
            found = np.where(x > middle, np.float32(result), found)
        return found

    return nearest


nearest_iq4 = _steps(IQ4, IQ4)
code_of_iq4 = _steps(IQ4, range(16))
nearest_size = _steps(E2M1, E2M1)
code_of_size = _steps(E2M1, range(8))


def nearest_e2m1(x: Floats) -> Floats:
    """The nearest doubled E2M1 value."""
    return np.copysign(nearest_size(np.abs(x)), x)


def _e2m1_codes(x: Floats) -> Bytes:  # [k, n] -> [n, k]
    sign = np.where(x < 0, np.float32(8), np.float32(0))
    return (code_of_size(np.abs(x)) + sign).T.astype(np.uint8)


def quantize_iq4_nl(blocks: Blocks) -> Bytes:
    """Blocks as iq4_nl; see `decode_iq4_nl` for the layout, here and below."""
    d, step = blocks.stored(fit_scale(blocks.x, blocks.w, nearest_iq4, NL_STARTS).scale)
    q = code_of_iq4(blocks.x * inverse(step)).T.astype(np.uint8)
    return np.hstack([d, pack(q, bits=4, width=16)])


def quantize_iq4_xs(blocks: Blocks) -> Bytes:
    xs, ws = blocks.groups(32)
    near_scale = whole(-32, 31)
    lines = [fit_scale(x, w, nearest_iq4, NL_STARTS) for x, w in zip(xs, ws, strict=True)]
    scales = np.stack([line.scale for line in lines])  # [8, n]
    curvatures = np.stack([line.curvature for line in lines])
    d, step = blocks.stored(fit_scale(scales, curvatures, near_scale, XS_SCALE_STARTS).scale)
    codes = near_scale(scales * inverse(step))
    q = np.concatenate([code_of_iq4(x * inverse(step * code)) for x, code in zip(xs, codes, strict=True)])
    six = (codes.T + np.float32(32)).astype(np.uint8)  # [n, 8]
    high, low = pack(six >> np.uint8(4), bits=2), pack(six & np.uint8(15), bits=4)
    return np.hstack([d, high, low, pack(q.T.astype(np.uint8), bits=4, width=16)])


def _error(x: Floats, w: Floats, half: Floats) -> Floats:
    """The weighted squared error with half a scale, [n]."""
    miss = x - half * nearest_e2m1(x * inverse(half))
    return total(w * miss * miss)


def quantize_mxfp4(blocks: Blocks) -> Bytes:
    """The scale is the best of three powers of two."""
    own = (blocks.up.view(np.uint32) >> np.uint32(23)).astype(np.int32)  # biased exponent of the largest
    best = np.full(len(own), np.inf, np.float32)
    e = np.zeros_like(own)
    for by in EXPONENTS:
        each = np.maximum(own + by, 0)
        error = _error(blocks.x, blocks.w, _power_of_two(each - own - 1))
        e, best = np.where(error < best, each, e), np.where(error < best, error, best)
    q = _e2m1_codes(blocks.x * inverse(_power_of_two(e - own - 1)))
    return np.hstack([e.astype(np.uint8)[:, None], pack(q, bits=4, width=16)])


def _power_of_two(exponent: np.ndarray) -> Floats:
    return (exponent.astype(np.int32) + 127 << 23).astype(np.uint32).view(np.float32)


def quantize_nvfp4(blocks: Blocks) -> Bytes:
    """Each group's scale is the best of the codes around a sixth of its largest value."""
    groups = [_nvfp4_group(x, w, blocks) for x, w in zip(*blocks.groups(16), strict=True)]
    return np.hstack([*(scale for scale, _ in groups), *(codes for _, codes in groups)])


def _nvfp4_group(x: Floats, w: Floats, blocks: Blocks) -> tuple[Bytes, Bytes]:
    """A group's scale byte [n, 1] and its codes [n, 8]."""
    top = np.abs(x).max(axis=0) * np.float32(1 / 6) * blocks.up
    first = _ue4m3_code(top)
    best, code = np.full(len(top), np.inf, np.float32), np.zeros_like(first)
    for by in NEIGHBOURS:
        each = (first + by).clip(0, 126)
        error = _error(x, w, half_ue4m3(each) * blocks.down)
        code, best = np.where(error < best, each, code), np.where(error < best, error, best)
    q = _e2m1_codes(x * inverse(half_ue4m3(code) * blocks.down))
    return code.astype(np.uint8)[:, None], pack(q, bits=4, width=8)


def _ue4m3_code(x: Floats) -> np.ndarray:
    """The largest code whose value is at most x, up to 126."""
    x = np.minimum(x, np.float32(448))
    normal = (x.view(np.uint32) >> np.uint32(20)).astype(np.int32) - (120 << 3)
    return np.where(x < np.float32(2**-6), (x * np.float32(512)).astype(np.int32), normal)


def half_ue4m3(code: np.ndarray) -> Floats:
    """Half the value of a code below 127."""
    exponent, mantissa = code >> 3, code & 7
    whole_part = np.where(exponent == 0, mantissa, mantissa + 8).astype(np.float32)
    return whole_part * _power_of_two(np.maximum(exponent, 1) - 11)
