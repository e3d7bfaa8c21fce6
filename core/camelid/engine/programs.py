"""The programs that an engine runs, and how much each can take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from camelid.backends.base import Program
from camelid.errors import RequestError
from camelid.plan.step import Capacity, ProgramKey, Step

# `decode` and `mixed` draw on the device. The others run what needs more back: the likeliest tokens, all
# logits of generated rows or of prompt rows, the draws of several rows of a sequence.
DECODE, MIXED, ALL_LOGITS = "decode", "mixed", "all_logits"
CANDIDATES, GUIDED, VERIFY = "candidates", "guided", "verify"
ENTRIES = {DECODE: DECODE, CANDIDATES: DECODE, GUIDED: DECODE, MIXED: MIXED, VERIFY: MIXED, ALL_LOGITS: MIXED}
FEATURES = {CANDIDATES: "candidates", GUIDED: "all_logits", ALL_LOGITS: "all_logits"}
BIASES = 16  # of one sequence; more are added on the host


@dataclass(frozen=True, slots=True)
class Limits:
    """`chunk` rows in a mixed step; at most `parallel` sequences run at once, of `context` rows each.

    A step that also generates is kept to about `step_s` seconds where prompts could fill more. `drafts`
    tokens are verified at once.
    """

    chunk: int = 64
    parallel: int = 4
    context: int = 4096
    step_s: float = 0.1
    drafts: int = 8

    def __post_init__(self) -> None:
        # While a prompt is read, one sequence less generates, so that a row is left for it.
        if not 1 <= self.parallel <= self.chunk:
            raise RequestError(
                f"parallel is {self.parallel} and chunk {self.chunk}; expected 1 <= parallel <= chunk",
                field="parallel",
            )

    def at_context(self, context: int) -> Limits:
        """The same for sequences of `context` rows. A step is no larger than all of them together."""
        return replace(self, context=context, chunk=min(self.chunk, self.parallel * context))


def program_keys(
    program: str,
    limits: Limits,
    page_rows: int,
    *,
    n_paged: int = 1,
    row_buckets: Sequence[int] = (),
) -> tuple[ProgramKey, ...]:
    """The keys of a program, one a row bucket below its most rows, then one at its most rows."""
    whole = program_key(program, limits, page_rows, n_paged=n_paged)
    smaller = sorted(rows for rows in set(row_buckets) if 0 < rows < whole.capacity.rows)
    keys = (program_key(program, limits, page_rows, n_paged=n_paged, rows=rows) for rows in smaller)
    return (*keys, whole)


def program_key(
    program: str, limits: Limits, page_rows: int, *, n_paged: int = 1, rows: int | None = None
) -> ProgramKey:
    """The capacities and features of a program for `rows` rows (None: the most of any step).

    Each of the model's `n_paged` groups may take new pages of `page_rows` in one step. All programs but
    `decode` have room for the page tables of a whole context, which a sequence with a cached prefix brings.
    """
    rows = _most_rows(program, limits) if rows is None else rows
    n = min(limits.parallel, rows)
    pages = n if program == DECODE else n - (-rows // page_rows) - (-limits.context // page_rows)
    capacity = Capacity(
        rows=rows,
        sequences=n,
        outputs=rows if program in (VERIFY, ALL_LOGITS) else n,
        updates=n_paged * pages,
        copies=n_paged * n,
        biases=BIASES * n,
    )
    features = frozenset({FEATURES[program]} if program in FEATURES else ())
    return ProgramKey(entry=ENTRIES[program], capacity=capacity, features=features)


def _most_rows(program: str, limits: Limits) -> int:
    n = limits.parallel
    rows = {VERIFY: n * (limits.drafts + 1), MIXED: limits.chunk, ALL_LOGITS: limits.chunk}
    return rows.get(program, n)


class ProgramTable:
    """Compiled programs by name, each at its row buckets."""

    def __init__(self, programs: Mapping[str, Program] | None = None) -> None:
        self._programs: dict[str, tuple[Program, ...]] = {}
        for name, program in (programs or {}).items():
            self._programs[name] = (program,)

    def __contains__(self, name: object) -> bool:
        return name in self._programs

    def add(self, name: str, programs: Iterable[Program]) -> None:
        """Adds a program, compiled at one row bucket or several."""
        self._programs[name] = tuple(sorted(programs, key=lambda p: p.plan.key.capacity.rows))

    def largest(self, name: str) -> Program:
        """The program at its most rows."""
        return self._programs[name][-1]

    def smallest(self, name: str, step: Step) -> Program:
        """The program at the smallest row bucket that holds a step."""
        *smaller, largest = self._programs[name]
        return next((program for program in smaller if program.plan.key.capacity.holds(step)), largest)
