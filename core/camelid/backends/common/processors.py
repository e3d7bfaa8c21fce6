"""Processors that this process may use, by affinity and by the quota of its container."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def allowed_processors() -> list[int]:
    """Numbers of the processors that this process may use, lowest first."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_quota(cgroup: Path = CGROUP) -> float | None:
    """The quota of the container in processors, e.g. 1.5; None without a quota. Reads cgroup v2, else v1."""
    words = _read(cgroup / "cpu.max").split() or [
        _read(cgroup / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    try:
        quota, period = map(int, words)
    except ValueError:  # the files are absent, or the quota is "max"
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
