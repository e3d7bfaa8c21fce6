"""Reports of long operations: fetching, loading, writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# An activity, file or tensor; the amount done; the amount in all.
Progress: TypeAlias = Callable[[str, int, int], object]
