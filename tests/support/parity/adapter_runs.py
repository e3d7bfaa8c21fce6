"""Runs a model with random adapters on a backend: a plain program, then one with adapters, on one device."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.support.model.file_runs import Loaded
from tests.support.model.runs import Logits, Started, Steps, make_plan, make_state, start

from camelid.backends.base import Backend, PoolSize
from camelid.backends.common.halves import halve
from camelid.model.adapter import LowRank
from camelid.model.spec_reader import at_context
from camelid.plan.adapters import AdapterLayout, Halve, Site, adapter_layout, pack, with_adapters
from camelid.plan.fuse import fuse

CAPACITY = 8
RANKS = (8, 3)  # of the adapters in slots 1 and 2
Slots = Sequence[int]


@dataclass(frozen=True, slots=True)
class Runs:
    """Logits of a program without adapters, and for each choice of slots of the program with them."""

    plain: Logits
    adapted: Sequence[Logits]


def random_term(name: str, site: Site, rank: int) -> LowRank:
    """A term about as large as the matrix's own product."""
    rng, n = np.random.default_rng(zlib.crc32(f"{name} {rank}".encode())), max(site.experts, 1)
    a = rng.standard_normal((n, rank, site.n_in)) * site.n_in**-0.5
    b = rng.standard_normal((n, site.n_out, rank)) * rank**-0.5
    sizes = {"rank": rank, "n_in": site.n_in, "n_out": site.n_out, "experts": site.experts}
    return LowRank(**sizes, scale=0.5, a=_floats(a), b=_floats(b))


def _floats(values: Any) -> memoryview[float]:
    return memoryview(values.astype(np.float32).tobytes()).cast("f")


def rounding(layout: AdapterLayout) -> Halve | None:
    return halve if layout.kv_type == "f16" else None


def units_of(layout: AdapterLayout) -> list[Mapping[str, bytes]]:
    """The units of both adapters; the second one changes every other matrix."""
    some = dict(list(layout.sites.items())[::2])
    return [
        pack(
            layout,
            {name: [(random_term(name, site, rank), 1.0)] for name, site in sites.items()},
            rounding(layout),
        )
        for rank, sites in zip(RANKS, (layout.sites, some), strict=True)
    ]


def run(
    backend: Backend,
    loaded: Loaded,
    prompts: Sequence[Sequence[int]],
    steps: Steps,
    choices: Sequence[Slots],
    *,
    adapter: str = "",
    kv_type: str = "f32",
    fused: frozenset[str] | None = None,
    slot_type: str = "f32",
) -> Runs:
    """`fused` are the rewrites; None: those that the backend has before it is opened."""
    rewrites = backend.capabilities().fused if fused is None else fused
    return asyncio.run(_run(backend, loaded, prompts, steps, choices, adapter, kv_type, rewrites, slot_type))


async def _run(
    backend: Backend,
    loaded: Loaded,
    prompts: Sequence[Sequence[int]],
    steps: Steps,
    choices: Sequence[Slots],
    adapter: str,
    kv_type: str,
    fused: frozenset[str],
    slot_type: str,
) -> Runs:
    longest, n = max(map(len, prompts)), len(prompts)
    model = at_context(loaded.model, longest)
    whole = make_plan(model, max(map(sum, steps)), n, context=longest, kv_type=kv_type)
    layout, plan = adapter_layout([whole], CAPACITY, slot_type), fuse(whole, fused)
    state = make_state(plan.states, context=longest, n_sequences=n)
    try:
        first = await start(backend, [plan], state, sources=loaded.sources, adapter=adapter)
        plain = await first.feed([first.open_stream(ids) for ids in prompts], steps)
        second = await _with_slots(first, layout)
        adapted = [await _feed(second, prompts, steps, slots) for slots in choices]
        again = await _feed(replace(second, programs=first.programs), prompts, steps, [0] * n)
    finally:
        await backend.close()
    assert bits(again) == bits(plain), "the program before the adapters has changed"
    return Runs(plain, adapted)


async def _with_slots(plain: Started, layout: AdapterLayout) -> Started:
    """The same device with the groups of adapters added, and a program with adapters."""
    ((_, plan),) = plain.programs.values()
    await plain.backend.allocate(layout.states, {s.name: PoolSize(1 + len(RANKS)) for s in layout.states})
    for number, units in enumerate(units_of(layout), 1):
        for group, data in units.items():
            await plain.backend.write_state(group, number, data)
            assert await plain.backend.read_state(group, number) == data
    more = with_adapters(plan, layout)
    weights = {name: w for name, w in more.weights().items() if name not in plan.weights()}
    assert not weights, f"weights of the program with adapters alone: {', '.join(weights)}"
    return replace(plain, programs={"mixed": (await plain.backend.compile(more), more)})


async def _feed(started: Started, prompts: Sequence[Sequence[int]], steps: Steps, slots: Slots) -> Logits:
    states, longest = started.state.states, max(map(len, prompts))
    state = make_state(states, context=longest, n_sequences=len(prompts))
    fresh = replace(started, state=state)
    streams = [fresh.open_stream(ids) for ids in prompts]
    for stream, slot in zip(streams, slots, strict=True):
        stream.adapter = slot
    return await fresh.feed(streams, steps)


def bits(logits: Logits) -> list[bytes]:
    return [rows.tobytes() for rows in logits]
