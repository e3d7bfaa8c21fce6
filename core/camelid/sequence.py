"""What a user asked (`Request`), one running stream of it (`Sequence`), and what comes out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

from camelid.answers import NoText, TextSink
from camelid.drawing import Constraint
from camelid.plan.step import FROM_ID, FROM_RING, StepRow
from camelid.sampling import SamplingParams
from camelid.state import Seat
from camelid.text.toolcalls import Part, ToolCall, gather

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and how to go on from it. `all_logits` asks for the prompt's logits and no answer."""

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None  # None: up to the context
    eos_ids: frozenset[int] = frozenset()
    sink: Callable[[], TextSink] = NoText
    constraint: Callable[[], Constraint] | None = None
    all_logits: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """One token of the answer, and the text that it completes.

    `text` is empty while bytes or a possible stop string are held back. What is still held when the end
    token comes makes a last event without an id. In a conversation, `parts` also have what is not text for
    the user: thoughts and tool calls.
    """

    text: str
    token_id: int | None
    logprob: float
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens in and out; the end token is not counted."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds and tokens a second. Rates are 0.0 where nothing was measured."""

    ttft_s: float
    prefill_tps: float
    decode_tps: float
    total_s: float
    n_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A finished answer. `token_ids` leave out the end token; `text` ends before a stop string.

    In a conversation `reasoning` and `tool_calls` are what the model's family marks as such, `text` the rest.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    seed: int
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(slots=True)
class Outbox:
    """What an engine has for a stream's consumer. It outlives the sequence."""

    events: deque[Event] = field(default_factory=deque[Event])
    text: list[str] = field(default_factory=list[str])
    parts: list[Part] = field(default_factory=list["Part"])
    logits: list[memoryview[float]] = field(default_factory=list["memoryview[float]"])  # [V] float32 a row
    completion: Completion | None = None
    error: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self.completion is None


@dataclass(slots=True)
class Clock:
    """When things happened to a sequence, in seconds of `perf_counter`; 0.0 is not yet."""

    submitted: float = field(default_factory=perf_counter)
    started: float = 0.0
    first: float = 0.0
    last: float = 0.0

    def start(self) -> None:
        self.started = self.started or perf_counter()

    def token(self) -> None:
        self.last = perf_counter()
        self.first = self.first or self.last

    def timings(self, n_prompt: int, n_tokens: int, n_steps: int) -> Timings:
        end = perf_counter()
        return Timings(
            ttft_s=self.first - self.submitted if self.first else 0.0,
            prefill_tps=_rate(n_prompt, self.first - self.started),
            decode_tps=_rate(n_tokens - 1, self.last - self.first),
            total_s=end - self.submitted,
            n_steps=n_steps,
        )


def _rate(n: int, seconds: float) -> float:
    return n / seconds if n > 0 and seconds > 0 else 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One running stream.

    `token_ids` are known to the host: prompt, then retired ids. `n_rows` and `n_sampled` count what was
    submitted, so they run ahead of `token_ids` by the steps in flight.
    """

    id: int
    request: Request
    max_tokens: int
    outbox: Outbox = field(default_factory=Outbox)
    token_ids: list[int] = field(default_factory=list[int])
    n_rows: int = 0
    n_sampled: int = 0
    n_in_flight: int = 0
    n_steps: int = 0
    seat: Seat | None = None
    clock: Clock = field(default_factory=Clock)
    sink: TextSink = field(init=False)
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        self.constraint = self.request.constraint() if self.request.constraint else None
        self.token_ids = list(self.request.prompt_ids)
        self.sink = self.request.sink()

    @property
    def n_prompt(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def is_guided(self) -> bool:
        """A constraint chooses its tokens, so each row waits for the one before."""
        return self.constraint is not None

    @property
    def n_prompt_left(self) -> int:
        """Rows still to prefill; a guided sequence keeps its last for the program that returns logits."""
        return max(self.n_prompt - self.is_guided - self.n_rows, 0)

    @property
    def max_rows(self) -> int:
        """State rows that it can ever need."""
        return self.n_prompt + self.max_tokens

    @property
    def generated_ids(self) -> list[int]:
        return self.token_ids[self.n_prompt :]

    @property
    def is_finished(self) -> bool:
        return not self.outbox.is_open

    @property
    def can_decode(self) -> bool:
        waits = self.is_guided and self.n_in_flight > 0
        return not (waits or self.n_prompt_left or self.is_finished) and self.n_sampled < self.max_tokens

    def row(self, number: int, state_row: int) -> StepRow:
        """The step row at `state_row`; its id is still on the device if the host has not read it."""
        is_known = state_row < len(self.token_ids)
        return StepRow(
            source=FROM_ID if is_known else FROM_RING,
            value=self.token_ids[state_row] if is_known else 0,
            sequence=number,
            state_row=state_row,
            positions=(state_row,),
        )

    def submitted(self, n_rows: int, n_sampled: int) -> None:
        """Notes that a step with these rows is in flight."""
        self.n_rows += n_rows
        self.n_sampled += n_sampled
        self.n_in_flight += 1
        self.n_steps += 1

    def emit(self, text: str, token_id: int | None, logprob: float) -> None:
        """Puts in the outbox what came of one token, or of the end, where there is anything."""
        parts = self.sink.take()
        if text or parts or token_id is not None:
            self.outbox.events.append(Event(text, token_id, logprob, parts))
            self.outbox.text.append(text)
            self.outbox.parts += parts

    def finish(self, reason: FinishReason, error: Exception | None = None) -> None:
        """Closes the outbox. Rows still in flight are discarded when they retire."""
        if self.is_finished:
            return
        ids, message = self.generated_ids, gather(self.outbox.parts)
        calls = any(call.complete for call in message.tool_calls)
        self.outbox.error = error
        self.outbox.completion = Completion(
            text="".join(self.outbox.text),
            token_ids=ids,
            finish_reason="tool_calls" if calls and reason == "stop" else reason,
            usage=Usage(self.n_prompt, len(ids)),
            timings=self.clock.timings(self.n_prompt, len(ids), self.n_steps),
            seed=self.request.sampling.seed or 0,
            reasoning=message.reasoning,
            tool_calls=message.tool_calls,
        )
