"""Two-tier state: recent rows at full precision beside a quantized store of all rows.

KIVI (arXiv 2402.02750) keeps such a residual. Here the store holds every row from the start, and the border
moves in batches.

Which tier a query reads for a key depends on their two state rows alone, never on how the rows came to be
there: any chunk size, a prefix hit or a fork reads the same bits.
"""

from __future__ import annotations

TAIL = 256  # each query reads at least so many rows, itself the last, at full precision
BATCH = 64  # the border moves by so many rows at once
TAIL_WINDOW = TAIL + BATCH  # rows of the tail that some later query may still read
SUFFIX = "_tail"


def first_tail_row(state_row: int) -> int:
    """The border of the query at `state_row`: it reads this row and later ones from the tail, those before
    from the store."""
    return max(0, (state_row + 1 - TAIL) // BATCH * BATCH)


def tail_of(group: str) -> str:
    """The name of the group that holds the recent rows of `group`."""
    return group + SUFFIX


def is_tail(group: str) -> bool:
    """Whether a group holds the recent rows of another."""
    return group.endswith(SUFFIX)
