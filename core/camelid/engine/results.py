"""What comes out of a request: events as they come, and the completion with its figures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Literal

from camelid.text.toolcalls.parts import Part, ToolCall

STRETCH = 16  # tokens
FinishReason = Literal["stop", "length", "tool_calls", "timeout", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """One token of the answer, and the text that it completes.

    `text` is empty while bytes or a possible stop string are held back. What is still held when the end
    token comes makes a last event without an id. In a conversation, `parts` also have what is not text for
    the user: thoughts and tool calls. `top_logprobs` are the likeliest tokens here, if `logprobs` asked for
    them. Log-probabilities are natural, and of what the model says before any sampler.
    """

    text: str
    token_id: int | None
    logprob: float
    parts: tuple[Part, ...] = ()
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens in and out; the end token is not counted. `cached_tokens` of the prompt were computed before."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds and tokens a second. Rates are 0.0 where nothing was measured.

    `queue_s` went by before the first step, `ttft_s` before the first token. `inter_token_s` is the median
    between tokens, over stretches of some, since those of short steps come several at once.
    """

    queue_s: float
    ttft_s: float
    prefill_tps: float
    decode_tps: float
    inter_token_s: float
    total_s: float
    n_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A finished answer. `token_ids` leave out the end token; `text` ends before a stop string.

    `finish_reason` is "stop" for an end token, a stop string or a grammar's end; "length" for `max_tokens` or
    the context's end; "tool_calls" where whole calls end it. After "timeout" and "cancelled" it has what
    there was by then.

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
    """When things happened to a sequence, in seconds of `now`; 0.0 is not yet."""

    now: Callable[[], float] = perf_counter
    submitted: float = field(init=False)
    started: float = 0.0
    tokens: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.submitted = self.now()

    def start(self) -> None:
        self.started = self.started or self.now()

    def token(self) -> None:
        self.tokens.append(self.now())

    def timings(self, n_prefilled: int, n_steps: int) -> Timings:
        """Of `n_prefilled` prompt rows that were computed, and the tokens."""
        end, times = self.now(), self.tokens
        first, last = (times[0], times[-1]) if times else (0.0, 0.0)
        return Timings(
            queue_s=(self.started or end) - self.submitted,
            ttft_s=first - self.submitted if times else 0.0,
            prefill_tps=_rate(n_prefilled, first - self.started),
            decode_tps=_rate(len(times) - 1, last - first),
            inter_token_s=_between(times),
            total_s=end - self.submitted,
            n_steps=n_steps,
        )


def _between(times: Sequence[float]) -> float:
    n = min(STRETCH, len(times) - 1)
    return median((b - a) / n for a, b in zip(times, times[n:], strict=False)) if n > 0 else 0.0


def _rate(n: int, seconds: float) -> float:
    return n / seconds if n > 0 and seconds > 0 else 0.0
