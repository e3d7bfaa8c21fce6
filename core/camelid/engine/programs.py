"""The programs that an engine runs, and their capacities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from camelid.backends.base import Program
from camelid.errors import RequestError
from camelid.plan.step import Capacity, ProgramKey, Step

# `decode` and `mixed` draw on the device. The others return more: `candidates` the largest logits, `guided`
# and `all_logits` the whole logits of generated rows or of prompt rows, `verify` the draws of several rows of
# a sequence, `encode` the pooled rows or scores of whole texts, or keys and values for a decoder. `probed` is
# `mixed` with the whole logits of its outputs. `injected` and `injected_logits` are `mixed` and `all_logits`
# for rows of images.
DECODE, MIXED, ALL_LOGITS, ENCODE = "decode", "mixed", "all_logits", "encode"
PROBED = "probed"
CANDIDATES, GUIDED, VERIFY = "candidates", "guided", "verify"
INJECTED, INJECTED_LOGITS = "injected", "injected_logits"
ENTRIES = {
    **dict.fromkeys((DECODE, CANDIDATES, GUIDED), DECODE),
    **dict.fromkeys((MIXED, PROBED, VERIFY, ALL_LOGITS, INJECTED, INJECTED_LOGITS), MIXED),
    ENCODE: ENCODE,
}
FEATURES = {
    CANDIDATES: ("candidates",), **dict.fromkeys((GUIDED, PROBED, ALL_LOGITS), ("all_logits",)),
    INJECTED: ("injected",), INJECTED_LOGITS: ("injected", "all_logits"),
}  # fmt: skip
BIASES = 16  # biases of one sequence on the device; a request with more samples on the host


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of an engine: `chunk` rows in a mixed step, `parallel` running sequences of `context` rows each.

    A step that also generates is kept to about `step_s` seconds, where prompts could fill more. One step
    verifies up to `drafts` drafts of a sequence. The rows of one image, up to `image_rows`, run in one step
    (0: in chunks). An encoder in front of the decoder reads up to `source_rows` tokens (0: there is none); a
    text whose features are read has up to `feature_rows`.
    """

    chunk: int = 64
    parallel: int = 4
    context: int = 4096
    step_s: float = 0.1
    drafts: int = 8
    image_rows: int = 0
    source_rows: int = 0
    feature_rows: int = 0

    def __post_init__(self) -> None:
        # During a prefill at most `parallel - 1` sequences generate, so a row is left for the prompt.
        if not 1 <= self.parallel <= self.chunk:
            raise RequestError(
                f"parallel is {self.parallel} and chunk {self.chunk}; expected 1 <= parallel <= chunk",
                field="parallel",
            )

    def at_context(self, context: int) -> Limits:
        """The same limits for sequences of `context` rows.

        A step has no more rows than all sequences together.
        """
        return replace(self, context=context, chunk=min(self.chunk, self.parallel * context))

    @property
    def encode_chunk(self) -> int:
        """Rows of whole texts in a step."""
        return max(self.chunk, self.source_rows, self.feature_rows)

    @property
    def image_chunk(self) -> int:
        """Rows of images in a step."""
        return max(self.chunk, self.image_rows)


def program_keys(
    program: str,
    limits: Limits,
    page_rows: int,
    *,
    n_paged: int = 1,
    row_buckets: Sequence[int] = (),
) -> tuple[ProgramKey, ...]:
    """The keys of a program: one per row bucket below its most rows, then one at its most rows."""
    largest = program_key(program, limits, page_rows, n_paged=n_paged)
    smaller = sorted(rows for rows in set(row_buckets) if 0 < rows < largest.capacity.rows)
    keys = (program_key(program, limits, page_rows, n_paged=n_paged, rows=rows) for rows in smaller)
    return (*keys, largest)


def program_key(
    program: str, limits: Limits, page_rows: int, *, n_paged: int = 1, rows: int | None = None
) -> ProgramKey:
    """The capacities and features of a program for `rows` rows (None: the most rows of any step).

    Each of the model's `n_paged` groups may allocate new pages of `page_rows` rows in one step. Every program
    but `decode` has room for the page-table updates of a whole context, which a sequence with a cached prefix
    needs.
    """
    rows = _most_rows(program, limits) if rows is None else rows
    n = min(limits.parallel, rows)
    pages = n if program == DECODE else n - (-rows // page_rows) - (-limits.context // page_rows)
    capacity = Capacity(
        rows=rows,
        sequences=n,
        outputs=rows if program in (VERIFY, ALL_LOGITS, INJECTED_LOGITS, ENCODE) else n,
        updates=n_paged * pages,
        copies=n_paged * n,
        biases=BIASES * n,
    )
    features = frozenset(FEATURES.get(program, ()))
    return ProgramKey(entry=ENTRIES[program], capacity=capacity, features=features)


def _most_rows(program: str, limits: Limits) -> int:
    """The largest number of rows in a step of this program."""
    n = limits.parallel
    rows = {VERIFY: n * (limits.drafts + 1), **dict.fromkeys((MIXED, PROBED, ALL_LOGITS), limits.chunk)}
    rows[ENCODE] = limits.encode_chunk
    rows |= dict.fromkeys((INJECTED, INJECTED_LOGITS), limits.image_chunk)
    return rows.get(program, n)


class ProgramTable:
    """Compiled programs by name, each with one program per row bucket."""

    def __init__(self) -> None:
        self._programs: dict[str, tuple[Program, ...]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._programs

    def add(self, name: str, programs: Iterable[Program]) -> None:
        """Adds a program, compiled at one or more row buckets."""
        self._programs[name] = tuple(sorted(programs, key=lambda p: p.plan.key.capacity.rows))

    def smallest(self, name: str, step: Step) -> Program:
        """The program at the smallest row bucket that fits a step."""
        programs = self._programs[name]
        for program in programs[:-1]:
            if program.plan.key.capacity.holds(step):
                return program
        return programs[-1]
