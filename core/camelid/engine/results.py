"""The engine's output: tokens, the result and timings of a sequence, and the protocol of an output reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Literal, NamedTuple, Protocol

SPAN = 16  # tokens between the two times of one inter-token measurement
FinishReason = Literal["stop", "length", "timeout", "cancelled", "error"]


class Token(NamedTuple):
    """One generated token. Log-probabilities are natural, of the model's distribution before any sampler."""

    token_id: int
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of prompt and answer, without the end token.

    `cached_tokens` of the prompt tokens came from the prefix cache.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Times in seconds, and rates in tokens per second; a rate without a measurement is 0.0.

    `queue_s` ends at the first step, `ttft_s` at the first token. `inter_token_s` is the median over spans of
    16 tokens, since short steps retire several tokens together.
    """

    queue_s: float
    ttft_s: float
    prefill_tps: float
    decode_tps: float
    inter_token_s: float
    total_s: float
    n_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A finished sequence. `token_ids` exclude the end token.

    `finish_reason` is "stop" for an end token, a stop sequence or the end of a grammar; "length" at
    `max_tokens` or a full context.
    """

    token_ids: list[int]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    seed: int


class OutputReader(Protocol):
    """Reads the tokens of one sequence, finds stop sequences, and makes the events of its stream."""

    @property
    def stopped(self) -> bool:
        """True once a stop sequence was read."""
        ...

    def push(self, token_id: int) -> None:
        """Reads one token of the answer."""
        ...

    def event(self, token: Token | None, *, is_last: bool) -> Any:
        """The stream's event for the token read last, or for an end without a token; None for no event."""
        ...

    def completion(self, generation: Generation) -> Any:
        """The stream's result."""
        ...


class TokenReader:
    """The reader of requests without text: a stream of `Token`, and a `Generation` at its end."""

    stopped = False

    def push(self, token_id: int) -> None:
        """Does nothing: tokens need no state."""

    def event(self, token: Token | None, *, is_last: bool) -> Token | None:  # noqa: ARG002 - the protocol's
        """The token itself."""
        return token

    def completion(self, generation: Generation) -> Generation:
        """The generation itself."""
        return generation


@dataclass(slots=True)
class Outbox:
    """Events, logits and result for a stream's consumer. It outlives the sequence."""

    events: deque[Any] = field(default_factory=deque[Any])
    logits: list[Any] = field(default_factory=list[Any])  # [V] float32 a row, or the row's score
    completion: Any = None
    error: Exception | None = None
    is_open: bool = True


@dataclass(slots=True)
class Clock:
    """Times of a sequence's events, in seconds of `now`; 0.0 stands for an event that has not happened."""

    now: Callable[[], float] = perf_counter
    submitted: float = field(init=False)
    started: float = 0.0
    tokens: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.submitted = self.now()

    def start(self) -> None:
        """Records the first step."""
        self.started = self.started or self.now()

    def token(self) -> None:
        """Records a token."""
        self.tokens.append(self.now())

    def timings(self, n_prefilled: int, n_steps: int) -> Timings:
        """The timings of a sequence with `n_prefilled` computed prompt rows."""
        end, times = self.now(), self.tokens
        first, last = (times[0], times[-1]) if times else (0.0, 0.0)
        return Timings(
            queue_s=(self.started or end) - self.submitted,
            ttft_s=first - self.submitted if times else 0.0,
            prefill_tps=_rate(n_prefilled, first - self.started),
            decode_tps=_rate(len(times) - 1, last - first),
            inter_token_s=_inter_token_s(times),
            total_s=end - self.submitted,
            n_steps=n_steps,
        )


def _inter_token_s(times: Sequence[float]) -> float:
    n = min(SPAN, len(times) - 1)
    return median((b - a) / n for a, b in zip(times, times[n:], strict=False)) if n > 0 else 0.0


def _rate(n: int, seconds: float) -> float:
    return n / seconds if n > 0 and seconds > 0 else 0.0
