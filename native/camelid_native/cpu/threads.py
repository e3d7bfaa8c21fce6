"""Number of compute threads, and their processors."""

from __future__ import annotations

from collections.abc import Sequence

from camelid.backends.common.processors import allowed_processors, cpu_quota
from camelid.errors import RequestError

MAX_THREADS = 1024  # each thread needs its own stack and scratch


def processors(n_threads: int | None = None) -> list[int]:
    """Processor of each thread: `n_threads` entries, by default one per processor the process may use.

    The default also respects a container's CPU quota. More threads than processors share processors. Raises
    RequestError if `n_threads` is not in 1..MAX_THREADS.
    """
    allowed = allowed_processors()
    n = n_threads if n_threads is not None else min(len(allowed), _whole_quota(), MAX_THREADS)
    if not 1 <= n <= MAX_THREADS:
        raise RequestError(
            f"threads is {n:,}, expected an integer from 1 to {MAX_THREADS:,}", field="threads"
        )
    return [allowed[i % len(allowed)] for i in range(n)]


def may_pin(cpus: Sequence[int]) -> bool:
    """True if threads may be pinned: `cpus` are all processors that this process may use.

    Fewer threads are not pinned: two processes would both pin theirs to the first processors.
    """
    return sorted(cpus) == allowed_processors()


def _whole_quota() -> int:
    """Whole processors in a container's CPU quota; MAX_THREADS without a quota."""
    quota = cpu_quota()
    return MAX_THREADS if quota is None else max(int(quota), 1)
