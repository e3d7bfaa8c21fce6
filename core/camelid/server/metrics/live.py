"""Counts of an endpoint, a job and a model, written as events and steps arrive."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, fields

from camelid.engine.metrics import Counters, StepStats
from camelid.requests.output_text import Completion
from camelid.server.metrics.histogram import FIRST_S, STEP_S, TOKEN_S, TOKENS, WHOLE_S, Histogram, Rate
from camelid.server.service.service import Service, Started

N_RECENT = 512  # steps of a program whose times the live panel shows


@dataclass(slots=True)
class Series:
    """Counts and times of one endpoint and model."""

    first_token: Histogram = field(default_factory=lambda: Histogram(FIRST_S))
    inter_token: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    whole: Histogram = field(default_factory=lambda: Histogram(WHOLE_S))
    queue: Histogram = field(default_factory=lambda: Histogram(FIRST_S))
    prefill: Histogram = field(default_factory=lambda: Histogram(FIRST_S))
    decode: Histogram = field(default_factory=lambda: Histogram(WHOLE_S))
    prompt_tokens: Histogram = field(default_factory=lambda: Histogram(TOKENS))
    answer_tokens: Histogram = field(default_factory=lambda: Histogram(TOKENS))
    n_prompt: int = 0
    n_cached: int = 0
    n_computed: int = 0  # prompt tokens of ended answers that were not cached
    n_answer: int = 0
    n_cancelled: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True, eq=False)
class Live:
    """The facts of one job, while it runs and after."""

    started: Started
    series: Series
    model: ModelTally
    n_prompt: int
    open: set[int]
    last: list[float]  # time of each choice's latest token; 0.0 before its first
    n_answer: list[int]
    first: float = 0.0  # time of the first token
    ended: float = 0.0
    n_cached: int = 0
    queue_s: float = 0.0
    reasons: dict[int, str] = field(default_factory=dict[int, str])
    completions: dict[int, Completion] = field(default_factory=dict[int, Completion])

    @property
    def texts(self) -> dict[int, str]:
        """The texts of the choices that ended."""
        return {choice: completion.text for choice, completion in self.completions.items()}

    @property
    def was_cancelled(self) -> bool:
        """True if the client was gone before the end of a choice."""
        return bool(self.open)

    @property
    def ttft_s(self) -> float:
        """Seconds from the place in the queue to the first token; 0.0 without one."""
        return self.first - self.started.place.entered if self.first else 0.0

    def arrive(self, choice: int, n: int, now: float) -> None:
        """Counts tokens of a choice; the tokens of one step share its time evenly."""
        last = self.last[choice]
        if last:
            self.series.inter_token.observe((now - last) / n, n)
        elif not self.first:
            self._begin(now)
        self.last[choice] = now
        self.n_answer[choice] += n
        self.series.n_answer += n
        self.model.answer_rate.add(n, now)

    def _begin(self, now: float) -> None:
        self.first = now
        self.series.first_token.observe(self.ttft_s)
        self.series.n_prompt += self.n_prompt
        self.model.prompt_rate.add(self.n_prompt, now)

    def end(self, choice: int, completion: Completion) -> None:
        """Counts a finished choice; the prompt, which the choices share, once."""
        times, usage, series = completion.timings, completion.usage, self.series
        if not self.reasons:
            self.n_cached, self.queue_s = usage.cached_tokens, times.queue_s
            series.n_cached += usage.cached_tokens
            series.n_computed += usage.prompt_tokens - usage.cached_tokens
            series.queue.observe(times.queue_s)
            series.prompt_tokens.observe(usage.prompt_tokens)
            if times.ttft_s:
                series.prefill.observe(max(times.ttft_s - times.queue_s, 0.0))
        self.completions[choice] = completion
        series.answer_tokens.observe(usage.completion_tokens)
        if times.ttft_s:
            series.decode.observe(max(times.total_s - times.ttft_s, 0.0))
        longest = usage.prompt_tokens + usage.completion_tokens
        self.model.n_tokens_max = max(self.model.n_tokens_max, longest)
        self.open.discard(choice)
        self.conclude(choice, completion.finish_reason)

    def conclude(self, choice: int, reason: str) -> None:
        """Notes how a choice ended."""
        self.reasons[choice] = reason
        self.series.reasons[reason] += 1


@dataclass(slots=True)
class Steps:
    """Steps of one program, written on the engine's thread."""

    seconds: Histogram = field(default_factory=lambda: Histogram(STEP_S))
    recent: deque[float] = field(default_factory=lambda: deque[float](maxlen=N_RECENT))
    n_rows: int = 0
    n_sequences: int = 0


@dataclass(slots=True, eq=False)
class ModelTally:
    """Counts of one model, over all times that it was loaded."""

    steps: dict[str, Steps] = field(default_factory=dict[str, Steps])
    prompt_rate: Rate = field(default_factory=Rate)
    answer_rate: Rate = field(default_factory=Rate)
    n_tokens_max: int = 0
    _counters: Counters = field(default_factory=Counters)
    _before: Counters = field(default_factory=Counters)  # of engines that were closed

    def follow(self, service: Service) -> None:
        """Watches the engine of a loaded model; a second call for the same engine does nothing."""
        engine = service.host.running.engine
        if engine.counters is not self._counters:
            self._before, self._counters = self.totals(), engine.counters
            engine.hooks.append(self.step)

    def step(self, stats: StepStats) -> None:
        """Counts a step; called on the engine's thread."""
        steps = self.steps.get(stats.program)
        if steps is None:
            # a new dict, since a reader on another thread may be iterating over the old one
            self.steps = {**self.steps, stats.program: (steps := Steps())}
        steps.seconds.observe(stats.seconds)
        steps.recent.append(stats.seconds)
        steps.n_rows += stats.n_rows
        steps.n_sequences += stats.n_sequences

    def totals(self) -> Counters:
        """The engines' counters, summed over all loads."""
        names = [each.name for each in fields(Counters)]
        pairs = ((getattr(self._before, name), getattr(self._counters, name)) for name in names)
        return Counters(*(a + b for a, b in pairs))
