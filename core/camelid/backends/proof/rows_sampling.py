"""Rows of `sample` and `candidates`: each step of sampling on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from camelid.backends.common.op_runner import F32
from camelid.backends.proof.inputs import CaseRow, normal, row
from camelid.plan.step import StepSampling

LARGE = 151936  # a large vocabulary
HISTORY = tuple(i * i % 50 for i in range(200))  # many ids occur more than once
CHAIN: tuple[dict[str, Any], ...] = (
    {"temperature": 0.7, "seed": 2**63 + 12345, "choice": 3, "offset": 77},
    {"top_k": 1},
    {"top_k": 40, "top_p": 0.5},
    {"top_k": 256, "top_p": 0.999},
    {"min_p": 0.05},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    {"repeat_penalty": 1.3, "penalty_last_n": 64},
    {"frequency_penalty": 0.7, "presence_penalty": -0.9, "penalty_last_n": 9},
    {"biases": ((3, 2.5), (40, -np.inf), (9, -1.0), (3, 0.5), (10**6, 1.0))},
    {"temperature": 0.0, "repeat_penalty": 3.0, "penalty_last_n": 1, "biases": ((7, 4.0),)},
)


def rows() -> Iterator[CaseRow]:
    """All rows of this file."""
    yield row("sample", logits=tied())
    yield row("sample", logits=normal("noise", 4, 1024, scale=2.0), sampling=(how(),))
    yield row("sample", logits=broken(), sampling=(how(), how(top_k=7), how(min_p=0.1)))
    ways = [how(**values) for values in CHAIN]
    chain: dict[str, Any] = {"sampling": ways, "history": HISTORY, "first_output": 150}
    yield row("sample", logits=normal("chain", 4 * len(ways), 60, scale=2.0), **chain)
    usual = how(top_k=40, top_p=0.95, min_p=0.05)
    for n in (37, 257, LARGE):
        yield row("candidates", "sample", logits=normal("large", 2, n, scale=3.0), sampling=(usual,),
                  features=frozenset({"candidates"}))  # fmt: skip
    features = frozenset({"all_logits", "candidates"})
    for name in ("sample", "candidates"):
        yield row(name, "sample", logits=normal("all", 10, 600), features=features, **chain)


def how(**values: Any) -> StepSampling:
    """Sampling params with a temperature of 1.5 unless `values` has another."""
    warm: dict[str, Any] = {"temperature": 1.5, "seed": 11}
    return StepSampling(**(warm | values))


def tied() -> F32:
    """Logits with ties, where the lowest id is sampled, and a row of zeros, whose status is "zero"."""
    logits = normal("tied", 4, 1000)
    logits[:, [3, 77, 999]] = 9.0
    logits[3] = 0.0
    return logits


def broken() -> F32:
    """Logits with NaN and +inf, whose status is "nan", and with -inf, which must not be sampled."""
    logits = normal("broken", 6, 64)
    logits[1, 40], logits[4, 7] = np.nan, np.inf
    logits[2, np.arange(64) % 9 != 5] = -np.inf
    return logits
