"""Several devices behind one backend: their missing weights, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from camelid.backends.base import Backend, Sources
from camelid.plan.plan import Plan


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
