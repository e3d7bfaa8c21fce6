"""Parts of the plain models of attention shapes: rotations, masks, activations. Float64, from the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.model.stress_oracle import Array, softmax


def frequencies(dim: int, theta: float) -> Array:  # [dim / 2]
    return theta ** (-np.arange(0, dim, 2) / dim)


def yarn(dim: int, theta: float, **how: Any) -> Array:  # [dim / 2]
    """NTK-by-parts (arXiv 2309.00071, section 3.2): pairs that turn often within the original context stay,
    pairs that turn seldom are interpolated; the share goes linearly by the number of the pair."""

    def pair(turns: float) -> float:
        return dim * np.log(how["original"] / (turns * 2 * np.pi)) / (2 * np.log(theta))

    low, high = pair(how["fast"]), pair(how["slow"])
    if how["is_rounded"]:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    slow = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    plain = frequencies(dim, theta)
    return plain / how["factor"] * slow + plain * (1 - slow)


def turn(x: Array, freqs: Array, *, adjacent: bool = False, magnitude: float = 1.0) -> Array:  # [T, H, D]
    """Each pair, adjacent or half a head apart, as one complex number times e^(i position frequency)."""
    first, second = (x[..., 0::2], x[..., 1::2]) if adjacent else np.split(x, 2, -1)
    angle = np.arange(len(x))[:, None, None] * freqs
    z = (first + 1j * second) * np.exp(1j * angle) * magnitude
    if adjacent:
        return np.stack([z.real, z.imag], -1).reshape(x.shape)
    return np.concatenate([z.real, z.imag], -1)


def attend(q: Array, k: Array, v: Array, scale: float, *, window: int = 0, sinks: Any = None) -> Array:
    """Causal attention of q [T, H, D] over k [T, K, D] and v [T, K, V], as a whole matrix; [T, H*V]."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) * scale
    back = np.arange(len(q))[:, None] - np.arange(len(q))
    scores[:, (back < 0) | (back >= (window or len(q)))] = -np.inf
    no_sinks = np.full(q.shape[1], -np.inf)
    column = np.broadcast_to((no_sinks if sinks is None else sinks)[:, None, None], (*scores.shape[:2], 1))
    shares = softmax(np.concatenate([scores, column], 2))[..., :-1]
    return np.einsum("hts,shd->thd", shares, v).reshape(len(q), -1)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
