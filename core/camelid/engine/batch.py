"""A batch and its step: scheduled sequences, the step in flight, output rows as tokens and finish reasons."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import NamedTuple

from camelid.backends.base import Backend, OutputRow, Program, Result, Ticket
from camelid.engine.adapters import with_adapters
from camelid.engine.allocation import CacheUpdate
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.media import media_at
from camelid.engine.metrics import Counters
from camelid.engine.programs import ALL_LOGITS, INJECTED, INJECTED_LOGITS, MIXED, PROBED
from camelid.engine.results import FinishReason
from camelid.engine.sequence import Sequence
from camelid.errors import BackendError
from camelid.plan.step import Step, StepSequence
from camelid.sampling.host import NeedsAllLogits, Scores
from camelid.sampling.mixture import mixed_logits

IMAGES = (INJECTED, INJECTED_LOGITS)
STATUS_HINT = "the weights or a kernel are broken; `camelid doctor` compares kernels with the reference"


class ScheduledSequence(NamedTuple):
    """One sequence's part of a step: its next `n_rows` rows, the last `n_outputs` of them with an output."""

    sequence: Sequence
    n_rows: int
    n_outputs: int
    cache_update: CacheUpdate


@dataclass(slots=True)
class Batch:
    """The sequences of one step and the step's program.

    `n_updates` counts page-table updates; `prefill_depth` is the most rows before those of a prompt.
    """

    program: str
    scheduled: list[ScheduledSequence] = field(default_factory=list[ScheduledSequence])
    n_updates: int = 0
    prefill_depth: int = 0


def build_step(batch: Batch, state: KVCacheManager, ordinal: int) -> Step:
    """The step of a batch."""
    step = Step(ordinal=ordinal)
    for number, item in enumerate(batch.scheduled):
        _add_scheduled(step, number, item, state, is_image=batch.program in IMAGES)
    return step


def _add_scheduled(
    step: Step, number: int, item: ScheduledSequence, state: KVCacheManager, *, is_image: bool
) -> None:
    """Adds one sequence's rows, state words, sampling and outputs to a step.

    Rows of an image see each other. Rows of an encoder fill the static pages of its decoder.
    """
    s, first, n_previous_rows = item.sequence, len(step.rows), item.sequence.n_rows
    assert s.allocation is not None, "a scheduled sequence has an allocation"
    step.updates += item.cache_update.updates
    step.copies += item.cache_update.copies
    is_source = s.awaits_encoder
    rows = s.source_rows(number) if is_source else s.rows(number, n_previous_rows, item.n_rows)
    step.rows += rows
    groups = state.words(s.allocation, n_previous_rows, item.n_rows if is_image else 0)
    state.advance(s.allocation, n_previous_rows + item.n_rows)
    s.allocation.is_encoded |= is_source
    step.sequences.append(
        StepSequence(first_row=first, rows=len(rows), groups=groups, adapter=s.active_slot, sampling=number)
    )
    step.sampling.append(s.step_sampling)
    output_rows = range(item.n_rows - item.n_outputs, item.n_rows)  # the last rows
    step.outputs += [(first + i, number, n_previous_rows + i + 1) for i in output_rows]


def program_of(batch: Batch, step: Step) -> str:
    """The name of the program that runs a batch's step."""
    has_adapters = any(sequence.adapter for sequence in step.sequences)
    program = PROBED if _is_probed(batch) else batch.program
    return with_adapters(program) if has_adapters else program


def _is_probed(batch: Batch) -> bool:
    """True if a prompt ends in the step whose probe waits for its logits."""
    ends = (item.sequence for item in batch.scheduled if item.n_outputs)
    return batch.program == MIXED and any(s.is_probed and not s.n_ahead for s in ends)


@dataclass(slots=True, eq=False)
class PendingStep:
    """The batch and ticket of a step in flight; after `read`, its result or its error."""

    batch: Batch
    ticket: Ticket
    submitted: float
    n_decode: int  # rows of generated tokens
    result: Result | None = None
    error: Exception | None = None

    async def read(self, backend: Backend) -> None:
        """Waits for the step's result, once. A cancelled read may be repeated."""
        if self.result is None and self.error is None:
            try:
                self.result = await backend.read(self.ticket)
            except Exception as error:
                self.error = error


def submit_batch(backend: Backend, program: Program, batch: Batch, step: bytes) -> Ticket:
    """Submits a batch's step; the logits of a prompt go to its request's array, if it has one."""
    s = batch.scheduled[0].sequence  # with `all_logits` the only one
    if batch.program == ALL_LOGITS and s.request.into is not None:
        return backend.run_into(program, step, s.request.into, s.n_rows)
    given = program.plan.given
    return backend.run(program, step, {given[0].name: _embeddings(batch)} if given else None)


def _embeddings(batch: Batch) -> bytes:
    """The embeddings of the batch's rows, all of images."""
    return b"".join(_of_image(item.sequence, item.n_rows) for item in batch.scheduled)


def _of_image(s: Sequence, n_rows: int) -> memoryview:
    image = media_at(s.request.media, s.n_rows)
    assert image is not None, "a row of an image has embeddings"
    return image.part(s.n_rows, s.n_rows + n_rows)


class AcceptedRows(NamedTuple):
    """The number of rows accepted of a sequence's output rows, and the finish reason if it ended."""

    n_rows: int
    finish_reason: FinishReason | None = None


class OutputProcessor:
    """Applies the output rows of one model on one backend to their sequences."""

    def __init__(self, backend_name: str, vocab_size: int, counters: Counters) -> None:
        self._name = backend_name
        self._vocab_size = vocab_size
        self._counters = counters

    def process(self, s: Sequence, rows: Seq[OutputRow], n_rows: int) -> AcceptedRows:
        """Accepts output rows in order, up to the first rejected draft or the end of the answer.

        Raises BackendError for fewer than `n_rows` rows or invalid rows, NeedsAllLogits if candidates prove
        no draw.
        """
        if len(rows) < n_rows:
            raise BackendError(
                f"backend {self._name!r} returned {len(rows)} rows, expected {n_rows}", backend=self._name
            )
        accept = self._token if s.request.generates else self._encoded if s.request.encodes else self._logits
        drafts, s.drafts = s.drafts, ()
        for n, row in enumerate(rows):
            self._check(row, s)
            reason = accept(s, row)
            if reason or (n < len(drafts) and s.token_ids[-1] != drafts[n]):
                return AcceptedRows(n + 1, reason)
            self._counters.accepted += n < len(drafts)
        return AcceptedRows(len(rows))

    def _check(self, row: OutputRow, s: Sequence) -> None:
        """Raises BackendError for logits that are not numbers and for a token id outside the vocabulary."""
        name = self._name
        if row.status != "ok":
            fault = {"nan": "not a number", "zero": "all zero"}[row.status]
            raise BackendError(
                f"backend {name!r}: the {'floats' if s.request.encodes else 'logits'} after "
                f"{len(s.token_ids)} tokens are {fault}; {STATUS_HINT}",
                backend=name, status=row.status,
            )  # fmt: skip
        if not 0 <= row.token_id < self._vocab_size:
            raise BackendError(
                f"backend {name!r} sampled token {row.token_id} of {self._vocab_size}; {STATUS_HINT}",
                backend=name, token_id=row.token_id,
            )  # fmt: skip

    def _logits(self, s: Sequence, row: OutputRow) -> FinishReason | None:
        """Appends a prompt row's logits, or their score."""
        if row.logits is None and s.request.into is None:
            raise BackendError(
                f"backend {self._name!r} computes no logits; choose another backend", backend=self._name
            )
        rows, score = s.outbox.logits, s.request.score
        if score and row.logits is not None:
            rows.append(score(len(rows), row.logits, row.log_sum_exp))
        else:
            rows.append(row.logits)
        return "stop" if len(rows) == s.request.n_prompt else None

    def _encoded(self, s: Sequence, row: OutputRow) -> FinishReason | None:
        """Appends a row of floats of an encoded text."""
        s.outbox.logits.append(row.logits)
        is_last = len(s.outbox.logits) == s.request.n_encoded
        self._counters.encoded += is_last
        return "stop" if is_last else None

    def _token(self, s: Sequence, row: OutputRow) -> FinishReason | None:
        """Accepts a drawn token, or an end token."""
        if s.is_probed and s.request.probe and row.logits is not None:
            s.request.probe.see(row.logits)
        scores = _scores(s, row) if s.sampler or s.request.sampling.logprobs else None
        if s.sampler and scores:
            token_id, logprob = self._drawn(s, row, scores)
        else:
            token_id, logprob = row.token_id, row.logprob
        s.clock.token()
        if token_id in s.request.eos_ids:
            s.emit(None, is_last=True)
            return "stop"
        n = s.request.sampling.logprobs
        return s.accept(token_id, logprob, tuple(scores.top_logprobs(n)) if n and scores else ())

    def _drawn(self, s: Sequence, row: OutputRow, scores: Scores) -> tuple[int, float]:
        """The host's draw, and its log-probability before any sampler.

        Raises NeedsAllLogits for a device's draw that a lazy constraint does not allow.
        """
        assert s.sampler is not None, "the sequence has a host sampler"
        if s.constraint and row.logits is None:
            if not s.constraint.accept(row.token_id):
                raise NeedsAllLogits
            return row.token_id, row.logprob
        constraint, position = s.constraint, len(s.token_ids) + s.n_shifted
        if constraint:
            is_mixed = s.request.mixer and not s.sampler.needs_mask
            drawn = s.sampler.draw(scores, s.token_ids, position) if is_mixed else row.token_id
            token_id = s.sampler.choose(drawn, scores, constraint, s.token_ids, position)
            s.needs_all = False
        else:
            token_id = s.sampler.draw(scores, s.token_ids, position)
            s.needs_all = s.needs_all and s.sampler.needed_all
        self._counters.hosted_rows += 1
        self._counters.guided_rows += constraint is not None
        self._counters.redrawn_rows += constraint is not None and token_id != row.token_id
        return token_id, scores.logprob(token_id)


def _scores(s: Sequence, row: OutputRow) -> Scores:
    """A row's scores, with the mixture of its request."""
    mixer = s.request.mixer
    mixing = mixer.mixing(row.logits, s.token_ids) if mixer and row.logits is not None else None
    if mixing is None or row.logits is None:
        return Scores.of_row(row)
    logits, log_sum_exp = mixed_logits(row.logits, row.log_sum_exp, mixing)
    return Scores(log_sum_exp, None, logits)
