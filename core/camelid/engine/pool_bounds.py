"""The number of units of each state group, from the bounds of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.backends.base import PoolSize
from camelid.engine.allocation import RECURRENT, RING, STATIC, TABLED
from camelid.plan.plan import StateSpec

N_SLOTS = 2  # slots of an allocation in a recurrent group: the states after its last two steps
CHECKPOINTS = 3  # further slots in the prefix cache: states within prompts
# The number of trash units and of trash table rows: unit 0 and row 0, written by unused rows and never read.
TRASH = 1


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """At most `n_sequences` sequences of `context` rows, of which a step writes `chunk`.

    `n_pages` bounds a paged group; None: a full context for every sequence.
    """

    context: int
    n_sequences: int
    chunk: int
    page_rows: int
    n_pages: int | None

    def n_units(self, state: StateSpec) -> int:
        """The units of a group, trash units excluded."""
        if state.kind == RING:
            return self.n_sequences
        if state.kind == RECURRENT:
            return self.n_sequences * (N_SLOTS + 1) + CHECKPOINTS  # per sequence one in the prefix cache
        per_sequence = self._most_pages(state)
        # other groups bound the length of a sequence by their pages
        fewest = per_sequence if state.window or state.kind == STATIC else 1
        most = self.n_sequences * per_sequence
        return max(min(self.n_pages or most, most), fewest)

    def size(self, state: StateSpec, n_units: int) -> PoolSize:
        """The pool of a group of `n_units` for `Backend.allocate`, trash included."""
        if state.kind not in TABLED:
            return PoolSize(n_units + TRASH)
        return PoolSize(n_units + TRASH, self.n_sequences + TRASH, self._pages(self.context))

    def _pages(self, n_rows: int) -> int:
        return -(-n_rows // self.page_rows)

    def _most_pages(self, state: StateSpec) -> int:
        """The most pages that a sequence references at once; in a window group those of window and step."""
        pages = self._pages(self.context)
        return min(pages, self._pages(state.window + self.chunk) + 2) if state.window else pages
