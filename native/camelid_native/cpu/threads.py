"""How many threads compute, and on which processors."""

from __future__ import annotations

from collections.abc import Sequence

from camelid.backends.common.processors import allowed_processors, cpu_quota
from camelid.errors import RequestError

MAX_THREADS = 1024  # each has a stack and scratch of its own


def processors(n_threads: int | None = None) -> list[int]:
    """The processors to compute on, one thread each: as many as asked, else as many as this process may use.

    More threads than processors share them. RequestError for a number that is none, or above `MAX_THREADS`.
    """
    allowed = allowed_processors()
    n = n_threads if n_threads is not None else min(len(allowed), _whole_quota(), MAX_THREADS)
    if not 1 <= n <= MAX_THREADS:
        raise RequestError(
            f"threads is {n:,}, expected an integer from 1 to {MAX_THREADS:,}", field="threads"
        )
    return [allowed[i % len(allowed)] for i in range(n)]


def may_pin(cpus: Sequence[int]) -> bool:
    """Whether each thread may be bound to its processor: if they are all that there are. Who takes but some
    of them leaves it to the system which, or two processes would both take the first."""
    return sorted(cpus) == allowed_processors()


def _whole_quota() -> int:
    """Whole processors that a container's quota amounts to."""
    quota = cpu_quota()
    return MAX_THREADS if quota is None else max(int(quota), 1)
