"""Several devices behind one backend: their missing weights, their state groups, and their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack

from camelid.backends.base import Backend, PoolSize, Sources
from camelid.errors import BackendError
from camelid.plan.plan import Plan, StateSpec

Group = tuple[StateSpec, PoolSize]


class DeviceStates:
    """The state groups of a model by name, and those of each of its devices."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.whole: dict[str, StateSpec] = {}
        self.own: list[dict[str, Group]] = [{} for _ in backends]
        self._backends = backends

    def clear(self) -> None:
        """Forgets all groups, whose memory a closed device has freed."""
        self.whole, self.own = {}, [{} for _ in self._backends]

    async def allocate(
        self,
        states: Sequence[StateSpec],
        parts: Sequence[Sequence[StateSpec]],
        units: Mapping[str, PoolSize],
        named: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        """Allocates each device's part of these groups, as `Backend.allocate`; `named` adds it to errors.

        After a failure the groups are unknown, and a device that has its part keeps it for the next call.
        """
        if any(state.name in self.whole for state in states):
            self.clear()
        for i, (backend, part) in enumerate(zip(self._backends, parts, strict=True)):
            with named(i):
                await self._add(backend, self.own[i], {s.name: (s, units[s.name]) for s in part})
        self.whole |= {state.name: state for state in states}

    async def _add(self, backend: Backend, own: dict[str, Group], part: dict[str, Group]) -> None:
        if part.items() <= own.items():
            return
        if part.keys() & own.keys():  # another allocation of them would replace all state of the device
            raise BackendError(
                "this device has these state groups in another size, from an allocation that failed on "
                "another device; load the model anew",
                backend=backend.capabilities().name,
            )
        await backend.allocate(
            [state for state, _ in part.values()], {name: size for name, (_, size) in part.items()}
        )
        own |= part


async def load_missing(backend: Backend, plan: Plan, loaded: set[str], sources: Sources) -> None:
    """Loads the weights of a device's plan whose names are not in `loaded`, and adds them."""
    missing = {name: weight for name, weight in plan.weights().items() if name not in loaded}
    named = {part.source for weight in missing.values() for part in weight.parts} & sources.keys()
    if missing:
        await backend.load(list(missing.values()), {name: sources[name] for name in named})
        loaded.update(missing)


async def close_each(backends: Sequence[Backend]) -> None:
    """Closes every device, the last first, even if one of them fails."""
    async with AsyncExitStack() as closing:
        for backend in backends:
            closing.push_async_callback(backend.close)
