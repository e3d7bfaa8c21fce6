"""Export and import of state as canonical rows, which every backend reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import pack

from camelid.backends.base import Backend
from camelid.engine.allocation import RING, CacheAllocation
from camelid.engine.kv_cache import KVCacheManager
from camelid.errors import RequestError


@dataclass(frozen=True, slots=True)
class ExportedState:
    """Canonical rows of a sequence's first `n_rows` tokens, as `Backend.read_state` returns them.

    `units` lists the bytes of consecutive units by group; `first_unit` is the page index of the first of
    them: a window group has only its last pages, a recurrent group one unit, the state after all rows.
    """

    n_rows: int
    units: Mapping[str, Sequence[bytes]]
    first_unit: Mapping[str, int]


async def export_rows(
    backend: Backend, state: KVCacheManager, token_ids: Sequence[int], salt: str
) -> ExportedState:
    """The state of the longest prefix of these tokens in the prefix cache."""
    with state.pinned_prefix(token_ids, salt) as hit:
        units: dict[str, list[bytes]] = {}
        for group, numbers in hit.units.items():
            units[group] = [await backend.read_state(group, number) for number in numbers if number]
        first = {group: hit.first_page.get(group, 0) for group in units}
        return ExportedState(hit.n_rows, units, first)


async def import_rows(
    backend: Backend, state: KVCacheManager, token_ids: Sequence[int], exported: ExportedState, salt: str
) -> int:
    """Writes exported rows to new units and caches them; returns the number of cached rows of these tokens.

    Raises RequestError if the rows do not match the tokens or the groups, or if too few units are available.
    """
    if not exported.n_rows:
        return 0
    if not 0 < exported.n_rows <= len(token_ids):
        raise RequestError(
            f"the session has {exported.n_rows} rows of {len(token_ids)} tokens", field="session"
        )
    allocation = state.allocate_imported(exported.n_rows, salt)
    if allocation is None:
        raise RequestError(
            f"there is no room now for the {exported.n_rows} rows of a session; try again when requests have "
            "ended, or load with a larger kv_rows",
            field="session",
        )
    is_complete = False
    try:
        for group, numbers in state.units(allocation).items():
            units = exported.units.get(group, ())
            _check_units(group, len(units), len(numbers))
            for number, data in zip(numbers, units, strict=True):
                await backend.write_state(group, number, data)
        is_complete = True
    finally:
        state.free(allocation, token_ids, exported.n_rows, keeps=is_complete)
    return state.match_prefix(token_ids, salt).n_rows


async def write_history(
    backend: Backend, state: KVCacheManager, allocation: CacheAllocation, token_ids: Sequence[int]
) -> None:
    """Writes the token ids of cached rows, which no step embeds, to the ring that penalties read."""
    for ring in (s for s in state.states if s.kind == RING):
        n = ring.unit_rows
        ids = [0] * n
        for i in range(max(len(token_ids) - n, 0), len(token_ids)):
            ids[i % n] = token_ids[i]
        await backend.write_state(ring.name, allocation.slots[ring.name][0], pack(f"<{n}I", *ids))


def _check_units(group: str, n: int, want: int) -> None:
    if n != want:
        raise RequestError(
            f"the session has {n} units of {group}, but its rows need {want}; save the session again",
            field="session",
        )
