"""The adapters of a running model: by name, with a bound of memory, and the programs that run them.

The first adapter of a model allocates the slots and compiles the variants of its programs, so that a model
without adapters has neither. Any thread may read the pool and select from it; adapters are added on the
engine's.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from camelid.backends.base import Backend, PoolSize, reason_against
from camelid.engine.adapters import AdapterPart, RequestAdapter, last_invocation, with_adapters
from camelid.engine.engine import StepEngine
from camelid.engine.programs import PROBED
from camelid.errors import BackendError, RequestError, shown
from camelid.loading.deployment import Deployment
from camelid.model.adapter import MOST_RANK, Adapter, Selection
from camelid.plan import adapters as plans
from camelid.plan.plan import Plan

LEAST_RANK = 16  # of a slot: later adapters are often larger than the first
MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """An adapter under its name, and under a number that no later adapter of another name has.

    `scale` is that of requests that name it without a scale, `applied` that of requests that name no adapter:
    0 for none. `path` is its file, if it came from one. A private adapter is in no list, and no request can
    name it.
    """

    name: str
    adapter: Adapter
    id: int = 0
    scale: float = 1.0
    applied: float = 0.0
    path: str = ""
    is_private: bool = False

    @property
    def n_bytes(self) -> int:
        return sum(term.a.nbytes + term.b.nbytes for term in self.adapter.terms.values())


class AdapterPool:
    """Adapters of one model on its backend.

    At most `most_bytes` of adapters are kept. Beyond it, the least recently requested one that does not apply
    by itself is unloaded, and a request for it is an error that names it.
    """

    def __init__(
        self,
        backend: Backend,
        deployment: Deployment,
        engine: StepEngine,
        *,
        rank: int = 0,
        n_slots: int = 0,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._backend, self._deployment, self._engine = backend, deployment, engine
        self._rank, self._n_slots, self._most_bytes = rank, n_slots or deployment.limits.parallel, most_bytes
        self._least_rank = LEAST_RANK
        self._loaded: OrderedDict[str, LoadedAdapter] = OrderedDict()
        self._unloaded: dict[str, None] = {}  # names that the bound of memory removed
        self._next_id = 0
        self._lock = threading.Lock()  # of the three above
        self._layout: plans.AdapterLayout | None = None

    @property
    def loaded(self) -> tuple[LoadedAdapter, ...]:
        """All adapters that requests can name, the least recently requested first."""
        with self._lock:
            return tuple(loaded for loaded in self._loaded.values() if not loaded.is_private)

    @property
    def n_slots(self) -> int:
        """Different adapters that run at once."""
        return self._n_slots

    @property
    def is_open(self) -> bool:
        """True once an adapter was loaded."""
        return self._layout is not None

    def reserve(self, rank: int) -> None:
        """Makes the slots at least so wide, unless `adapter_rank` was given or they are open."""
        self._least_rank = max(self._least_rank, min(rank, MOST_RANK))

    def plans(self, program: str) -> tuple[Plan, ...]:
        """The plans of a program's variant with adapters, by row bucket."""
        assert self._layout is not None, "a request with an adapter was built from a loaded one"
        layout = self._layout
        return tuple(plans.with_adapters(plan, layout) for plan in self._deployment.plans(program))

    async def add(
        self,
        adapter: Adapter,
        compile_all: Callable[[Sequence[str]], Awaitable[None]],
        *,
        scale: float = 1.0,
        applied: float = 0.0,
        path: str = "",
        is_private: bool = False,
    ) -> LoadedAdapter:
        """Loads an adapter under its name, in place of an earlier one of that name, whose requests run on.

        `compile_all` compiles programs by name. One call at a time. Raises RequestError for an adapter that
        the slots cannot hold or that cannot apply beside others, BackendError for a backend without kernels
        for adapters, OutOfMemoryError.
        """
        loaded = LoadedAdapter(adapter.name, adapter, self._next_id, scale, applied, path, is_private)
        self._check(loaded)
        if self._layout is None:
            await self._open(adapter.rank)
        await compile_all([with_adapters(program) for program in self._deployment.loaded])
        await compile_all([with_adapters(PROBED)] if PROBED in self._engine.programs else [])
        self._check_sites(adapter)
        return self._put(loaded)

    def _put(self, loaded: LoadedAdapter) -> LoadedAdapter:
        """Makes a checked adapter known to requests."""
        with self._lock:
            former = self._loaded.get(loaded.name)
            if former and former.is_private != loaded.is_private:
                raise RequestError(f"adapter {shown(loaded.name)} has a name that is in use", field="adapter")
            loaded = replace(loaded, id=former.id) if former else loaded
            self._check_applied([*(each for each in self._loaded.values() if each is not former), loaded])
            self._next_id += former is None
            self._loaded.pop(loaded.name, None)
            self._unloaded.pop(loaded.name, None)
            self._loaded[loaded.name] = loaded
            self._evict()
        return loaded

    def remove(self, name: str) -> None:
        """Unloads an adapter. Requests that run with it run on. Raises RequestError for an unknown name."""
        with self._lock:
            self._find(name)
            del self._loaded[name]

    def remove_private(self, name: str) -> None:
        """Unloads a private adapter, if it is loaded."""
        with self._lock:
            found = self._loaded.get(name)
            if found and found.is_private:
                del self._loaded[name]

    def set_scales(self, scales: Mapping[str, float]) -> None:
        """Makes these adapters apply, with these scales, to requests that name none, and no others.

        Raises RequestError for an unknown name, a scale that is no number, and adapters that cannot act
        together; then nothing changes.
        """
        with self._lock:
            for name, scale in scales.items():
                self._find(name)
                _check_scale(name, scale)
            changed = {n: replace(each, applied=scales.get(n, 0.0)) for n, each in self._loaded.items()}
            self._check_applied(changed.values())
            self._loaded.update(changed)

    def names(self, scales: Iterable[tuple[int, float]]) -> dict[str, float]:
        """The scales of adapters by name, from their numbers. Raises RequestError for an unknown number."""
        known = {loaded.id: loaded.name for loaded in self.loaded}
        found: dict[str, float] = {}
        for id, scale in scales:
            if id not in known:
                ids = ", ".join(map(str, sorted(known))) or "none"
                raise RequestError(f"there is no adapter with the id {id}; loaded: {ids}", field="lora")
            found[known[id]] = scale
        return found

    def select(self, selection: Selection | None, prompt_ids: Sequence[int] = ()) -> RequestAdapter | None:
        """The adapters of a request; None: those that apply by themselves, empty: none.

        Of those that apply by themselves, an activated one is left out if the prompt has no invocation of it.
        Raises RequestError for an unknown name, a scale that is no number, and adapters that cannot act
        together.
        """
        with self._lock:
            chosen = self._applied(prompt_ids) if selection is None else self._chosen(selection)
        chosen = [(loaded, scale) for loaded, scale in chosen if scale != 0.0]
        return self._joined(chosen) if chosen else None

    def select_private(self, name: str, prompt_ids: Sequence[int]) -> RequestAdapter | None:
        """A private adapter for a request; None for a prompt without its invocation. Raises as `select`."""
        with self._lock:
            loaded = self._used(name, is_private=True)
        if last_invocation(loaded.adapter.invocation, prompt_ids) is None:
            return None
        return self._joined([(loaded, loaded.scale)])

    def _applied(self, prompt_ids: Sequence[int]) -> list[tuple[LoadedAdapter, float]]:
        return [
            (loaded, loaded.applied)
            for loaded in self._loaded.values()
            if loaded.applied and last_invocation(loaded.adapter.invocation, prompt_ids) is not None
        ]

    def _chosen(self, selection: Selection) -> list[tuple[LoadedAdapter, float]]:
        named = [(self._used(name), scale) for name, scale in _named(selection)]
        return [(loaded, loaded.scale if scale is None else scale) for loaded, scale in named]

    def _check_applied(self, adapters: Iterable[LoadedAdapter]) -> None:
        """Raises RequestError for adapters that apply by themselves and cannot act together."""
        applied = [(loaded, loaded.applied) for loaded in adapters if loaded.applied]
        if applied:
            self._joined(applied)

    def _joined(self, chosen: Sequence[tuple[LoadedAdapter, float]]) -> RequestAdapter:
        assert self._layout is not None, "an adapter is loaded"
        layout, each = self._layout, sorted(chosen, key=lambda one: one[0].name)
        total = sum(loaded.adapter.rank for loaded, _ in each)
        if total > layout.rank:
            raise RequestError(
                f"the adapters of this request have a rank of {total} together, and a slot {layout.rank}; "
                f"load the model with adapter_rank={total} (at most {MOST_RANK}), or name fewer adapters",
                field="adapter",
            )
        invocations = {loaded.adapter.invocation for loaded, _ in each}
        if len(invocations) > 1:
            raise RequestError(
                "the adapters of this request are activated by different tokens; name adapters with the same "
                "invocation tokens",
                field="adapter",
            )
        parts = [(loaded.adapter, scale) for loaded, scale in each]
        key = b"".join(bytes.fromhex(a.digest) + struct.pack("<d", scale) for a, scale in parts)
        name = "+".join(loaded.name for loaded, _ in each)
        digest = hashlib.sha256(key).digest()
        shown_parts = tuple(AdapterPart(one.id, one.name, one.adapter.digest, scale) for one, scale in each)
        invocation = invocations.pop()
        return RequestAdapter(name, digest, lambda: _units(layout, parts), invocation, shown_parts)

    async def _open(self, rank: int) -> None:
        """Allocates the slots. Raises BackendError for a backend without kernels for adapters."""
        deployment = self._deployment
        rank = max(self._rank or self._least_rank, rank)
        rank += -rank % 4  # kernels read four floats at a time
        can = self._backend.capabilities()
        lowered = (deployment.lowered(program) for program in deployment.programs)
        layout, name = plans.adapter_layout(lowered, rank, can.slot_type), can.name
        example = plans.with_adapters(deployment.plan(deployment.loaded[0]), layout)
        if reason := reason_against(example, can):
            raise BackendError(f"backend {name!r} runs no adapters: {reason}; choose another", backend=name)
        sizes = {state.name: PoolSize(1 + self._n_slots) for state in layout.states}
        await self._backend.allocate(layout.states, sizes)
        self._engine.adapters.n_slots = self._n_slots
        self._layout = layout

    def _check(self, loaded: LoadedAdapter) -> None:
        _check_scale(loaded.name, loaded.scale)
        _check_scale(loaded.name, loaded.applied)
        rank, most = loaded.adapter.rank, self._layout.rank if self._layout else MOST_RANK
        if rank > most:
            raise RequestError(
                f"adapter {loaded.name!r} has rank {rank}, but a slot has {most}; load the model with "
                f"adapter_rank={rank} (at most {MOST_RANK})",
                field="adapter",
            )
        if loaded.n_bytes > self._most_bytes:
            raise RequestError(
                f"adapter {loaded.name!r} has {loaded.n_bytes:,} bytes, and all adapters together may have "
                f"{self._most_bytes:,}",
                field="adapter",
            )

    def _check_sites(self, adapter: Adapter) -> None:
        """Raises RequestError for a term of a matrix that the model does not have, or of another shape."""
        assert self._layout is not None, "the slots are open"
        sites = self._layout.sites
        for name, term in adapter.terms.items():
            site, shape = sites.get(name), (term.n_in, term.n_out, term.experts)
            if site is None or (site.n_in, site.n_out, site.experts) != shape:
                have = f"has the shape {(site.n_out, site.n_in)}" if site else "has no such linear map"
                raise RequestError(
                    f"adapter {adapter.name!r} changes {name} [{term.n_out}, {term.n_in}], but this model "
                    f"{have}; use the model that the adapter was trained for",
                    field="adapter",
                )

    def _find(self, name: str, *, is_private: bool = False) -> LoadedAdapter:
        found = self._loaded.get(name)
        if found and found.is_private == is_private:
            return found
        names = [name for name, loaded in self._loaded.items() if not loaded.is_private]
        known = ", ".join(map(repr, names)) or "none"
        why = "was unloaded for others; load it again" if name in self._unloaded else "is unknown"
        raise RequestError(f"adapter {shown(name)} {why}; loaded: {known}", field="adapter")

    def _used(self, name: str, *, is_private: bool = False) -> LoadedAdapter:
        loaded = self._find(name, is_private=is_private)
        self._loaded.move_to_end(name)
        return loaded

    def _evict(self) -> None:
        """Unloads the least recently requested adapters beyond the bound, but not the latest."""
        for name in [name for name, loaded in self._loaded.items() if not loaded.applied][:-1]:
            if sum(loaded.n_bytes for loaded in self._loaded.values()) <= self._most_bytes:
                return
            del self._loaded[name]
            self._unloaded[name] = None


def _units(layout: plans.AdapterLayout, parts: Sequence[tuple[Adapter, float]]) -> dict[str, bytes]:
    """The bytes of a slot by state group."""
    if layout.kv_type == "f32":
        return plans.pack(layout, _by_site(parts))
    from camelid.backends.common.halves import halve  # here, since a page has no NumPy

    return plans.pack(layout, _by_site(parts), halve)


def _named(selection: object) -> Iterator[tuple[str, float | None]]:
    """(name, scale) of a selection; a scale of None is the adapter's own."""
    if isinstance(selection, str):
        yield from [(selection, None)] if selection else []
        return
    items: Iterable[object] = ()
    if isinstance(selection, Mapping):
        items = cast("Mapping[object, object]", selection).items()
    elif isinstance(selection, list | tuple):
        items = cast("Sequence[object]", selection)
    else:
        raise _no_selection(selection)
    for item in items:
        name, scale = cast("tuple[object, object]", item) if _is_pair(item) else (item, None)
        if not isinstance(name, str):
            raise _no_selection(cast("object", selection))
        yield name, None if scale is None else _check_scale(name, scale)


def _is_pair(item: object) -> bool:
    return isinstance(item, list | tuple) and len(cast("Sequence[object]", item)) == 2


def _no_selection(selection: object) -> RequestError:
    return RequestError(
        f"adapter is {shown(selection)}, expected a name, a list of names or of (name, scale), or a scale "
        "for each name",
        field="adapter",
    )


def _check_scale(name: str, scale: object) -> float:
    if isinstance(scale, int | float) and not isinstance(scale, bool) and abs(scale) <= 1e6:
        return float(scale)
    raise RequestError(f"the scale of adapter {name!r} is {shown(scale)}, expected a number", field="adapter")


def _by_site(parts: Sequence[tuple[Adapter, float]]) -> dict[str, list[tuple[plans.Term, float]]]:
    """The terms of adapters by weight name, with their scales."""
    sites: dict[str, list[tuple[plans.Term, float]]] = {}
    for adapter, scale in parts:
        for name, term in adapter.terms.items():
            sites.setdefault(name, []).append((term, scale))
    return sites
