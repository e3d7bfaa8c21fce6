"""Attention by its definition in float64, and cases to compare."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult, Quantized, run_case
from camelid_native.cpu.backend import open_backend

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Tiers = tuple[F64, F64]  # of equal rows: the store, the tail
TAIL, BATCH = 256, 64  # KIVI's residual, as declared in plan/tiers.py


def normal(seed: int, *shape: int) -> F32:
    return _drawn(seed, *shape).copy()


@cache
def _drawn(seed: int, *shape: int) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def stored(kv_type: str, rows: F32) -> F64:
    """Rows after quantization and dequantization by the gguf package."""
    type_id = GGMLQuantizationType[kv_type.upper()]
    return dequantize(quantize(rows, type_id), type_id).astype(np.float64)


def run(case: OpCase, variant: str, threads: int = 1) -> OpResult:
    """Runs the case on the CPU backend."""

    async def result() -> OpResult:
        backend = open_backend()
        await backend.open(OpenSpec(adapter=variant, threads=threads))
        try:
            return await run_case(backend, case)
        finally:
            await backend.close()

    return asyncio.run(result())


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Heads of an attention op, the contents of its state, and the attributes of the read."""

    heads: tuple[int, int] = (4, 2)  # of queries, of keys and values
    dims: tuple[int, int] = (64, 64)  # of keys, of values
    kv_type: str = "f32"
    has_values: bool = True  # False: values are the first columns of the keys
    has_tail: bool = False
    first_kept: int = 0
    tail_kept: int = 0  # 0: the tail starts at the border
    sinks: bool = False
    bias: int = 0  # rows of the bias
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

    def __str__(self) -> str:
        words = (*self.heads, *self.dims, self.kv_type, *self.attrs, *(["tail"] if self.has_tail else []))
        return "-".join(map(str, words))

    def queries(self, n: int) -> F32:
        return normal(n, n, self.heads[0] * self.dims[0])

    def held(self, n: int) -> tuple[F32, F32 | None]:
        keys = normal(1, n, self.heads[1] * self.dims[0])
        return keys, normal(2, n, self.heads[1] * self.dims[1]) if self.has_values else None

    @property
    def weights(self) -> dict[str, F32]:
        made = {"sinks": normal(3, self.heads[0])} if self.sinks else {}
        return made | ({"bias": normal(4, self.bias, self.heads[0])} if self.bias else {})

    def case(self, positions: Sequence[int], n: int, q: F32 | None = None, **more: Any) -> OpCase:
        """Rows at these positions of a sequence of n rows."""
        q = self.queries(len(positions)) if q is None else q
        keys, values = self.held(n)
        y = np.zeros((len(positions), self.heads[0] * self.dims[1]), np.float32)
        weights = {name: Quantized("f32", w.shape, w.tobytes()) for name, w in self.weights.items()}
        sizes = {"n_heads": self.heads[0], "n_kv_heads": self.heads[1], "scale": self.dims[0] ** -0.5}
        facts: dict[str, Any] = {
            "views": {"y": y, "q": q}, "weights": weights, "positions": positions, "keys": keys,
            "values": values, "kv_type": self.kv_type, "has_tail": self.has_tail,
            "first_kept": self.first_kept, "tail_kept": self.tail_kept or None,
            "attrs": {**sizes, **self.attrs},
        }  # fmt: skip
        return OpCase(op="attention", **(facts | more))

    def tiers(self, rows: F32) -> tuple[F64, F64]:
        """Rows of the store, and rows of the tail."""
        return stored(self.kv_type, rows), stored("f16", rows)

    def row(self, q: F64, at: int, held: int, keys: Tiers | None, values: Tiers | None) -> F64:
        seen = self._seen(at, held)
        assert keys is not None
        k, v = self._read(keys, at)[seen], None if values is None else self._read(values, at)[seen]
        return np.concatenate([self._head(h, q, at, seen, k, v) for h in range(self.heads[0])])

    def _seen(self, at: int, held: int) -> Any:  # [keys]
        window = self.attrs.get("window", 0)
        if self.attrs.get("mask") == "held":
            return np.arange(self.first_kept, held)
        seen = np.arange(max(self.first_kept, at - window + 1 if window else 0), at + 1)
        return seen[(seen < self._border(at)) | (seen >= self.tail_kept)]

    def _border(self, at: int) -> int:
        """First tail row that a query at this position reads."""
        return max(0, (at + 1 - TAIL) // BATCH * BATCH) if self.has_tail else at + 1

    def _read(self, tiers: Tiers, at: int) -> F64:
        """Rows that a query at this position reads."""
        store, tail = tiers
        return np.concatenate([store[: self._border(at)], tail[self._border(at) :]])

    def _head(self, h: int, q: F64, at: int, seen: Any, keys: F64, values: F64 | None) -> F64:
        (n_heads, n_kv_heads), (k_dim, v_dim) = self.heads, self.dims
        kv = h // (n_heads // n_kv_heads)
        own = keys[:, kv * k_dim : (kv + 1) * k_dim]
        scores = own @ q[h * k_dim : (h + 1) * k_dim] * self.attrs.get("scale", k_dim**-0.5)
        if cap := self.attrs.get("softcap"):
            scores = cap * np.tanh(scores / cap)
        if self.bias:
            scores = scores + self.weights["bias"][np.minimum(at - seen, self.bias - 1), h]
        e = np.exp(scores - scores.max())
        total = e.sum() + (np.exp(self.weights["sinks"][h] - scores.max()) if self.sinks else 0.0)
        value = own[:, :v_dim] if values is None else values[:, kv * v_dim : (kv + 1) * v_dim]
        return e @ value / total


@cache
def definition(shape: Shape, positions: range, n: int) -> F64:
    """Expected output of a shape's case; cached, so each kernel variant is compared with one array."""
    q = shape.queries(len(positions)).astype(np.float64)
    held = [None if rows is None else shape.tiers(rows) for rows in shape.held(n)]
    return np.stack([shape.row(each, at, positions[0], *held) for each, at in zip(q, positions, strict=True)])
