"""Results of `camelid bench --server`: percentiles of the client's times, as facts and as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from camelid.cli.bench_report import Report, rate
from camelid.cli.bench_server_load import Sample
from camelid.cli.format import columns, printable

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def milliseconds(value: float) -> str:
    """Milliseconds: `12,345 ms`, or four digits below 1,000."""
    return f"{value:,.0f} ms" if value >= 1000 else f"{value:.4g} ms"


@dataclass(frozen=True, slots=True)
class Case:
    """A load: tokens of prompts and answers, and streams or a rate of arrival."""

    n_prompt: int
    n_answer: int
    n_streams: int = 0  # of a closed loop
    n_requests: int = 0
    rate: float = 0.0  # requests a second of an open loop
    duration_s: float = 0.0

    def __str__(self) -> str:
        if self.rate:
            load = f"open loop of {self.rate:g} requests/s for {self.duration_s:g} s"
        else:
            streams = "1 stream" if self.n_streams == 1 else f"{self.n_streams} streams"
            load = f"closed loop of {streams}, {self.n_requests} requests"
        return f"{load}; prompts of {self.n_prompt} tokens, answers of {self.n_answer}"

    def facts(self) -> Report:
        """The fields of --json that describe the load."""
        loop: Report = (
            {"loop": "open", "rate": self.rate, "duration_s": self.duration_s}
            if self.rate
            else {"loop": "closed", "streams": self.n_streams}
        )
        return {**loop, "n_prompt": self.n_prompt, "n_answer": self.n_answer}


@dataclass(frozen=True, slots=True)
class Result:
    """The samples of one case, its seconds, and the load generator's processor time."""

    case: Case
    samples: Sequence[Sample]
    seconds: float
    cpu_s: float

    @property
    def answered(self) -> list[Sample]:
        """Requests with a whole answer."""
        return [sample for sample in self.samples if not sample.error]

    @property
    def n_tokens(self) -> int:
        """Tokens of whole answers."""
        return sum(sample.n_tokens for sample in self.answered)

    @property
    def errors(self) -> dict[str, int]:
        """Number of errors by status."""
        return dict(Counter(sample.error for sample in self.samples if sample.error))

    def spreads(self) -> dict[str, dict[str, float]]:
        """Percentiles in milliseconds by name; empty for a name without a value."""
        answered = self.answered
        per_token = [mean_gap(sample) for sample in answered if sample.n_tokens > 1]
        return {
            "ttft": spread([sample.ttft_s for sample in answered]),
            "inter_token": spread([gap for sample in answered for gap in sample.gaps]),
            "per_token": spread(per_token),
            "end_to_end": spread([sample.total_s for sample in answered]),
        }

    def facts(self) -> Report:
        """The fields of --json."""
        answered, n_events = self.answered, sum(len(sample.times) for sample in self.answered)
        return {
            **self.case.facts(),
            "n_requests": len(self.samples),
            "n_answered": len(answered),
            "errors": self.errors,
            "seconds": self.seconds,
            "prompt_tokens": sum(sample.n_prompt for sample in answered),
            "cached_tokens": sum(sample.n_cached for sample in answered),
            "answer_tokens": self.n_tokens,
            "events": n_events,
            "tps": self.n_tokens / self.seconds,
            "requests_per_second": len(answered) / self.seconds,
            **{f"{name}_ms": values for name, values in self.spreads().items()},
            "late_ms": spread([sample.sent - sample.due for sample in self.samples]),
            "generator_cpu_s": self.cpu_s,
            "generator_cpu_us_per_token": 1e6 * self.cpu_s / max(self.n_tokens, 1),
        }

    def lines(self) -> list[str]:
        """The result as lines of text."""
        found = [str(self.case)]
        if self.answered:
            found += [*self._table(), self._rates(), self._prompts()]
        found += [self._generator(), *self._errors()]
        return found

    def _table(self) -> list[str]:
        names = {
            "ttft": "first token", "inter_token": "between two events",
            "per_token": "per token of an answer", "end_to_end": "whole answer",
        }  # fmt: skip
        rows = [
            (names[name], *map(milliseconds, values.values()))
            for name, values in self.spreads().items()
            if values
        ]
        return [f"  {line}" for line in columns([("", *(f"{' ' * 4}{name}" for name in SHARES)), *rows])]

    def _rates(self) -> str:
        per_second = len(self.answered) / self.seconds
        return (
            f"  {self.n_tokens:,} tokens in {self.seconds:.4g} s: {rate(self.n_tokens / self.seconds)}, "
            f"{per_second:.4g} requests/s; {len(self.answered)} of {len(self.samples)} requests answered"
        )

    def _prompts(self) -> str:
        """Tokens as the server counted them."""
        answered = self.answered
        cached = sum(sample.n_cached for sample in answered)
        known = f", {cached:,} of all cached" if cached else ""
        prompt, answer = fmean(s.n_prompt for s in answered), self.n_tokens / len(answered)
        if not prompt:
            return f"  the server counts no tokens in streams; the client saw {answer:.4g} events an answer"
        return f"  the server counted {prompt:.4g} tokens a prompt{known}, {answer:.4g} an answer"

    def _generator(self) -> str:
        late = spread([sample.sent - sample.due for sample in self.samples])["p99"]
        lag = f", arrivals late by {late:.3g} ms (p99)" if self.case.rate else ""
        share, each = self.cpu_s / self.seconds, 1e6 * self.cpu_s / max(self.n_tokens, 1)
        used = f"{self.cpu_s:.3g} s of CPU, {share:.1%} of one core, {each:.3g} µs a token"
        return f"  load generator: {used}{lag}"

    def _errors(self) -> list[str]:
        first = {sample.error: sample.message for sample in reversed(self.samples)}
        return [f"  {n} x {name}: {printable(first[name])[:160]}" for name, n in self.errors.items()]


def mean_gap(sample: Sample) -> float:
    """Seconds per token of an answer after its first, also of tokens that joined an event or have no text."""
    return (sample.end - sample.times[0]) / (sample.n_tokens - 1)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Percentiles in milliseconds; none of no values."""
    ordered = sorted(seconds)
    return {name: 1e3 * percentile(ordered, share) for name, share in SHARES.items()} if ordered else {}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value at a share of sorted values, interpolated between the two nearest."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
