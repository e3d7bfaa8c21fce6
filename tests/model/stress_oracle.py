"""Plain models in float64 NumPy, written from the papers: what stress shapes are compared with.

Nothing here comes from camelid, and nothing is done its way: whole sequences at once, no pages, no steps, no
state but a Python variable. Weights are by GGUF name.
"""

from __future__ import annotations

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


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x: Array, gain: Array, eps: float = 1e-5) -> Array:
    """Over the last axis (Zhang and Sennrich, arXiv 1910.07467)."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def swiglu(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def rope(x: Array, dim: int, theta: float) -> Array:  # [T, H, D]
    """Halves of the first `dim` floats turn against each other (arXiv 2104.09864)."""
    angle = np.arange(len(x))[:, None, None] * theta ** (-np.arange(0, dim, 2) / dim)
    a, b = x[..., : dim // 2], x[..., dim // 2 : dim]
    turned = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return np.concatenate([*turned, x[..., dim:]], -1)


def causal_attention(q: Array, k: Array, v: Array, scale: float) -> Array:  # [T, H, D], [T, K, D] -> [T, H*D]
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) * scale
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    return np.einsum("hts,shd->thd", softmax(scores), v).reshape(len(q), -1)


def causal_conv(x: Array, weight: Array, bias: Array | float = 0.0) -> Array:  # [T, C], [C, n]
    """Each channel by itself; the last tap is the row's own."""
    n = weight.shape[1]
    padded = np.concatenate([np.zeros((n - 1, x.shape[1])), x])
    return sum(padded[j : j + len(x)] * weight[:, j] for j in range(n)) + bias


def transformer(w: Weights, token_ids: list[int], n_layers: int, *, mix: Mix, feed: Mix) -> Array:
    """Pre-norm layers of a mixer and a feed-forward block; the final hidden states, normed."""
    x = w["token_embd"][token_ids]
    for i in range(n_layers):
        x = x + mix(rms(x, w[f"blk.{i}.attn_norm"]), i)
        x = x + feed(rms(x, w[f"blk.{i}.ffn_norm"]), i)
    return rms(x, w["output_norm"])
