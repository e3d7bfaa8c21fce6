"""What `camelid bench` found: rows as facts for --json, and as lines that say what a figure comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev

from camelid.cli.bench_cases import Case
from camelid.cli.bench_predict import Prediction, Yardstick
from camelid.cli.bench_runs import Run

Facts = dict[str, object]
LABEL = 20  # columns


@dataclass(frozen=True, slots=True)
class Spread:
    """Tokens a second of some runs."""

    median: float
    stdev: float
    least: float
    most: float
    n_runs: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Spread:
        """The runs' spread; the standard deviation of a single run is 0."""
        rates = [run.tps for run in runs]
        return cls(median(rates), stdev(rates) if len(rates) > 1 else 0.0, min(rates), max(rates), len(rates))

    def __str__(self) -> str:
        within = f"{self.least:.4g} to {self.most:.4g} in {self.n_runs}"
        return f"{rate(self.median)} ± {self.stdev:.3g} ({within})"

    def facts(self) -> Facts:
        """By their names in --json."""
        names = ("tps", "stdev_tps", "min_tps", "max_tps", "n_runs")
        return dict(zip(names, (self.median, self.stdev, self.least, self.most, self.n_runs), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case: what was predicted, what was measured, and what a rival did in between."""

    case: Case
    yardstick: Yardstick
    prediction: Prediction
    runs: Sequence[Run]
    rival: Sequence[Run] = ()

    @property
    def spread(self) -> Spread:
        """Of our runs."""
        return Spread.of(self.runs)

    @property
    def ttft_s(self) -> float:
        """Median time to the last stream's first token."""
        return median(run.ttft_s for run in self.runs)

    @property
    def read_share(self) -> float:
        """Bytes that had to move, over what the machine could have read in that time."""
        return self.prediction.bytes_per_token * self.spread.median / (self.yardstick.read_gbps * 1e9)

    @property
    def engine_share(self) -> float:
        """Part of the time that was not spent in the backend."""
        return median(1.0 - (run.backend_s or 0.0) / run.seconds for run in self.runs)

    @property
    def dispatches_per_token(self) -> float | None:
        """None for a backend that has no such count."""
        each = [run.dispatches_per_token for run in self.runs if run.dispatches_per_token is not None]
        return median(each) if each else None

    @property
    def n_computed(self) -> float:
        """Rows that a timed run computed; more than the case's where nothing was kept of its depth."""
        return median(run.n_tokens for run in self.runs)

    def facts(self) -> Facts:
        """The row of --json."""
        case, prediction = self.case, self.prediction
        ratio = {"rival": Spread.of(self.rival).facts(), "ratio": self.ratio} if self.rival else {}
        return {
            "test": str(case), "kind": case.kind, "n": case.n, "depth": case.depth, "batch": case.batch,
            **self.spread.facts(),
            "runs_tps": [run.tps for run in self.runs],
            "predicted_tps": prediction.tps,
            "predicted_by": "arithmetic" if prediction.is_arithmetic else "bytes",
            "predicted_share": self.spread.median / prediction.tps,
            "bytes_per_token": prediction.bytes_per_token,
            "flops_per_token": prediction.flops / prediction.n_tokens,
            "read_gbps": self.yardstick.read_gbps,
            "gflops": self.yardstick.gflops,
            "bandwidth_share": self.read_share,
            "engine_share": self.engine_share,
            "dispatches_per_token": self.dispatches_per_token,
            "computed_tokens": self.n_computed,
            "ttft_s": self.ttft_s,
            **ratio,
        }  # fmt: skip

    @property
    def ratio(self) -> float:
        """Our tokens a second over the rival's."""
        return self.spread.median / Spread.of(self.rival).median


def summary(rows: Sequence[Row]) -> Facts:
    """The first prefill and the first decode as the figures of the whole."""
    prefill = next((row for row in rows if row.case.kind == "pp"), None)
    decode = next((row for row in rows if row.case.kind == "tg"), None)
    first = decode or rows[0]
    return {
        "prefill_tps": prefill and prefill.spread.median,
        "decode_tps": decode and decode.spread.median,
        "predicted_prefill_tps": prefill and prefill.prediction.tps,
        "predicted_decode_tps": decode and decode.prediction.tps,
        "ttft_s": (prefill or first).ttft_s,
        "bytes_per_token": first.prediction.bytes_per_token,
        "read_gbps": first.yardstick.read_gbps,
        "bandwidth_share": first.read_share,
        "dispatches_per_token": first.dispatches_per_token,
    }


def prediction_line(case: Case, prediction: Prediction, yardstick: Yardstick) -> str:
    """What is expected, and of what."""
    if prediction.is_arithmetic:
        per = prediction.flops / prediction.n_tokens
        why = f"{per / 1e6:.4g} MFLOP a token at {yardstick.gflops:.4g} GFLOP/s"
    else:
        why = f"{prediction.bytes_per_token / 1e6:.4g} MB a token at {yardstick.read_gbps:.4g} GB/s"
    return _line(str(case), f"at most {rate(prediction.tps)}: {why}, measured just now")


def result_lines(row: Row, rival: str = "") -> Iterator[str]:
    """What was measured, what took the time, and the rival's part."""
    yield _line("", str(row.spread))
    yield _line("", ", ".join(_reasons(row)))
    if row.rival:
        yield _line(f"  {rival}", f"{Spread.of(row.rival)}: camelid has {row.ratio:.3g} of it")


def table_lines(model: str, rows: Sequence[Row], rival: str) -> Iterator[str]:
    """All cases beside a rival's, as a table of Markdown: medians of tokens a second with their spread."""
    yield f"| file | test | camelid tok/s | {rival} tok/s | ratio | of read bandwidth |"
    yield "|---|---|---|---|---|---|"
    name = Path(model).name
    for row in rows:
        rates = f"{short(row.spread)} | {short(Spread.of(row.rival))} | {row.ratio:.2f}"
        yield f"| {name} | {row.case} | {rates} | {row.read_share:.0%} |"


def short(spread: Spread) -> str:
    """`319 ± 4.1`."""
    return f"{rate(spread.median).removesuffix(' tok/s')} ± {spread.stdev:.3g}"


def _reasons(row: Row) -> Iterator[str]:
    share = row.spread.median / row.prediction.tps
    yield f"{share:.3g} of that" if share < 0.1 else f"{share:.0%} of that"
    yield f"{row.read_share:.1%} of the bandwidth"
    yield f"engine {row.engine_share:.0%} of the time"
    if row.dispatches_per_token is not None:
        yield f"{row.dispatches_per_token:.4g} dispatches a token"
    if row.n_computed > row.case.n * row.case.batch:
        yield f"{row.n_computed:.0f} rows computed: the depth was not kept"
    yield f"first token {row.ttft_s:.3f} s"


def rate(tps: float) -> str:
    """1,234 tok/s; four digits below that."""
    return f"{tps:,.0f} tok/s" if tps >= 1000 else f"{tps:.4g} tok/s"


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"
