"""State in and out of MLX: the bytes of every backend, and sessions that move to the reference and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.backends.base import OpenSpec, PoolSize
from camelid.backends.reference.backend import ReferenceBackend
from camelid.plan.plan import StateSpec
from camelid_native.mlx.backend import open_backend

KV_TYPES = ("f32", "f16", "q8_0", "q4_0", "two-tier")
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 10}
GROUPS = [
    *(StateSpec(kv_type, "paged", (0, 3), (("k", 64), ("v", 32)), 16, kv_type) for kv_type in KV_TYPES[:4]),
    StateSpec("slots", "recurrent", (1,), (("conv", 30), ("scan", 12)), 1),
    StateSpec("tokens", "ring", (), (("id", 1),), 128),
]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_a_unit_s_bytes_are_those_of_the_reference(group: StateSpec) -> None:
    """A written unit is read back as it is, its neighbours unchanged; both backends agree on its size."""
    size = group.unit_bytes if group.kind != "ring" else 4 * group.unit_rows
    data = np.random.default_rng(5).integers(0, 256, size, np.uint8).tobytes()

    async def kept(backend: Any) -> list[bytes]:
        await backend.open(OpenSpec())
        await backend.allocate([group], {group.name: PoolSize(4, 2, 2)})
        await backend.write_state(group.name, 2, data)
        units = [await backend.read_state(group.name, unit) for unit in range(4)]
        await backend.close()
        return units

    got, want = (asyncio.run(kept(backend)) for backend in (open_backend(), ReferenceBackend()))
    assert got == want == [bytes(size), bytes(size), data, bytes(size)]


def test_a_written_unit_keeps_the_order_of_arrays() -> None:
    """Compiled functions know arrays of state by their order alone."""
    from camelid_native.mlx.states import States

    states = States(GROUPS, {group.name: PoolSize(4, 2, 2) for group in GROUPS})
    before = list(states.arrays)
    for group in GROUPS[:2]:
        states.write(group.name, 2, bytes(group.unit_bytes))
    assert list(states.arrays) == before


@pytest.mark.parametrize("way", [("mlx", "reference"), ("reference", "mlx")], ids="-".join)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_sessions_move_between_backends(kv_type: str, way: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, seed=5, hidden=64, head_dim=16, ffn=96, context=1024)
    how: dict[str, Any] = {"context": 1024, "kv_type": kv_type}
    first, second = way
    with camelid.load(path, backend=first, **how) as llm:
        session = llm.session("talk")
        session.generate("the llama and the alpaca walked over the mountain", **GREEDY)
        session.save(tmp_path / "s")
        wanted = session.fork().generate("so", **GREEDY).token_ids
    with camelid.load(path, backend=second, **how) as llm:
        done = llm.restore(tmp_path / "s").generate("so", **GREEDY)
        assert done.usage.cached_tokens >= len(session.token_ids) - 1, "rows were recomputed"
        assert done.token_ids == wanted
