"""What an idle engine must have given back."""

from __future__ import annotations

from collections.abc import Iterator

from camelid.engine.engine import StepEngine
from camelid.engine.kv_cache import KVCacheManager


def leaks(engine: StepEngine) -> Iterator[str]:
    """What is wrong where no request is left: free + cached units must be all units, in every group."""
    counters = engine.counters
    if counters.steps_submitted != counters.steps_retired:
        yield f"{counters.steps_submitted} steps submitted, {counters.steps_retired} retired"
    if engine.n_running or engine.n_waiting or engine._sequences or engine._pending:
        yield f"{engine.n_running} requests run, {engine.n_waiting} wait"
    yield from _units(engine.state)
    if not engine.is_idle:
        yield "the engine is not idle"


def _units(state: KVCacheManager) -> Iterator[str]:
    """Pools by group, and the prefix cache: it names each unit that is kept for it, and no other."""
    if state.n_free_allocations != state.n_sequences:
        yield f"{state.n_sequences - state.n_free_allocations} allocations are held"
    named = state._reuse._cache._entries
    for group, pool in state._pools.items():
        idle = set(pool._evictable)
        if len(pool._free) + len(idle) != pool.n_units or set(pool._free) & idle:
            yield f"{group}: {len(pool._free)} free + {len(idle)} cached units of {pool.n_units}"
        if any(pool._ref_counts):
            yield f"{group}: nobody is left, and units are held"
        known = {unit for name, unit in named if name == group}
        if known != idle:
            yield f"{group}: units {sorted(known ^ idle)} are cached or known to the cache, not both"
