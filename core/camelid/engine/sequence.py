"""What a user asked (`Request`), and one running stream of it (`Sequence`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from camelid.engine.allocation import CacheAllocation
from camelid.engine.programs import ALL_LOGITS, CANDIDATES, DECODE, GUIDED, VERIFY
from camelid.engine.results import (
    Clock,
    FinishReason,
    Generation,
    Outbox,
    OutputReader,
    Token,
    TokenReader,
    Usage,
)
from camelid.engine.speculative import Proposer
from camelid.plan.step import FROM_ID, FROM_RING, StepRow, StepSampling
from camelid.sampling.drawing import Constraint
from camelid.sampling.host import HostSampler
from camelid.sampling.params import SamplingParams

Overflow = Literal["error", "shift", "stop"]
OVERFLOWS: tuple[Overflow, ...] = ("error", "shift", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and how to go on from it.

    `all_logits` asks for the prompt's logits and no answer. `max_tokens` None goes on up to the context;
    `overflow` says what happens where more is asked than it holds: an error at once, a stop there, or a
    shift, which drops half of what follows the first `n_keep` tokens. A higher `priority` goes first.
    Seconds may be bounded in the queue and in all. An `is_atomic` prompt goes through one step as a whole.
    `reuses` lets it find what was computed before for requests of the same `salt`. `choice` parts the draws
    of requests that are otherwise equal.
    """

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    eos_ids: frozenset[int] = frozenset()
    reader: Callable[[], OutputReader] = TokenReader
    constraint: Callable[[], Constraint] | None = None
    proposer: Callable[[], Proposer] | None = None
    all_logits: bool = False
    overflow: Overflow = "error"
    n_keep: int = 0
    priority: int = 0
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    is_atomic: bool = False
    reuses: bool = True
    salt: str = ""
    choice: int = 0
    token_bytes: Callable[[int], bytes] = lambda token_id: b""

    @property
    def n_prompt(self) -> int:
        return len(self.prompt_ids)

    @property
    def finds(self) -> bool:
        """Whether rows that were computed before serve it: not where every row's logits are asked for."""
        return self.reuses and not self.all_logits

    @property
    def sampler_waits(self) -> bool:
        """The host draws its tokens, each after the one before."""
        return self.constraint is not None or not self.sampling.fits_device

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that it needs besides those that every model has."""
        if self.all_logits:
            return (ALL_LOGITS,)
        if self.constraint:
            return (GUIDED,)
        hosted = () if self.sampling.fits_device else (CANDIDATES, GUIDED)
        shown = (CANDIDATES,) if self.sampling.logprobs else ()
        return (*hosted, *shown, *((VERIFY,) if self.proposer else ()))


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One running stream.

    `token_ids` are what the context holds and the host knows: prompt, then retired ids; after a shift fewer
    than `answer_ids` may be among them. `n_rows` counts rows submitted and `n_ahead` draws in flight, so both
    run ahead of `token_ids`. `limit` is how many tokens the context may come to hold.
    """

    id: int
    request: Request
    vocab_size: int
    max_tokens: int
    limit: int
    outbox: Outbox = field(default_factory=Outbox)
    token_ids: list[int] = field(default_factory=list[int])
    answer_ids: list[int] = field(default_factory=list[int])
    n_prompt: int = 0  # rows that are prompt to the kernels
    n_rows: int = 0
    n_done: int = 0  # rows of retired steps
    n_ahead: int = 0
    n_in_flight: int = 0
    n_steps: int = 0
    n_shifted: int = 0  # tokens that shifts dropped
    n_found: int = 0  # rows that were computed when it took its allocation
    n_cached: int = 0  # of its prompt, the first time
    allocation: CacheAllocation | None = None
    is_preempted: bool = False  # it gives up its allocation once nothing of it is in flight
    is_failed: bool = False  # a step of it failed, so that nobody knows what its units hold
    needs_all: bool = False  # since the candidates of its latest row were too few
    drafts: tuple[int, ...] = ()
    clock: Clock = field(default_factory=Clock)
    reader: OutputReader = field(init=False)
    constraint: Constraint | None = None
    sampler: HostSampler | None = None
    proposer: Proposer | None = None
    words: StepSampling = field(init=False)

    def __post_init__(self) -> None:
        request = self.request
        self.constraint = request.constraint() if request.constraint else None
        self.proposer = request.proposer() if request.proposer else None
        if request.sampler_waits:
            self.sampler = HostSampler(
                request.sampling, self.vocab_size, choice=request.choice, token_bytes=request.token_bytes
            )
        self.token_ids = list(request.prompt_ids)
        self.n_prompt = request.n_prompt
        self.reader = request.reader()
        self.words = request.sampling.words(choice=request.choice)

    @property
    def order(self) -> tuple[int, int]:
        """Who goes first: the higher priority, then who came first."""
        return -self.request.priority, self.id

    @property
    def is_finished(self) -> bool:
        return not self.outbox.is_open

    @property
    def is_live(self) -> bool:
        """Whether steps may be built for it."""
        return not (self.allocation is None or self.is_finished or self.is_preempted)

    @property
    def has_own_program(self) -> bool:
        """Its generated rows need more than a drawn token back."""
        return self.sampler is not None or self.request.sampling.logprobs > 0

    @property
    def is_dependent(self) -> bool:
        """Each of its generated rows waits for the one before: the host has a say in what follows."""
        return self.sampler is not None or self.proposer is not None

    @property
    def program(self) -> str:
        """What runs its next generated row."""
        if self.drafts:
            return VERIFY
        if not self.has_own_program:
            return DECODE
        return GUIDED if self.constraint or self.needs_all else CANDIDATES

    @property
    def n_prefill(self) -> int:
        """Known rows that go through the prompt's program.

        A sequence with a program of its own keeps the last known row for that.
        The first row on a new allocation goes there too, since page tables that are all new fit there.
        """
        n_left = len(self.token_ids) - self.n_rows
        if self.has_own_program:
            return max(n_left - 1, 0)
        is_prompt = self.n_rows < self.n_prompt or (self.allocation is not None and self.allocation.is_fresh)
        return n_left if is_prompt or n_left > 1 else 0

    @property
    def is_in_one_piece(self) -> bool:
        """Whether what is left of its prompt must go through one step."""
        return self.request.is_atomic and self.n_rows < self.request.n_prompt == len(self.token_ids)

    @property
    def can_decode(self) -> bool:
        """Whether its next generated row can be submitted."""
        if self.n_prefill or (self.is_dependent and self.n_in_flight):
            return False
        n_tokens = len(self.token_ids) + self.n_ahead
        return self.n_rows < n_tokens < self.limit

    @property
    def n_valid(self) -> int:
        """Retired rows whose tokens are known: a row after the end may have been computed, too."""
        return min(self.n_done, len(self.token_ids))

    def row(self, number: int, state_row: int) -> StepRow:
        """The step row at `state_row`: known, drafted, or still on the device."""
        n_known = len(self.token_ids)
        source, value = FROM_ID, 0
        if state_row < n_known:
            value = self.token_ids[state_row]
        elif state_row - n_known < len(self.drafts):
            value = self.drafts[state_row - n_known]
        else:
            source = FROM_RING
        return StepRow(
            source=source, value=value, sequence=number, state_row=state_row, positions=(state_row,)
        )

    def submitted(self, n_rows: int, n_draws: int) -> None:
        """Notes that a step with these rows is in flight."""
        self.n_rows += n_rows
        self.n_ahead += n_draws
        self.n_in_flight += 1
        self.n_steps += 1

    def retired(self, n_rows: int, n_draws: int) -> None:
        """The oldest step in flight with rows of it is done."""
        self.n_done += n_rows
        self.n_ahead -= n_draws
        self.n_in_flight -= 1

    def take_back(self, n_rows: int) -> None:
        """The last rows count as never run. Nothing of it may be in flight."""
        self.n_rows -= n_rows
        self.n_done -= n_rows

    def attach(self, allocation: CacheAllocation) -> None:
        """Begins, or begins again, with what its allocation already holds."""
        self.allocation, self.n_rows, self.n_done = allocation, allocation.n_cached, allocation.n_cached
        self.n_found = allocation.n_cached
        if not self.n_steps:
            self.n_cached = min(allocation.n_cached, self.request.n_prompt)

    def detach(self) -> None:
        """Gives up its allocation; what it will compute again begins at its first token."""
        self.allocation, self.n_rows, self.n_done = None, 0, 0
        self.is_preempted, self.needs_all, self.drafts = False, False, ()
        if not self.is_finished:
            self.outbox.logits.clear()  # which nobody reads before the end

    def shift(self) -> int:
        """Drops half of what follows the kept tokens; how many. The rest is computed anew."""
        keep = min(self.request.n_keep, len(self.token_ids) - 2)
        n = max((len(self.token_ids) - keep) // 2, 1)
        del self.token_ids[keep : keep + n]
        self.n_shifted += n
        self.n_prompt = len(self.token_ids)
        self.words = self.request.sampling.words(choice=self.request.choice, offset=self.n_shifted)
        return n

    def accept(
        self, token_id: int, logprob: float, top: tuple[tuple[int, float], ...] = ()
    ) -> FinishReason | None:
        """One more token of the answer; the reason to end, if it is the last."""
        self.token_ids.append(token_id)
        self.answer_ids.append(token_id)
        self.reader.push(token_id)
        is_stop = self.reader.stopped or (self.constraint is not None and self.constraint.is_finished)
        is_last = is_stop or len(self.answer_ids) == self.max_tokens or self.is_full
        self.emit(Token(token_id, logprob, top), is_last=is_last)
        return ("stop" if is_stop else "length") if is_last else None

    @property
    def is_full(self) -> bool:
        """The context holds no further token, and none is to be dropped for it."""
        return len(self.token_ids) == self.limit and not self.shifts

    @property
    def shifts(self) -> bool:
        """Whether tokens are to be dropped where the context is full."""
        return self.request.overflow == "shift"

    def emit(self, token: Token | None, *, is_last: bool) -> None:
        """Puts the reader's event for a token, or for an end without one, into the outbox."""
        event = self.reader.event(token, is_last=is_last)
        if event is not None:
            self.outbox.events.append(event)

    def finish(self, reason: FinishReason, error: Exception | None = None) -> None:
        """Closes the outbox. Rows still in flight are discarded when they retire."""
        if self.is_finished:
            return
        if reason in ("timeout", "cancelled"):  # no last token releases the text that the reader withholds
            self.emit(None, is_last=True)
        n_prompt = self.request.n_prompt
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

    def fork(self, id: int, choice: int) -> Sequence:  # noqa: A002
        """Another stream that goes on from the same tokens with draws of its own.

        Its completion has the whole answer, its events only what comes from now on.
        """
        request = replace(self.request, choice=choice)
        own = {
            "outbox": Outbox(),
            "clock": Clock(self.clock.now),
            "allocation": None,
            "drafts": (),
            "n_steps": 0,
        }
        child = replace(self, id=id, request=request, n_rows=0, n_done=0, n_cached=0, **own)
        child.token_ids, child.answer_ids = list(self.token_ids), list(self.answer_ids)
        child.n_prompt = self.n_prompt
        child.words = request.sampling.words(choice=choice, offset=self.n_shifted)
        if self.sampler and child.sampler:
            child.sampler.mu = self.sampler.mu
        child.replay(self.answer_ids)
        return child

    def replay(self, token_ids: Iterable[int]) -> None:
        """Brings text and constraint to where these tokens leave them, without events."""
        for token_id in token_ids:
            self.reader.push(token_id)
            self.reader.event(Token(token_id, 0.0), is_last=False)
            if self.constraint:
                self.constraint.accept(token_id)
