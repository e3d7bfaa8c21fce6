"""Definitions of all samplers in NumPy float64 over whole arrays; -inf marks an excluded token.

Shares only the option names with the code under test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.backends.reference.sampling import philox
from camelid.sampling.params import SamplingParams

F64 = NDArray[np.float64]
PURPOSE_XTC = 1


@dataclass
class Case:
    """One draw: raw logits and all other inputs of a sampler."""

    logits: F64
    params: SamplingParams
    history: list[int]
    position: int = 0
    choice: int = 0
    mask: NDArray[np.bool_] | None = None
    mu: float = 10.0
    texts: list[bytes] = field(default_factory=list[bytes])

    def noise(self) -> F64:
        ids = np.arange(len(self.logits), dtype=np.uint64)
        return -np.log(-np.log(uniform(self, ids, 0)))


def uniform(case: Case, ids: NDArray[np.uint64], purpose: int) -> Any:
    words = philox(case.params.seed or 0, ids, case.position, case.choice, purpose)
    return ((words >> np.uint64(8)) + 0.5) * 2.0**-24


def softmax(x: F64) -> Any:
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def ranked(x: F64) -> NDArray[np.intp]:
    """Ids by falling logit, equal logits by rising id, without excluded tokens."""
    return np.argsort(-x, kind="stable")[: int(np.isfinite(x).sum())]


def only(x: F64, ids: Sequence[int] | NDArray[np.intp]) -> F64:
    kept = np.full_like(x, -np.inf)
    kept[ids] = x[ids]
    return kept


def shortest(probs: F64, reaches: Callable[[F64], NDArray[np.bool_]], least: int) -> int:
    """Length of the shortest prefix whose sum satisfies `reaches`, at least `least`."""
    hits = np.flatnonzero(reaches(np.cumsum(probs)))
    return max(int(hits[0]) + 1 if len(hits) else len(probs), least)


def logit_bias(x: F64, case: Case) -> F64:
    x = x.copy()
    for i, bias in case.params.logit_bias:
        x[i] += bias
    return x


def penalties(x: F64, case: Case) -> F64:
    p, x = case.params, x.copy()
    recent = (
        case.history if p.repeat_last_n < 0 else case.history[max(0, len(case.history) - p.repeat_last_n) :]
    )
    for i, n in Counter(recent).items():
        x[i] = x[i] / p.repeat_penalty if x[i] > 0 else x[i] * p.repeat_penalty
        x[i] -= n * p.frequency_penalty + p.presence_penalty
    return x


def dry(x: F64, case: Case) -> F64:
    """The DRY sampler, trying every earlier position and every length."""
    p, x = case.params, x.copy()
    n = len(case.history) if p.dry_penalty_last_n < 0 else min(p.dry_penalty_last_n, len(case.history))
    recent = case.history[len(case.history) - n :]
    limit = unbroken(case, recent)
    if n <= p.dry_allowed_length or limit < p.dry_allowed_length:
        return x
    longest: dict[int, int] = {}
    for at in range(1, n):
        same = 0
        while same < min(at, limit) and recent[at - 1 - same] == recent[n - 1 - same]:
            same += 1
        longest[recent[at]] = max(longest.get(recent[at], 0), same)
    for i, same in longest.items():
        is_breaker = any(b.encode() in case.texts[i] for b in p.dry_sequence_breakers)
        if same >= p.dry_allowed_length and not is_breaker:
            x[i] -= p.dry_multiplier * p.dry_base ** (same - p.dry_allowed_length)
    return x


def unbroken(case: Case, recent: list[int]) -> int:
    """Length of the longest suffix that no sequence breaker's end touches."""
    pieces = [case.texts[i] for i in recent]
    text, ends = b"".join(pieces), {0}
    for breaker in case.params.dry_sequence_breakers:
        b = breaker.encode()
        ends |= {at + len(b) for at in range(len(text)) if text[at : at + len(b)] == b}
    lengths = [len(b"".join(pieces[:i])) for i in range(len(pieces) + 1)]
    return max(n for n in range(len(recent) + 1) if n == 0 or lengths[len(recent) - n] >= max(ends))


def top_n_sigma(x: F64, case: Case) -> F64:
    left = x[np.isfinite(x)]
    return np.where(x >= left.max() - case.params.top_n_sigma * left.std(), x, -np.inf)


def top_k(x: F64, case: Case) -> F64:
    return only(x, ranked(x)[: case.params.top_k])


def typical_p(x: F64, case: Case) -> F64:
    ids = ranked(x)
    probs = softmax(x[ids])
    surprise = -np.log(probs)
    order = np.argsort(np.abs(surprise - (probs * surprise).sum()), kind="stable")
    n = shortest(probs[order], lambda sums: sums > case.params.typical_p, case.params.min_keep)
    return only(x, ids[order[:n]])


def top_p(x: F64, case: Case) -> F64:
    ids = ranked(x)
    n = shortest(softmax(x[ids]), lambda sums: sums >= case.params.top_p, case.params.min_keep)
    return only(x, ids[:n])


def min_p(x: F64, case: Case) -> F64:
    ids = ranked(x)
    probs = softmax(x[ids])
    n = int((probs >= case.params.min_p * probs[0]).sum())
    return only(x, ids[: max(n, case.params.min_keep)])


def xtc(x: F64, case: Case) -> F64:
    ids, p = ranked(x), case.params
    above = int((softmax(x[ids]) >= p.xtc_threshold).sum())
    coin = uniform(case, np.zeros(1, np.uint64), PURPOSE_XTC)[0]
    if coin >= p.xtc_probability or above < 2 or len(ids) - (above - 1) < p.min_keep:
        return x
    return only(x, ids[above - 1 :])


def temperature(x: F64, case: Case) -> F64:
    p, ids = case.params, ranked(x)
    t = p.temperature
    if p.dynatemp_range > 0:
        if len(ids) < 2:
            return x
        probs = softmax(x[ids])
        probs = probs[probs > 0]
        share = -(probs * np.log(probs)).sum() / np.log(len(ids))
        low, high = max(0.0, t - p.dynatemp_range), t + p.dynatemp_range
        t = max(low + (high - low) * min(max(share, 0.0), 1.0) ** p.dynatemp_exponent, 1e-6)
    return only(x, ids[:1]) if t == 0 else x / t


def mirostat(x: F64, case: Case) -> F64:
    ids = ranked(x)
    probs = softmax(x[ids])
    if case.params.mirostat == 2:
        return only(x, ids[: max(int((-np.log2(probs) <= case.mu).sum()), 1)])
    if len(ids) == 1:
        return x
    m, v = min(100, len(ids)), len(x)
    t = np.log((np.arange(m - 1) + 2) / (np.arange(m - 1) + 1))
    b = -np.diff(x[ids[:m]])  # log of p(i) / p(i + 1)
    s = (t * b).sum() / (t * t).sum()
    k = (((s - 1) * 2.0**case.mu) / (1 - float(v) ** -(s - 1))) ** (1 / s)
    return only(x, ids[: max(int(min(k, v)), 1)])


SAMPLERS: dict[str, Callable[[F64, Case], F64]] = {
    "logit_bias": logit_bias, "penalties": penalties, "dry": dry, "top_n_sigma": top_n_sigma, "top_k": top_k,
    "typical_p": typical_p, "top_p": top_p, "min_p": min_p, "xtc": xtc, "temperature": temperature,
    "mirostat": mirostat,
}  # fmt: skip
# True if an option's value disables its sampler, by llama.cpp's table.
OFF: dict[str, Callable[[SamplingParams], bool]] = {
    "dry": lambda p: p.dry_multiplier == 0, "top_n_sigma": lambda p: p.top_n_sigma <= 0,
    "top_k": lambda p: p.top_k <= 0, "typical_p": lambda p: p.typical_p >= 1, "top_p": lambda p: p.top_p >= 1,
    "min_p": lambda p: p.min_p <= 0, "xtc": lambda p: p.xtc_probability == 0 or p.xtc_threshold > 0.5,
    "mirostat": lambda p: p.mirostat == 0,
}  # fmt: skip


def surviving_logits(case: Case) -> F64:
    """Final logits after mask, biases and the samplers in order; -inf for excluded tokens."""
    p = case.params
    x = case.logits if case.mask is None else np.where(case.mask, case.logits, -np.inf)
    order = ("temperature", "mirostat") if p.mirostat and "mirostat" not in p.order else p.order
    for name in ("logit_bias", *order):
        if np.isfinite(x).any() and not OFF.get(name, lambda p: False)(p):
            x = SAMPLERS[name](x, case)
    return x


def drawn(case: Case) -> int:
    """The argmax of final logit + noise; the lowest id among equals."""
    return int(np.argmax(surviving_logits(case) + case.noise()))
