"""Results of `camelid bench`, as facts for --json and as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median, stdev

from camelid.cli.bench_cases import Case
from camelid.cli.bench_predict import MEASURED, Prediction, Yardstick
from camelid.cli.bench_runs import Run

Report = dict[str, object]
LABEL = 20  # columns


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and standard deviation of tokens per second; 0 deviation for one run."""

    median: float
    stdev: float
    n_runs: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Spread:
        """The spread of `runs`."""
        rates = [run.tps for run in runs]
        return cls(median(rates), stdev(rates) if len(rates) > 1 else 0.0, len(rates))

    def __str__(self) -> str:
        return f"{rate(self.median)} ± {self.stdev:.3g} ({self.n_runs} runs)"

    def facts(self) -> Report:
        """The fields of --json."""
        return {"tps": self.median, "stdev_tps": self.stdev, "n_runs": self.n_runs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case: its prediction, its runs, and the rival's alternate runs."""

    case: Case
    yardstick: Yardstick
    prediction: Prediction
    runs: Sequence[Run]
    rival: Sequence[Run] = ()

    @property
    def spread(self) -> Spread:
        """The spread of Camelid's runs."""
        return Spread.of(self.runs)

    @property
    def ttft_s(self) -> float:
        """Median time to the last stream's first token."""
        return median(run.ttft_s for run in self.runs)

    @property
    def gbps(self) -> float:
        """Achieved GB/s: minimum bytes of the case over its time."""
        return self.prediction.bytes_per_token * self.spread.median / 1e9

    @property
    def read_share(self) -> float:
        """Achieved bandwidth over the measured read bandwidth."""
        return self.gbps / self.yardstick.read_gbps

    @property
    def ratio(self) -> float:
        """Camelid's tokens per second over the rival's."""
        return self.spread.median / Spread.of(self.rival).median

    def facts(self) -> Report:
        """The fields of --json."""
        case, prediction = self.case, self.prediction
        ratio = {"rival": Spread.of(self.rival).facts(), "ratio": self.ratio} if self.rival else {}
        return {
            "test": str(case), "kind": case.kind, "n": case.n, "depth": case.depth, "batch": case.batch,
            **self.spread.facts(),
            "runs_tps": [run.tps for run in self.runs],
            "predicted_tps": prediction.tps,
            "predicted_by": "arithmetic" if prediction.is_arithmetic else "bytes",
            "bytes_per_token": prediction.bytes_per_token,
            "flops_per_token": prediction.flops / prediction.n_tokens,
            "read_gbps": self.yardstick.read_gbps,
            "gflops": self.yardstick.gflops,
            "bandwidth_share": self.read_share,
            "ttft_s": self.ttft_s,
            **ratio,
        }  # fmt: skip


def summary(rows: Sequence[Row]) -> Report:
    """Top-level fields of --json: the first prefill and the first decode."""
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
    }


def prediction_line(case: Case, prediction: Prediction, yardstick: Yardstick) -> str:
    """The prediction and its bound, on one line."""
    if prediction.is_arithmetic:
        per = prediction.flops / prediction.n_tokens
        why = f"{per / 1e6:.4g} MFLOP a token at {yardstick.gflops:.4g} GFLOP/s, {yardstick.source}"
    else:
        why = (
            f"{prediction.bytes_per_token / 1e6:.4g} MB a token at {yardstick.read_gbps:.4g} GB/s, {MEASURED}"
        )
    return _line(str(case), f"at most {rate(prediction.tps)}: {why}")


def result_lines(row: Row, rival: str = "") -> Iterator[str]:
    """Lines of the measurement, its shares of the limits, and the rival's measurement."""
    share = row.spread.median / row.prediction.tps
    yield _line("", str(row.spread))
    shares = f"{share:.2%} of the prediction, {row.gbps:.4g} GB/s, {row.read_share:.1%} of the bandwidth"
    yield _line("", f"{shares}, first token {row.ttft_s:.3f} s")
    if row.rival:
        yield _line(f"  {rival}", f"{Spread.of(row.rival)}: camelid runs at {row.ratio:.3g} times that")


def short(spread: Spread) -> str:
    """Median and deviation without the unit: `319 ± 4.1`."""
    return f"{rate(spread.median).removesuffix(' tok/s')} ± {spread.stdev:.3g}"


def rate(tps: float) -> str:
    """Tokens per second: `1,234 tok/s`, or four digits below 1,000."""
    return f"{tps:,.0f} tok/s" if tps >= 1000 else f"{tps:.4g} tok/s"


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"
