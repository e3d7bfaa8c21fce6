"""Slots of a tensor-parallel model: a device's bytes are those of a slot of its part of each matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from camelid.backends.common.halves import halve
from camelid.model.adapter import LowRank
from camelid.plan.adapter_shares import slot_shares
from camelid.plan.adapters import AdapterLayout, Shape, Site, pack
from camelid.plan.op_rows_adapters import KIND, slot_cols, slot_rank
from camelid.plan.plan import StateSpec

LAYERS, RANK = (0, 2), 8
SHAPES: dict[str, Shape] = {"q": (24, 16, 0), "o": (16, 24, 0), "up": (24, 32, 3), "down": (32, 24, 3)}
DIVIDED = {"q": "out", "o": "in", "up": "out", "down": "in"}  # columns that are divided among devices
WHOLE = ("router", (24, 5, 0))  # on every device; an odd number of values in all

rng = np.random.default_rng(5)


def layout(shapes: dict[str, Shape], kv_type: str) -> AdapterLayout:
    names = [f"blk.{{}}.{name}" for name in shapes]
    tensors = tuple((f"{i}", slot_cols(RANK, *shape, kv_type)) for i, shape in enumerate(shapes.values()))
    state = StateSpec("adapters.0", KIND, LAYERS, tensors, 1, kv_type, matrices=tuple(names))
    sites = {
        name.format(layer): Site("adapters.0", layer, i, *shape)
        for layer in LAYERS
        for i, (name, shape) in enumerate(zip(names, shapes.values(), strict=True))
    }
    return AdapterLayout(RANK, sites, (state,), kv_type)


def by_layer(shapes: dict[str, Shape]) -> dict[str, Shape]:
    return {f"blk.{layer}.{name}": shape for layer in LAYERS for name, shape in shapes.items()}


def term(a: Any, b: Any) -> LowRank:  # [E, R, in], [E, out, R]
    experts = len(a) if len(a) > 1 else 0
    floats = [memoryview(np.ascontiguousarray(each).tobytes()).cast("f") for each in (a, b)]
    sizes = {"rank": a.shape[1], "n_in": a.shape[2], "n_out": b.shape[1], "experts": experts}
    return LowRank(**sizes, scale=0.5, a=floats[0], b=floats[1])


def part(name: str, shape: Shape, n: int) -> Shape:
    """The shape of a device's part of a matrix."""
    (n_in, n_out, experts), divided = shape, DIVIDED.get(name)
    return n_in // (n if divided == "in" else 1), n_out // (n if divided == "out" else 1), experts


def of_device(name: str, a: Any, b: Any, i: int, n: int) -> tuple[Any, Any]:
    """Device i's part of a term of a matrix `blk.N.NAME`."""
    divided = DIVIDED.get(name.rpartition(".")[2])
    if divided == "in":
        return np.split(a, n, axis=2)[i], b
    return a, np.split(b, n, axis=1)[i] if divided else b


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.parametrize("n", [2, 4])
def test_a_device_has_the_slot_of_its_parts(n: int, kv_type: str) -> None:
    whole = SHAPES | dict([WHOLE])
    own = {name: part(name, shape, n) for name, shape in whole.items()}
    values = {
        name: [rng.normal(size=size).astype(np.float32) for size in ((max(e, 1), 3, i), (max(e, 1), o, 3))]
        for name, (i, o, e) in by_layer(whole).items()
    }
    rounding = halve if kv_type == "f16" else None
    full = layout(whole, kv_type)
    (unit,) = pack(full, {name: [(term(*both), 1.0)] for name, both in values.items()}, rounding).values()
    shares = slot_shares(full.states, by_layer(whole), by_layer(own), n)
    assert shares.own == layout(own, kv_type)
    units = shares.split("adapters.0", unit)
    for i in range(n):
        cut = {name: [(term(*of_device(name, a, b, i, n)), 1.0)] for name, (a, b) in values.items()}
        if kv_type == "f32":  # a power of two of its own divides a part in f16
            assert units[i] == pack(shares.own, cut)["adapters.0"]
    assert shares.join("adapters.0", units) == unit


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.parametrize("shape", [(24, 16, 0), (24, 5, 0), (2048, 768, 128)])
def test_the_capacity_of_a_slot(shape: Shape, kv_type: str) -> None:
    for rank in (4, 8, 12, 16, 64):
        assert slot_rank(slot_cols(rank, *shape, kv_type), *shape, kv_type) == rank
