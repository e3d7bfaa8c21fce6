"""Parts of cases: seeded arrays, and weights in stored form."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.golden.quant_oracle import random_blocks

from camelid.backends.common.codecs import CODECS
from camelid.backends.common.op_runner import Quantized
from camelid.plan.weights import LoadOp

# Types of plain numbers -> the number of a value of 1, and NumPy's type.
WIDE = {
    "f64": (1.0, "<f8"),
    "i8": (99, "<i1"),
    "i16": (9999, "<i2"),
    "i32": (1e8, "<i4"),
    "i64": (1e12, "<i8"),
}


def array(seed: int, *shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def weight(type_: str, seed: int, *shape: int) -> Quantized:
    return Quantized(type_, shape, encoded(type_, array(seed, *shape, scale=shape[-1] ** -0.5)))


def encoded(type_: str, values: Any) -> bytes:
    """The values in a type; random finite blocks for a type with blocks that has no encoder."""
    codec = CODECS[type_]
    if codec.encodes:
        return codec.encode(values.reshape(-1, codec.quant.block)).tobytes()
    if type_ in WIDE:
        unit, dtype = WIDE[type_]
        return (unit * values.astype(np.float64)).astype(dtype).tobytes()
    return random_blocks(type_, values.size, n=values.size // codec.quant.block, finite=True).tobytes()


def vector(seed: int, n: int) -> Quantized:
    return Quantized("f32", (n,), array(seed, n).tobytes())


def f32(values: Any) -> Quantized:
    return Quantized("f32", values.shape, values.astype(np.float32).tobytes())


def loaded(
    to: str, shape: tuple[int, ...], stored: str, seed: int, *ops: tuple[Any, ...], n: int = 0
) -> Quantized:
    """A weight of type `to` made by load ops from `n` stored numbers; by default exactly enough for the
    shape.
    """
    size = n or int(np.prod(shape))
    raw = encoded(stored, array(seed, size, scale=shape[-1] ** -0.5))
    return Quantized(
        to, shape, raw, tuple(LoadOp(name, args) for name, *rest in ops for args in [tuple(rest)])
    )


def empty(rows: int, cols: int) -> Any:
    return np.zeros((rows, cols), np.float32)
