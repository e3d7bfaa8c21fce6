"""The step: one block of little-endian u32 words with the inputs of one run of a program.

This file defines the only encoding. Word offsets depend on the `ProgramKey` and the declared state alone.
WGSL reads the offsets from the header, so that one pipeline serves several programs; C reads them from its
record of the program. Sections:

    header    rows, sequences, outputs, table updates, copies, ordinal; offsets of the sections after rows
    rows      per row: source, value, sequence, state row, position (1-4 channels)
    sequences per sequence: first row, rows, adapter slot, sampling row; per state group 3 words
    outputs   per output: row, sequence, position of the sampled token
    sampling  per sampling row: see `SAMPLING`; the last two words are the count and first index of its biases
    biases    per bias: token id, addend to its logit (f32 bits)
    updates   per page-table change: group, table row, index, unit; all run at once, so no entry changes twice
    copies    per copy: group, source unit, destination unit, rows; all copies run at once, so no unit is both
              source and destination, and no unit is a destination twice

The source of a row's token is an id (`FROM_ID`) or the sequence's last sampled id on the device
(`FROM_RING`). Rows of images have a placeholder id; their embeddings are an input of the program. State row
and RoPE position are separate numbers. Unit 0 of every group is scratch space for unused rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from operator import le
from typing import NamedTuple

from camelid.errors import PlanError

FROM_ID, FROM_RING = 0, 1
RESULT_WORDS = 4  # id, status, logit (f32 bits), log-sum-exp (f32 bits): 16 bytes per token
CANDIDATES = 256  # number of largest logits that a program with the feature `candidates` returns
CANDIDATE_WORDS = 2 * CANDIDATES + 2  # ids, logits, then mean and variance of all logits (f32 bits)
MOST_TOP_K, MOST_BIASES, MOST_LAST_N = CANDIDATES, 16, 64  # limits of sampling on a device
STATUS = ("ok", "nan", "zero")  # status of a row's logits: usable; NaN or +inf among them; all 0

COUNTS = ("rows", "sequences", "outputs", "updates", "copies", "ordinal")
COUNTED = ("rows", "sequences", "outputs", "sampling rows", "biases", "updates", "copies")
PLACES = ("sequences_at", "outputs_at", "sampling_at", "biases_at", "updates_at", "copies_at")
HEADER = (*COUNTS, *PLACES)
ROW = ("source", "value", "sequence", "state_row")
SEQUENCE = ("first_row", "rows", "adapter", "sampling")
GROUP = ("read", "write", "held")
OUTPUT = ("row", "sequence", "position")
SAMPLING = (
    "temperature", "seed_low", "seed_high", "choice", "offset", "top_k", "top_p", "min_p", "repeat_penalty",
    "frequency_penalty", "presence_penalty", "penalty_last_n", "biases", "first_bias",
)  # fmt: skip
HOW = struct.Struct("<f5I5f2I")  # types of the sampling words but `first_bias`
HOW_WORDS = struct.Struct(f"<{len(SAMPLING) - 1}I")  # the same words as u32
BIAS = ("id", "value")
UPDATE = ("group", "table_row", "index", "unit")
COPY = ("group", "source", "destination", "rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Largest counts of a step that a compiled plan accepts; actual counts are in the step."""

    rows: int
    sequences: int
    outputs: int
    updates: int
    copies: int = 0
    biases: int = 0

    @property
    def limits(self) -> tuple[int, ...]:
        """The largest value of each of `Step.counts`."""
        n = self.sequences
        return self.rows, n, self.outputs, n, self.biases, self.updates, self.copies

    def holds(self, step: Step) -> bool:
        """True if a step needs no more than these capacities."""
        return all(map(le, step.counts, self.limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramKey:
    """Identity of a program: the entry, its capacities and its features (`all_logits`, ...)."""

    entry: str
    capacity: Capacity
    features: frozenset[str] = frozenset()

    def __str__(self) -> str:
        c = self.capacity
        features = "".join(f"+{name}" for name in sorted(self.features))
        biases = f"-b{c.biases}" if c.biases else ""
        return (
            f"{self.entry}-r{c.rows}-s{c.sequences}-o{c.outputs}-u{c.updates}-c{c.copies}{biases}{features}"
        )


@dataclass(frozen=True)
class StepLayout:
    """Word offsets in the steps of one program. No slots: `cached_property` needs a `__dict__`."""

    capacity: Capacity
    n_groups: int
    n_channels: int = 1

    @cached_property
    def row_words(self) -> int:
        return len(ROW) + self.n_channels

    @cached_property
    def sequence_words(self) -> int:
        return len(SEQUENCE) + len(GROUP) * self.n_groups

    @cached_property
    def rows_at(self) -> int:
        return len(HEADER)

    @cached_property
    def sequences_at(self) -> int:
        return self.rows_at + self.row_words * self.capacity.rows

    @cached_property
    def outputs_at(self) -> int:
        return self.sequences_at + self.sequence_words * self.capacity.sequences

    @cached_property
    def sampling_at(self) -> int:
        return self.outputs_at + len(OUTPUT) * self.capacity.outputs

    @cached_property
    def biases_at(self) -> int:
        return self.sampling_at + len(SAMPLING) * self.capacity.sequences

    @cached_property
    def updates_at(self) -> int:
        return self.biases_at + len(BIAS) * self.capacity.biases

    @cached_property
    def copies_at(self) -> int:
        return self.updates_at + len(UPDATE) * self.capacity.updates

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Section offsets, as the header's last words state them."""
        return tuple(getattr(self, name) for name in PLACES)

    @cached_property
    def n_words(self) -> int:
        return self.copies_at + len(COPY) * self.capacity.copies

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Word offsets of the sections after the header."""
        return (self.rows_at, *self.places)

    @staticmethod
    def header_word(name: str) -> int:
        return HEADER.index(name)


class StepRow(NamedTuple):
    """One token row."""

    source: int
    value: int
    sequence: int
    state_row: int
    positions: tuple[int, ...]

    def words(self) -> tuple[int, ...]:
        return (self.source, self.value, self.sequence, self.state_row, *self.positions)


class StepSequence(NamedTuple):
    """One sequence's part of the step.

    `groups` has one triple per state group: (table row or read slot, first kept row or write slot, rows held
    before this step; of a paged group, the rows that attention of mask `held` reads). A recurrent group with
    0 rows held starts from zeros, whatever its slot contains.
    """

    first_row: int
    rows: int
    groups: tuple[tuple[int, int, int], ...]
    adapter: int = 0
    sampling: int = 0

    def words(self) -> tuple[int, ...]:
        flat = chain.from_iterable(self.groups)
        return (self.first_row, self.rows, self.adapter, self.sampling, *flat)


@dataclass(frozen=True, kw_only=True)
class StepSampling:
    """Sampling of one sequence: biases, penalties, top-k, top-p, min-p, temperature, applied in this order.

    The defaults change no logit; temperature 0 is greedy. The noise of an output is keyed by its position +
    `offset`. Penalties apply to ids of the last `penalty_last_n` positions. `biases` are pairs (token id,
    addend to its logit). No slots: the words are cached, since every step encodes them.
    """

    temperature: float = 0.0
    seed: int = 0
    choice: int = 0
    offset: int = 0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 0
    biases: tuple[tuple[int, float], ...] = ()

    @cached_property
    def words(self) -> tuple[int, ...]:
        """All words but `first_bias`, which depends on the step.

        Raises PlanError beyond a device's limits.
        """
        self._check_fits()
        return HOW_WORDS.unpack(
            HOW.pack(
                *(self.temperature, self.seed & 0xFFFFFFFF, self.seed >> 32 & 0xFFFFFFFF, self.choice),
                *(self.offset, self.top_k, self.top_p, self.min_p, self.repeat_penalty),
                *(self.frequency_penalty, self.presence_penalty, self.penalty_last_n, len(self.biases)),
            )
        )

    def _check_fits(self) -> None:
        limits = (
            ("top_k", self.top_k, MOST_TOP_K),
            ("penalty_last_n", self.penalty_last_n, MOST_LAST_N),
            ("number of biases", len(self.biases), MOST_BIASES),
        )
        for name, value, most in limits:
            if not 0 <= value <= most:
                raise PlanError(
                    f"{name} is {value}, a device supports 0 to {most}; sample on the host", op="sample"
                )
        if self.top_p < 1.0 and not self.top_k:
            raise PlanError(
                f"top_p is {self.top_p} without top_k, which a device requires; sample on the host",
                op="sample",
            )

    @cached_property
    def bias_words(self) -> tuple[int, ...]:
        flat = chain.from_iterable(self.biases)
        n = len(self.biases)
        return struct.unpack(f"<{2 * n}I", struct.pack("<" + n * "If", *flat))


@dataclass(slots=True, kw_only=True)
class Step:
    """The inputs of one run of a program. Decode rows come before prefill rows."""

    rows: list[StepRow] = field(default_factory=list[StepRow])
    sequences: list[StepSequence] = field(default_factory=list[StepSequence])
    outputs: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    sampling: list[StepSampling] = field(default_factory=list[StepSampling])
    updates: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    copies: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    ordinal: int = 0

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers that capacities limit, in the order of `COUNTED`."""
        n_biases = sum(len(how.biases) for how in self.sampling)
        n_samplings, n_updates, n_copies = len(self.sampling), len(self.updates), len(self.copies)
        n_rows, n_sequences, n_outputs = len(self.rows), len(self.sequences), len(self.outputs)
        return n_rows, n_sequences, n_outputs, n_samplings, n_biases, n_updates, n_copies


def encode_step(step: Step, layout: StepLayout) -> bytes:
    """Encodes a step as bytes.

    Raises PlanError if a count exceeds the program's capacity, if copies or updates depend on their order, or
    for a row or sequence with more words than the layout has.
    """
    _check_capacity(step, layout.capacity)
    if step.copies:
        _check_copies(step.copies)
    if len({update[:3] for update in step.updates}) < len(step.updates):
        raise PlanError(
            f"updates {step.updates} depend on their order; put them in different steps", op="tables"
        )
    counts = (len(step.rows), len(step.sequences), len(step.outputs), len(step.updates), len(step.copies))
    sections: tuple[Seq[Iterable[int]], ...] = (
        [counts, (step.ordinal & 0xFFFFFFFF,), layout.places],
        [row.words() for row in step.rows],
        [sequence.words() for sequence in step.sequences],
        step.outputs,
        _sampling_words(step.sampling),
        [how.bias_words for how in step.sampling if how.biases],
        step.updates,
        step.copies,
    )
    data = bytearray(4 * layout.n_words)  # sections may be far apart: the gaps are most of a large step
    borders = (0, *layout.starts, layout.n_words)
    for records, (start, end) in zip(sections, pairwise(borders), strict=True):
        if records:
            words = tuple(chain.from_iterable(records))
            _check_end(start + len(words), end)
            struct.pack_into(f"<{len(words)}I", data, 4 * start, *words)
    return bytes(data)


def _check_end(at: int, end: int) -> None:
    """Raises PlanError if a section's records overlap the next section, which starts at word `end`."""
    if at > end:
        raise PlanError(
            f"a step's records end at word {at}, but the next section starts at {end}; a row has "
            "too many positions, or a sequence too many state groups",
            op="step",
        )


def decode_step(data: bytes, layout: StepLayout) -> Step:
    """Decodes a step: the inverse of `encode_step`, for backends that interpret plans."""
    words = struct.unpack(f"<{layout.n_words}I", data)
    n_rows, n_sequences, n_outputs, n_updates, n_copies, ordinal = words[: len(COUNTS)]
    biases = _take(words, layout.biases_at, layout.capacity.biases, len(BIAS))
    return Step(
        rows=[_row(r) for r in _take(words, layout.rows_at, n_rows, layout.row_words)],
        sequences=[
            _sequence(s) for s in _take(words, layout.sequences_at, n_sequences, layout.sequence_words)
        ],
        outputs=[(r, s, p) for r, s, p in _take(words, layout.outputs_at, n_outputs, len(OUTPUT))],
        sampling=[_sampling(s, biases) for s in _take(words, layout.sampling_at, n_sequences, len(SAMPLING))],
        updates=[(g, t, i, u) for g, t, i, u in _take(words, layout.updates_at, n_updates, len(UPDATE))],
        copies=[(g, s, d, n) for g, s, d, n in _take(words, layout.copies_at, n_copies, len(COPY))],
        ordinal=ordinal,
    )


def _check_capacity(step: Step, capacity: Capacity) -> None:
    """Raises PlanError with the first count that exceeds a capacity."""
    if capacity.holds(step):
        return
    for name, count, limit in zip(COUNTED, step.counts, capacity.limits, strict=True):
        if count > limit:
            raise PlanError(
                f"step has {count} {name}, but the program's capacity is {limit}; split the step", op="step"
            )


def _check_copies(copies: Seq[tuple[int, int, int, int]]) -> None:
    """Raises PlanError if the result of the copies depends on their order: a device runs them all at once."""
    sources = {(group, unit) for group, unit, _, _ in copies}
    targets = {(group, unit) for group, _, unit, _ in copies}
    if len(targets) < len(copies) or sources & targets:
        raise PlanError(
            f"copies {list(copies)} depend on their order; put them in different steps", op="copy"
        )


def _sampling_words(sampling: Iterable[StepSampling]) -> list[tuple[int, ...]]:
    records: list[tuple[int, ...]] = []
    first_bias = 0
    for how in sampling:
        records.append((*how.words, first_bias))
        first_bias += len(how.biases)
    return records


def _take(words: tuple[int, ...], start: int, n: int, width: int) -> list[tuple[int, ...]]:
    return [words[start + i * width : start + (i + 1) * width] for i in range(n)]


def _row(words: tuple[int, ...]) -> StepRow:
    source, value, sequence, state_row, *positions = words
    return StepRow(
        source=source, value=value, sequence=sequence, state_row=state_row, positions=tuple(positions)
    )


def _sequence(words: tuple[int, ...]) -> StepSequence:
    first_row, rows, adapter, sampling, *flat = words
    groups = tuple((flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3))
    return StepSequence(first_row=first_row, rows=rows, adapter=adapter, sampling=sampling, groups=groups)


def _sampling(words: tuple[int, ...], biases: Seq[tuple[int, ...]]) -> StepSampling:
    *how, first_bias = words
    temperature, low, high, *rest, n_biases = HOW.unpack(HOW_WORDS.pack(*how))
    names = (name for name in SAMPLING if name not in ("seed_low", "seed_high", "biases", "first_bias"))
    values = dict(zip(names, (temperature, *rest), strict=True))
    own = biases[first_bias : first_bias + n_biases]
    return StepSampling(**values, seed=low | high << 32, biases=tuple((i, _float(bits)) for i, bits in own))


def _float(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]
