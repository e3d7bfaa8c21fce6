"""Plain models in float64 NumPy, written from the papers: the oracles of the stress shapes.

Nothing is imported from camelid. Whole sequences run at once: no pages, no steps, no state but a Python
variable. Weights are by GGUF name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = Any  # float64
Weights = Mapping[str, Any]
Mix = Callable[[Array, int], Array]  # (normed input [T, C], layer) -> [T, C]


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Array) -> Array:
    return x / (1.0 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.log1p(np.exp(x))


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: Array) -> Array:
    return x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x: Array, gain: Array, eps: float = 1e-5) -> Array:
    """RMS norm over the last axis (Zhang and Sennrich, arXiv 1910.07467)."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def layer_norm(x: Array, gain: Array, bias: Array, eps: float) -> Array:
    """Layer norm over the last axis (arXiv 1607.06450)."""
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain + bias


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def swiglu(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def frequencies(dim: int, theta: float) -> Array:  # [dim / 2]
    return theta ** (-np.arange(0, dim, 2) / dim)


def yarn(dim: int, theta: float, **how: Any) -> Array:  # [dim / 2]
    """NTK-by-parts (arXiv 2309.00071, section 3.2): pairs with many rotations in the original context stay,
    pairs with few are interpolated; the share is linear in the pair's number.
    """

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
    """Rotates each pair, adjacent or half a head apart, as one complex number times e^(i position
    frequency).
    """
    first, second = (x[..., 0::2], x[..., 1::2]) if adjacent else np.split(x, 2, -1)
    angle = np.arange(len(x))[:, None, None] * freqs
    z = (first + 1j * second) * np.exp(1j * angle) * magnitude
    if adjacent:
        return np.stack([z.real, z.imag], -1).reshape(x.shape)
    return np.concatenate([z.real, z.imag], -1)


def rope(x: Array, dim: int, theta: float) -> Array:  # [T, H, D]
    """Rotates halves of the first `dim` floats against each other (arXiv 2104.09864)."""
    return np.concatenate([turn(x[..., :dim], frequencies(dim, theta)), x[..., dim:]], -1)


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


def causal_conv(x: Array, weight: Array, bias: Array | float = 0.0) -> Array:  # [T, C], [C, n]
    """Convolves each channel separately; the last tap is the row's own."""
    n = weight.shape[1]
    padded = np.concatenate([np.zeros((n - 1, x.shape[1])), x])
    return sum(padded[j : j + len(x)] * weight[:, j] for j in range(n)) + bias


def transformer(w: Weights, token_ids: list[int], n_layers: int, *, mix: Mix, feed: Mix) -> Array:
    """Pre-norm layers of a mixer and a feed-forward part; returns the final hidden states, normed."""
    x = w["token_embd"][token_ids]
    for i in range(n_layers):
        x = x + mix(rms(x, w[f"blk.{i}.attn_norm"]), i)
        x = x + feed(rms(x, w[f"blk.{i}.ffn_norm"]), i)
    return rms(x, w["output_norm"])
