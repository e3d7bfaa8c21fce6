"""Predicted time of a case: its bytes and FLOPs over this machine's measured read bandwidth and FLOP/s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from camelid.backends.base import Backend
from camelid.backends.common.bandwidth import multiply_gflops, read_gbps
from camelid.cli.bench_cases import Case
from camelid.plan.cost import SequenceShare, step_cost
from camelid.plan.plan import Plan

MEASURED = "measured just now"


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Limits: measured GB/s of a plain read, and GFLOP/s of a matrix product or the backend's own peak.

    A device with its own memory has 0.0 GFLOP/s, no limit, where it knows no peak. `source` is that of the
    GFLOP/s.
    """

    read_gbps: float
    gflops: float
    source: str = MEASURED

    @classmethod
    def measure(cls, backend: Backend) -> Yardstick:
        """Measures both limits, in 0.1 to 0.2 s."""
        own, peak = backend.read_gbps(), backend.peak_gflops()
        if own:
            return cls(own, peak, "by the device's clock")
        return cls(read_gbps(), peak or multiply_gflops())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The minimum time of a case: the longer of reading its bytes and computing its FLOPs."""

    n_tokens: int
    n_bytes: int
    flops: int
    read_s: float
    multiply_s: float

    @property
    def is_arithmetic(self) -> bool:
        """True if the case is bound by arithmetic, not by bandwidth."""
        return self.multiply_s > self.read_s

    @property
    def tps(self) -> float:
        """Tokens per second over all streams."""
        return self.n_tokens / max(self.read_s, self.multiply_s)

    @property
    def bytes_per_token(self) -> float:
        """Minimum bytes moved per token of one stream."""
        return self.n_bytes / self.n_tokens


def predict(case: Case, plan: Plan, yardstick: Yardstick, chunk: int) -> Prediction:
    """Predicts a case on `plan`, in steps of up to `chunk` rows; decode counts its middle step's bytes."""
    if case.kind == "tg":
        middle = [SequenceShare(case.held + case.n // 2, 1)] * case.batch
        costs = [step_cost(plan, middle)] * case.n
    else:
        costs = [step_cost(plan, shares) for shares in _prefill_shares(case, chunk)]
    n_bytes, flops = sum(cost.n_bytes for cost in costs), sum(cost.flops for cost in costs)
    return Prediction(
        n_tokens=case.n * case.batch,
        n_bytes=n_bytes,
        flops=flops,
        read_s=n_bytes / (yardstick.read_gbps * 1e9),
        multiply_s=flops / (yardstick.gflops * 1e9) if case.kind == "pp" and yardstick.gflops else 0.0,
    )


def _prefill_shares(case: Case, chunk: int) -> Iterator[list[SequenceShare]]:
    """The steps of a prefill, each as full as possible, in stream order."""
    remaining = [case.n] * case.batch
    while any(remaining):
        budget, shares = chunk, list[SequenceShare]()
        for i, n_left in enumerate(remaining):
            if n := min(n_left, budget):
                shares.append(SequenceShare(case.held + case.n - n_left, n, int(n == n_left)))
            remaining[i] -= n
            budget -= n
        yield shares
