"""Float64 functions of the definitions: norms, rotation, attention, activations, experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import erf
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


def rms_norm(x: Array, eps: float) -> Array:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps)


def layer_norm(x: Array, eps: float) -> Array:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps)


def silu(x: Array) -> Array:
    return x / (1.0 + np.exp(-x))


def gelu(x: Array) -> Array:
    """x times the normal distribution function of x."""
    return x * 0.5 * (1.0 + np.vectorize(erf)(x / np.sqrt(2.0)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


ACTS: Mapping[str, Callable[[Array], Array]] = {
    "silu": silu,
    "swish": silu,
    "swiglu": silu,
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": relu,
    "relu2": lambda x: relu(x) ** 2,
}


def before(x: Array) -> Array:
    """The row before each row; zeros before the first."""
    return np.vstack([np.zeros_like(x[:1]), x[:-1]])


def softmax(x: Array) -> Array:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def rotate(x: Array, theta: float, dim: int = 0, *, adjacent: bool = False, scales: Any = 1.0) -> Array:
    """RoPE (arXiv 2104.09864) of the first `dim` floats of each head of x [T, H, D]; 0: all.

    Pairs are adjacent floats, or floats of the two halves. `scales` divide the frequencies.
    """
    dim = dim or x.shape[-1]
    frequencies = theta ** (-np.arange(0, dim, 2) / dim) / scales
    angles = np.arange(len(x))[:, None, None] * frequencies  # [T, 1, dim/2]
    cos, sin = np.cos(angles), np.sin(angles)
    first = np.arange(0, dim, 2) if adjacent else np.arange(dim // 2)
    second = first + (1 if adjacent else dim // 2)
    y, a, b = x.copy(), x[..., first], x[..., second]
    y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
    return y


def alibi_slopes(n_heads: int) -> Array:
    """Slopes of ALiBi (arXiv 2108.12409): a geometric sequence, with every other of the next for the rest."""
    n = 1 << (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]
    return np.array(slopes + [2.0 ** (-4.0 * (2 * i + 1) / n) for i in range(n_heads - n)])


def attend(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float = 0.0,
    slopes: Array | None = None,
    cap: float = 0.0,
    window: int = 0,
) -> Array:
    """Causal attention of q [T, H, D] to k and v [T, K, D], each KV head for H/K adjacent heads; [T, H*D]."""
    n_rows, n_heads = len(q), q.shape[1]
    k, v = (np.repeat(x, n_heads // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) * (scale or q.shape[-1] ** -0.5)
    scores = cap * np.tanh(scores / cap) if cap else scores
    back = np.arange(n_rows)[:, None] - np.arange(n_rows)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * back
    seen = (back >= 0) & (back < (window or n_rows))
    probs = softmax(np.where(seen, scores, -np.inf))
    return np.einsum("hts,shd->thd", probs, v).reshape(n_rows, -1)


def chosen(scores: Array, n: int) -> NDArray[np.intp]:
    """Numbers of the n largest scores of each row; [T, n]."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :n]


def weighted(
    x: Array, ids: NDArray[np.intp], probs: Array, experts: Sequence[Callable[[Array], Array]]
) -> Array:
    """The sum of each row's chosen experts times their probs."""
    rows = zip(x, ids, probs, strict=True)
    return np.stack(
        [sum(p * experts[e](row[None])[0] for e, p in zip(i, ps, strict=True)) for row, i, ps in rows]
    )
