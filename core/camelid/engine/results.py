"""The engine's output: tokens, the end of a sequence with its figures, and the contract of an output
reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Literal, Protocol

STRETCH = 16  # tokens between the two times of one inter-token measurement
FinishReason = Literal["stop", "length", "timeout", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. Log-probabilities are natural, of the model's distribution before any sampler."""

    token_id: int
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of prompt and answer, without the end token; `cached_tokens` of the prompt came from the
    cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds, and tokens a second; a rate without a measurement is 0.0.

    `queue_s` ends at the first step, `ttft_s` at the first token. `inter_token_s` is the median over
    stretches of 16 tokens, since short steps retire several tokens together.
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
        """Nothing to read."""

    def event(self, token: Token | None, *, is_last: bool) -> Token | None:  # noqa: ARG002 - the protocol's
        """The token itself."""
        return token

    def completion(self, generation: Generation) -> Generation:
        """The generation itself."""
        return generation


@dataclass(slots=True)
class Outbox:
    """Events, logits and result for a stream's consumer; it outlives the sequence."""

    events: deque[Any] = field(default_factory=deque[Any])
    logits: list[memoryview[float]] = field(default_factory=list["memoryview[float]"])  # [V] float32 a row
    completion: Any = None
    error: Exception | None = None
    is_open: bool = True


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
