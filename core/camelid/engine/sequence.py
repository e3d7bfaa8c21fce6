"""One running stream of a request; an `Outbox` joins it with its consumer's end (`stream.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from itertools import repeat

from camelid.backends.base import Result
from camelid.engine.adapters import NO_ADAPTER, RowKeys
from camelid.engine.allocation import CacheAllocation
from camelid.engine.media import position_of, rows_before_media, with_keys
from camelid.engine.programs import CANDIDATES, DECODE, GUIDED, VERIFY
from camelid.engine.request import Request
from camelid.engine.results import Clock, FinishReason, Generation, Outbox, OutputReader, Token, Usage
from camelid.engine.speculative import Proposer
from camelid.plan.step import FROM_ID, FROM_RING, StepRow, StepSampling
from camelid.sampling.drawing import Constraint
from camelid.sampling.host import HostSampler


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One running stream.

    `token_ids` are the context's tokens that the host has read: the prompt, then retired ids; after a shift,
    some `answer_ids` are no longer among them. `n_rows` counts submitted rows and `n_ahead` draws in flight,
    so both run ahead of `token_ids`. `limit` bounds the length of `token_ids`.
    """

    id: int
    request: Request
    vocab_size: int
    max_tokens: int
    limit: int
    is_fed: bool = True  # the device feeds a drawn id to the next row itself
    outbox: Outbox = field(default_factory=Outbox)
    token_ids: list[int] = field(default_factory=list[int])
    answer_ids: list[int] = field(default_factory=list[int])
    n_prompt: int = 0  # rows that the prefill kernels compute
    n_rows: int = 0
    n_retired: int = 0  # rows of retired steps
    n_ahead: int = 0
    n_in_flight: int = 0
    n_steps: int = 0
    n_shifted: int = 0  # tokens dropped by context shifts
    n_hit_rows: int = 0  # rows of the latest prefix-cache hit
    n_cached: int = 0  # prompt tokens of the first prefix-cache hit
    allocation: CacheAllocation | None = None
    adapter_slot: int = 0  # while it runs
    adapter_from: int = 0  # the first row on which its adapter acts
    is_preempted: bool = False  # its allocation is freed once none of its rows is in flight
    is_failed: bool = False  # a step failed, so the contents of its units are undefined
    needs_all: bool = False  # the candidates of the latest row, or its drawn token, did not suffice
    is_held: bool = False  # its consumer is slow: no step includes it until it is resumed
    drafts: tuple[int, ...] = ()
    late: Result | None = None  # the retired row whose token waits for the constraint's mask
    clock: Clock = field(default_factory=Clock)
    reader: OutputReader = field(init=False)
    constraint: Constraint | None = None
    sampler: HostSampler | None = None
    proposer: Proposer | None = None
    step_sampling: StepSampling = field(init=False)

    def __post_init__(self) -> None:
        request = self.request
        self.constraint = request.constraint() if request.constraint else None
        self.proposer = request.proposer() if request.proposer else None
        if request.samples_on_host:
            self.sampler = HostSampler(
                request.sampling, self.vocab_size, choice=request.choice, token_bytes=request.token_bytes
            )
        self.token_ids = list(request.prompt_ids)
        self.n_prompt = request.n_prompt
        self.reader = request.reader()
        self.step_sampling = request.sampling.words(choice=request.choice)
        if request.adapter:
            self.adapter_from = request.adapter.first_row(request.prompt_ids)

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: higher priority first, then earlier arrival."""
        return -self.request.priority, self.id

    @property
    def is_finished(self) -> bool:
        return not self.outbox.is_open

    @property
    def is_schedulable(self) -> bool:
        """True if steps may include it."""
        return not (self.allocation is None or self.is_finished or self.is_preempted or self.is_held)

    @property
    def is_lazy(self) -> bool:
        """True if the device draws its next token, which a lazy constraint then tests."""
        sampling = self.request.sampling
        is_tested = self.constraint is not None and self.constraint.is_lazy and not self.needs_logits
        return is_tested and not self.request.mixer and sampling.fits_device and not sampling.logprobs

    @property
    def is_probed(self) -> bool:
        """True while its probe waits for the logits after the prompt."""
        return self.request.probe is not None and not self.answer_ids

    @property
    def needs_logits(self) -> bool:
        """True if its next generated row needs the whole logits."""
        return self.needs_all or self.is_probed

    @property
    def has_own_program(self) -> bool:
        """True if its generated rows need more output than a drawn token."""
        return (self.sampler is not None and not self.is_lazy) or self.request.sampling.logprobs > 0

    @property
    def can_run_ahead(self) -> bool:
        """True if a row can be submitted before the previous token is read.

        Host sampling and drafts need the previous token.
        """
        return self.is_fed and self.sampler is None and self.proposer is None

    @property
    def program(self) -> str:
        """The program of its next generated row."""
        if self.drafts:
            return VERIFY
        if not self.has_own_program:
            return DECODE
        return GUIDED if self.constraint or self.request.mixer or self.needs_logits else CANDIDATES

    @property
    def n_prefill(self) -> int:
        """Rows of `token_ids` still to prefill.

        A sequence with its own program keeps the last row for that program. The first row on a new allocation
        is prefilled even if it was generated, since only prefill programs have room for a whole page table's
        updates.
        """
        n_left = len(self.token_ids) - self.n_rows
        if self.has_own_program:
            return max(n_left - 1, 0)
        is_prompt = self.n_rows < self.n_prompt or (self.allocation is not None and self.allocation.is_fresh)
        return n_left if is_prompt or n_left > 1 else 0

    @property
    def awaits_encoder(self) -> bool:
        """True if no encoder has read its source on this allocation."""
        return bool(self.request.source_ids) and not (self.allocation and self.allocation.is_encoded)

    @property
    def n_text_rows(self) -> int:
        """Rows to prefill up to the next image, or to the first row of its adapter; 0 if the next row is an
        image's."""
        before = rows_before_media(self.request.media, self.n_rows) if self.request.media else None
        n = self.n_prefill if before is None else max(min(self.n_prefill, before), 0)
        return min(n, self.adapter_from - self.n_rows) if self.n_rows < self.adapter_from else n

    @property
    def is_at_image(self) -> bool:
        """True if the next row is an image's."""
        return bool(self.request.media) and self.n_prefill > 0 == self.n_text_rows

    @property
    def key_ids(self) -> Seq[int]:
        """The ids by which the prefix cache finds its rows."""
        return self._row_keys.ids(with_keys(self.token_ids, self.request.media))

    @property
    def salt(self) -> str:
        """The salt by which the prefix cache finds its rows."""
        return self._row_keys.salt(self.request.salt)

    @property
    def _row_keys(self) -> RowKeys:
        adapter = self.request.adapter
        return adapter.row_keys(self.adapter_from) if adapter else NO_ADAPTER

    @property
    def active_slot(self) -> int:
        """The adapter slot of its next rows."""
        return self.adapter_slot if self.n_rows >= self.adapter_from else 0

    @property
    def is_atomic_prefill(self) -> bool:
        """True if the rest of its prompt must go through one step."""
        return self.request.is_atomic and self.n_rows < self.request.n_prompt == len(self.token_ids)

    @property
    def can_decode(self) -> bool:
        """True if its next generated row can be submitted."""
        if self.n_prefill or self.awaits_encoder or (self.n_in_flight and not self.can_run_ahead):
            return False
        n_tokens = len(self.token_ids) + self.n_ahead
        return self.n_rows < n_tokens < self.limit

    @property
    def n_valid(self) -> int:
        """Retired rows whose tokens the host has read; rows beyond the end of the answer do not count."""
        return min(self.n_retired, len(self.token_ids))

    def source_rows(self, number: int) -> list[StepRow]:
        """The step rows of its encoder's tokens."""
        ids = self.request.source_ids
        return [StepRow(FROM_ID, token_id, number, i, (i,)) for i, token_id in enumerate(ids)]

    def rows(self, number: int, first: int, n: int) -> list[StepRow]:
        """The step rows from state row `first` on; those of known text are made all at once."""
        end = first + n
        types = self.request.token_types[first:end]
        if self.request.media or end > len(self.token_ids) or 0 < len(types) < n:
            return [self.row(number, i) for i in range(first, end)]
        positions = zip(range(first, end), types, strict=True) if types else zip(range(first, end))
        known = repeat(FROM_ID), self.token_ids[first:end], repeat(number), range(first, end), positions
        return list(map(StepRow, *known))

    def row(self, number: int, state_row: int) -> StepRow:
        """The step row at `state_row`: its token is known, drafted, or still on the device."""
        n_known = len(self.token_ids)
        source, value = FROM_ID, 0
        if state_row < n_known:
            value = self.token_ids[state_row]
        elif state_row - n_known < len(self.drafts):
            value = self.drafts[state_row - n_known]
        else:
            source = FROM_RING
        media = self.request.media
        types = self.request.token_types[state_row : state_row + 1]
        positions = position_of(media, state_row) if media else (state_row, *types)
        return StepRow(source=source, value=value, sequence=number, state_row=state_row, positions=positions)

    def submitted(self, n_rows: int, n_draws: int) -> None:
        """Counts a step that was submitted with these rows."""
        self.n_rows += n_rows
        self.n_ahead += n_draws
        self.n_in_flight += 1
        self.n_steps += 1
        if n_draws and self.constraint and self.sampler and self.sampler.needs_mask:
            self.constraint.ready()  # a worker makes the mask while the device computes

    def retired(self, n_rows: int, n_draws: int) -> None:
        """Counts the oldest step in flight with rows of this sequence as retired."""
        self.n_retired += n_rows
        self.n_ahead -= n_draws
        self.n_in_flight -= 1

    def lose_steps(self) -> None:
        """Uncounts the steps in flight, which a lost device never ends."""
        self.n_in_flight = self.n_ahead = 0

    def rollback(self, n_rows: int) -> None:
        """Uncounts the last rows. None of the sequence's rows may be in flight."""
        self.n_rows -= n_rows
        self.n_retired -= n_rows

    def attach(self, allocation: CacheAllocation) -> None:
        """Starts or resumes on an allocation, after its cached rows."""
        self.allocation, self.n_rows, self.n_retired = allocation, allocation.n_cached, allocation.n_cached
        self.n_hit_rows = allocation.n_cached
        if not self.n_steps:
            self.n_cached = min(allocation.n_cached, self.request.n_prompt)

    def detach(self) -> None:
        """Drops the allocation; a later attempt computes from the first uncached token."""
        self.allocation, self.n_rows, self.n_retired, self.adapter_slot = None, 0, 0, 0
        self.is_preempted, self.needs_all, self.drafts, self.late = False, False, (), None
        if not self.is_finished:
            self.outbox.logits.clear()  # consumers read logits only after the end

    def shift(self) -> int:
        """Drops half of the tokens after the first `n_keep` and returns their number.

        The rest is recomputed.
        """
        keep = min(self.request.n_keep, len(self.token_ids) - 2)
        n = max((len(self.token_ids) - keep) // 2, 1)
        del self.token_ids[keep : keep + n]
        if self.adapter_from > keep:
            self.adapter_from = max(self.adapter_from - n, keep)
        self.n_shifted += n
        self.n_prompt = len(self.token_ids)
        self.step_sampling = self.request.sampling.words(choice=self.request.choice, offset=self.n_shifted)
        return n

    def accept(
        self, token_id: int, logprob: float, top: tuple[tuple[int, float], ...] = ()
    ) -> FinishReason | None:
        """Appends one token to the answer; returns the finish reason if it is the last."""
        self.token_ids.append(token_id)
        self.answer_ids.append(token_id)
        self.reader.push(token_id)
        is_stop = self.reader.stopped or (self.constraint is not None and self.constraint.is_finished)
        is_last = is_stop or len(self.answer_ids) == self.max_tokens or self.is_full
        self.emit(Token(token_id, logprob, top), is_last=is_last)
        return ("stop" if is_stop else "length") if is_last else None

    @property
    def is_full(self) -> bool:
        """True if the context is full and does not shift."""
        return len(self.token_ids) == self.limit and not self.shifts_context

    @property
    def shifts_context(self) -> bool:
        """True if a full context drops tokens instead of ending the request."""
        return self.request.overflow == "shift"

    def emit(self, token: Token | None, *, is_last: bool) -> None:
        """Puts the reader's event for a token, or for an end without a token, into the outbox."""
        event = self.reader.event(token, is_last=is_last)
        if event is not None:
            self.outbox.events.append(event)

    def finish(self, reason: FinishReason, error: Exception | None = None) -> None:
        """Closes the outbox with the result. Rows still in flight are discarded when they retire."""
        if self.is_finished:
            return
        if reason in ("timeout", "cancelled"):  # no last token releases the text that the reader withholds
            self.emit(None, is_last=True)
        n_prompt = self.request.n_read
        generation = Generation(
            token_ids=self.answer_ids,
            finish_reason=reason,
            usage=Usage(n_prompt, len(self.answer_ids), self.n_cached),
            timings=self.clock.timings(n_prompt - self.n_cached, self.n_steps),
            seed=self.request.sampling.seed or 0,
        )
        self.outbox.error = error
        self.outbox.completion = self.reader.completion(generation)
        self.outbox.is_open = False

    def fork_prompt(self, id: int, choice: int) -> Sequence:
        """A second stream from the prompt alone, with its own draws."""
        return Sequence(
            id=id, request=replace(self.request, choice=choice, probe=None), vocab_size=self.vocab_size,
            max_tokens=self.max_tokens, limit=self.limit, is_fed=self.is_fed, clock=Clock(self.clock.now),
        )  # fmt: skip

    def fork(self, id: int, choice: int) -> Sequence:
        """A second stream that continues from the same tokens with its own draws.

        Its completion contains the whole answer, its events only the tokens from here on.
        """
        request = replace(self.request, choice=choice)
        own = {
            "outbox": Outbox(),
            "clock": Clock(self.clock.now),
            "allocation": None,
            "adapter_slot": 0,
            "drafts": (),
            "n_steps": 0,
        }
        child = replace(self, id=id, request=request, n_rows=0, n_retired=0, n_cached=0, **own)
        child.token_ids, child.answer_ids = list(self.token_ids), list(self.answer_ids)
        child.n_prompt, child.adapter_from = self.n_prompt, self.adapter_from
        child.step_sampling = request.sampling.words(choice=choice, offset=self.n_shifted)
        if self.sampler and child.sampler:
            child.sampler.mu = self.sampler.mu
        child._feed(self.answer_ids)
        return child

    def _feed(self, token_ids: Iterable[int]) -> None:
        """Feeds tokens to the output reader and the constraint without emitting events."""
        for token_id in token_ids:
            self.reader.push(token_id)
            self.reader.event(Token(token_id, 0.0), is_last=False)
            if self.constraint:
                self.constraint.accept(token_id)
