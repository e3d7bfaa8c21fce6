"""The memory of all models: what each will take, what the machine has, and what is held."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from camelid.loading.forecast import predict_file
from camelid.loading.options import LoadOptions
from camelid.server.http.errors import ApiError, retry_later

SHARE = 0.9  # of the machine's memory, without --memory
# Most bytes that a container may use, in either version of control groups.
LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


async def need_of(file: str, options: LoadOptions, *, with_gpus: bool) -> int:
    """Bytes that a model will take, worked out from its header in a thread. Raises as `camelid.load`."""
    on_machine, on_gpus = await asyncio.to_thread(lambda: asyncio.run(predict_file(file, options)))
    return on_machine + on_gpus if with_gpus else on_machine


def machine_bytes() -> int | None:
    """The memory of this machine or container; None where the system does not say."""
    found: list[int] = []
    with suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in LIMIT_FILES:
        with suppress(OSError, ValueError):  # absent, or "max"
            found.append(int(Path(name).read_text()))
    return min(found, default=None)


@dataclass(slots=True)
class Memory:
    """The bound of all models, and the bytes that each load holds until it is freed.

    Without `limit` the bound is a share of the machine's memory, which models on GPUs do not use.
    """

    limit: int | None = None
    machine: Callable[[], int | None] = machine_bytes
    held: dict[object, int] = field(default_factory=dict[object, int])

    @property
    def bound(self) -> int | None:
        """Most bytes of all models."""
        if self.limit is not None:
            return self.limit
        machine = self.machine()
        return None if machine is None else int(machine * SHARE)

    @property
    def n_held(self) -> int:
        """Bytes of the models that are loaded, loading or closing."""
        return sum(self.held.values())

    async def need(self, file: str, options: LoadOptions) -> int:
        """Bytes that a model will take within the bound; 0 where there is no bound."""
        if self.bound is None:
            return 0
        return await need_of(file, options, with_gpus=self.limit is not None)


def never_fits(name: str, need: int, bound: int, kept: int) -> ApiError:
    """The refusal of a model that is larger than the bound."""
    pinned = f", of which models that are never unloaded hold {kept:,}" if kept else ""
    return ApiError(
        400, f"the model {name!r} needs {need:,} bytes, but all models may hold {bound:,}{pinned}; lower its "
        "context or kv_rows, or raise --memory", code="model_too_large", param="model",
        need_bytes=need, limit_bytes=bound,
    )  # fmt: skip


def no_room(name: str, need: int, bound: int, held: int, seconds: float) -> ApiError:
    """The refusal of a model that fits once another has done its work."""
    return retry_later(
        503, f"the model {name!r} needs {need:,} bytes, but models that work hold {held:,} of {bound:,}; try "
        "again later", seconds, "no_memory_now",
    )  # fmt: skip
