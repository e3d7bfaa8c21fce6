"""Units that an idle engine failed to free."""

from __future__ import annotations

from collections.abc import Iterator

from camelid.engine.engine import StepEngine
from camelid.engine.kv_cache import KVCacheManager


def leaks(engine: StepEngine) -> Iterator[str]:
    """Errors of an idle engine: in every group, free and cached units together must be all units."""
    counters = engine.counters
    n_ended = counters.steps_retired + counters.lost_steps
    if counters.steps_submitted != n_ended:
        yield f"{counters.steps_submitted} steps submitted, {n_ended} retired or lost"
    if engine.n_running or engine.n_waiting or engine._sequences or engine._pending:
        yield f"{engine.n_running} requests run, {engine.n_waiting} wait"
    yield from _units(engine.state)
    if engine.adapters.in_use:
        yield f"{engine.adapters.in_use} adapter slots are held without a sequence"
    if not engine.is_idle:
        yield "the engine is not idle"


def _units(state: KVCacheManager) -> Iterator[str]:
    """Errors of each group's pool and of the prefix cache, which must list exactly the cached units."""
    if state._rows.n_free != state.n_sequences:
        yield f"{state.n_sequences - state._rows.n_free} allocations are held"
    named = state._reuse._cache._entries
    for group, pool in state._pools.items():
        idle = set(pool._evictable)
        if len(pool._free) + len(idle) != pool.n_units or set(pool._free) & idle:
            yield f"{group}: {len(pool._free)} free + {len(idle)} cached units of {pool.n_units}"
        if any(pool._ref_counts):
            yield f"{group}: units are held without a sequence"
        known = {unit for name, unit in named if name == group}
        if known != idle:
            yield f"{group}: units {sorted(known ^ idle)} are cached or known to the cache, not both"
