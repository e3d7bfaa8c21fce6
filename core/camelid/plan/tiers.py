"""Two-tier KV cache: recent rows at full precision (the tail) beside a quantized store of all rows.

KIVI (arXiv 2402.02750) has such a residual. Here the store contains every row from the start, and the border
between the tiers moves in batches.

The tier that a query reads for a key depends on their two state rows alone. So every chunk size, a hit in the
prefix cache and a fork all read the same bits.
"""

from __future__ import annotations

TAIL = 256  # least number of rows, the query's own included, that a query reads at full precision
BATCH = 64  # rows by which the border moves at once
TAIL_WINDOW = TAIL + BATCH  # rows of the tail that a later query may read
SUFFIX = "_tail"


def first_tail_row(state_row: int) -> int:
    """First row that the query at `state_row` reads from the tail; it reads earlier rows from the store."""
    return max(0, (state_row + 1 - TAIL) // BATCH * BATCH)


def tail_of(group: str) -> str:
    """Name of the tail group of `group`."""
    return group + SUFFIX


def is_tail(group: str) -> bool:
    """True if `group` is the tail of another group."""
    return group.endswith(SUFFIX)
