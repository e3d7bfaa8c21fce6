"""How many threads compute, and on which processors."""

from __future__ import annotations

import os
from pathlib import Path

from camelid.errors import RequestError

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "max 100000", or a share of a period in microseconds


def processors(n_threads: int | None = None) -> list[int]:
    """The processors to compute on, one thread each: as many as asked, else as many as this process may use.

    More threads than processors share them. RequestError for a number that is none.
    """
    allowed = _allowed()
    n = n_threads if n_threads is not None else min(len(allowed), _quota())
    if n < 1:
        raise RequestError(f"threads is {n}, expected an integer from 1 on", field="threads")
    return [allowed[i % len(allowed)] for i in range(n)]


def _allowed() -> list[int]:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _quota() -> int:
    """Whole processors that a container's quota amounts to."""
    try:
        share, period = QUOTA.read_text(encoding="ascii").split()
        return max(int(share) // int(period), 1)
    except (OSError, ValueError):  # no such file, or "max"
        return len(_allowed())
