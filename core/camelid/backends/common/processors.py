"""Processors that this process may use, as the system says it."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def allowed_processors() -> list[int]:
    """Their numbers, the lowest first."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_quota(cgroup: Path = CGROUP) -> float | None:
    """Processors that a container's quota amounts to; None without a quota. Cgroups of version 2, else 1."""
    words = _read(cgroup / "cpu.max").split() or [
        _read(cgroup / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    try:
        quota, period = map(int, words)
    except ValueError:  # no such files, or "max"
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
