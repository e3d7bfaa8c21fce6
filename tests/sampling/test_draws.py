"""Draws on the host: their distribution, Mirostat's trace, masks, forks, and required view contents."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.sampling.test_samplers import all_of, packed, random_case, row_of, sampler_of
from tests.support.exhaustive import share_of
from tests.support.samplers_oracle import Case, drawn, ranked, softmax, surviving_logits

from camelid.backends.reference.sampling import philox
from camelid.errors import RequestError
from camelid.sampling.drawing import PURPOSE_DRAW, PURPOSE_XTC, DrawNoise
from camelid.sampling.host import HostSampler, NeedsAllLogits, Scores, largest_indices, winner
from camelid.sampling.params import SamplingParams
from camelid.sampling.samplers import SAMPLERS
from camelid.sampling.survivors import Survivors, UnlistedTokens

F64 = NDArray[np.float64]
# Chi squared that a correct sampler exceeds once in 10,000 runs, by degrees of freedom (Abramowitz & Stegun).
CRITICAL = {
    3: 21.1, 4: 23.5, 5: 25.7, 6: 27.9, 7: 29.9, 8: 31.8, 9: 33.7, 10: 35.6, 11: 37.4, 12: 39.1, 13: 40.9,
}  # fmt: skip
N_DRAWS = 100_000


def chi_squared(counts: NDArray[np.int64], chances: F64) -> float:
    expected = counts.sum() * chances
    return float(((counts - expected) ** 2 / expected).sum())


def made(**options: Any) -> SamplingParams:
    return SamplingParams.from_options({"seed": 99, **options})


LOGITS = np.array([1.0, -0.5, 2.2, 0.0, 1.4, -1.0, 0.7, 2.0, -0.2, 1.9, 0.3, -2.0, 1.1, 0.9])
CHAINS: list[dict[str, Any]] = [
    {"temperature": 1.0, "order": ["temperature"]},
    {"temperature": 0.6, "top_k": 8, "top_p": 0.9, "min_p": 0.1},
    {"temperature": 1.5, "typical_p": 0.7, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1.0, "dynatemp_range": 0.5, "top_k": 6, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0.9, "xtc_probability": 1.0, "xtc_threshold": 0.1, "min_p": 0.0, "top_p": 1.0},
]


@pytest.mark.conformance
@pytest.mark.parametrize("options", CHAINS)
def test_draws_follow_the_softmax_of_the_survivors(options: dict[str, Any]) -> None:
    """Chi squared over 100,000 positions. The chain runs once, the noise of each draw in NumPy; the sampler
    itself makes the first 1,000 draws, which must be equal.
    """
    params = made(**options)
    case = Case(LOGITS, params, [])
    final = surviving_logits(case)
    ids = np.flatnonzero(np.isfinite(final))
    n = len(ids)
    assert 3 < n <= 14
    positions = np.arange(N_DRAWS, dtype=np.uint64)
    u = np.stack([(philox_by_position(params, int(i), positions) + 0.5) * 2.0**-24 for i in ids], axis=1)
    winners = ids[np.argmax(final[ids] - np.log(-np.log(u)), axis=1)]
    sampler = sampler_of(case)
    assert [sampler.draw(all_of(LOGITS), [], at) for at in range(1000)] == winners[:1000].tolist()
    counts, chances = np.bincount(winners, minlength=len(LOGITS))[ids], softmax(final[ids])
    bound = CRITICAL[n - 1]
    assert chi_squared(counts, chances) < bound
    assert chi_squared(counts, np.full(n, 1 / n)) > bound, "a wrong distribution passes the test"


def philox_by_position(params: SamplingParams, token_id: int, positions: NDArray[np.uint64]) -> Any:
    """The noise words of one token at many positions: the published rounds over the counter's second word."""
    mask, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = np.full_like(positions, token_id), positions
    c, d = np.zeros_like(positions), np.full_like(positions, PURPOSE_DRAW)
    key = [(params.seed or 0) & 0xFFFFFFFF, (params.seed or 0) >> 32]
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (
            (right >> high) ^ b ^ np.uint64(key[0]),
            right & mask,
            (left >> high) ^ d ^ np.uint64(key[1]),
            left & mask,
        )
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return a >> np.uint64(8)


def test_xtcs_coin_is_fair_and_independent() -> None:
    coins = [DrawNoise(5, 0, at).uniform(PURPOSE_XTC) for at in range(4000)]
    assert abs(sum(coin < 0.3 for coin in coins) / 4000 - 0.3) < 0.03
    words = philox(5, np.zeros(1, np.uint64), 17, 0, PURPOSE_XTC)
    assert coins[17] == ((int(words[0]) >> 8) + 0.5) * 2.0**-24
    assert coins[17] != DrawNoise(5, 0, 17).uniform(PURPOSE_DRAW)
    left_out = [
        HostSampler(made(xtc_probability=0.3, temperature=0.01, top_p=1.0), 14).draw(all_of(LOGITS), [], at)
        != 2
        for at in range(1000)
    ]
    assert left_out == [DrawNoise(99, 0, at).uniform(PURPOSE_XTC) < 0.3 for at in range(1000)]


def zipf_logits(n: int, exponent: float, rng: np.random.Generator) -> F64:
    return rng.permutation(-exponent * np.log(np.arange(1, n + 1))).astype(np.float32).astype(np.float64)


@pytest.mark.conformance
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", share_of([2.0, 4.0, 6.0]))
def test_mirostat_follows_the_paper_and_approaches_its_target(version: int, tau: float) -> None:
    """Basu et al. 2021, algorithms 1 and 2, step by step; a Zipf distribution with varying order."""
    params = made(temperature=1.0, mirostat=version, mirostat_tau=tau, mirostat_eta=0.1)
    sampler, mu, surprises = HostSampler(params, 1500), 2 * tau, list[float]()
    texts = [zipf_logits(1500, 1.1, np.random.default_rng(number)) for number in range(7)]
    views = [all_of(logits) for logits in texts]
    for at in range(300):
        case = Case(texts[at % 7], params, [], position=at, mu=mu)
        token_id = sampler.draw(views[at % 7], [], at)
        assert token_id == drawn(case)
        final = surviving_logits(case)
        surprise = -np.log2(softmax(final)[token_id])
        mu -= 0.1 * (surprise - tau)
        assert sampler.mu == pytest.approx(mu, rel=1e-9)
        surprises.append(surprise)
    assert abs(np.mean(surprises[60:]) - tau) < 0.35


def test_mirostat_on_candidates_gives_the_same_trace() -> None:
    rng = np.random.default_rng(5)
    params = made(temperature=1.0, mirostat=2, mirostat_tau=3.0)
    whole, part, asked = HostSampler(params, 3000), HostSampler(params, 3000), 0
    for at in range(60):
        logits = rng.normal(0, 3, 3000)
        token_id = whole.draw(all_of(logits), [], at)
        try:
            assert part.draw(Scores.of_row(row_of(logits)), [], at) == token_id
        except NeedsAllLogits:
            asked += 1
            assert part.draw(all_of(logits), [], at) == token_id
        assert part.mu == whole.mu
    assert asked < 30


def test_a_fork_continues_independently() -> None:
    first = HostSampler(made(mirostat=2), 14)
    first.draw(all_of(LOGITS), [], 0)
    second = copy.copy(first)
    assert second.mu == first.mu != 10.0
    second.choice = 1
    draws = [[s.draw(all_of(LOGITS), [], at) for at in range(1, 40)] for s in (first, second)]
    assert draws[0] != draws[1]


class Fixed:
    """A constraint with a constant set of allowed tokens."""

    is_finished = is_lazy = False

    def __init__(self, allowed: NDArray[np.bool_]) -> None:
        self.allowed, self.asked, self.taken = allowed, 0, list[int]()

    def ready(self) -> bool:
        return True

    def mask(self) -> bytes:
        self.asked += 1
        return packed(self.allowed) or b""

    def accept(self, token_id: int) -> bool:
        self.taken += [token_id] * bool(self.allowed[token_id])
        return bool(self.allowed[token_id])


@pytest.mark.conformance
def test_a_guided_draw_is_mask_then_chain_for_any_device_draw() -> None:
    """If the chain treats each token separately, an allowed draw of the device needs no mask."""
    spared = redrawn = 0
    for number in range(900):
        case = random_case(50_000 + number, [8, 60, 600])
        if number % 3 == 0:
            pointwise = ("logit_bias", "penalties", "temperature")
            case.params = replace(case.params, order=pointwise[1:], dynatemp_range=0, mirostat=0)
        allowed = np.random.default_rng(number).random(len(case.logits)) < 0.7
        masked = replace(case, mask=allowed)
        with np.errstate(all="ignore"):
            if not np.isfinite(surviving_logits(masked)).any():
                continue
            device, want = drawn(replace(case, mask=None)), drawn(masked)
        fixed, sampler = Fixed(allowed), sampler_of(case)
        assert sampler.choose(device, all_of(case.logits), fixed, case.history, case.position) == want
        assert fixed.taken == [want]
        spared += not fixed.asked
        redrawn += device != want
        assert fixed.asked or case.params.is_pointwise
    assert min(spared, redrawn) > 60


def test_tokens_beyond_a_masks_end_are_not_allowed() -> None:
    """A model may have more rows than its vocabulary has tokens."""
    logits = np.concatenate([LOGITS, np.linspace(5.0, 4.0, 600)])
    sampler = HostSampler(made(temperature=0), len(logits))
    assert sampler.draw(all_of(logits), [], 0, b"\xff\xff") == 14
    assert sampler.draw(all_of(logits), [], 0, b"\xff\x3f") == 2
    assert sampler.draw(Scores.of_row(row_of(logits)), [], 0, b"\xff\xff") == 14
    with pytest.raises(NeedsAllLogits):
        sampler.draw(Scores.of_row(row_of(logits)), [], 0, b"\xff\x3f")


def test_a_mask_without_tokens_and_a_ban_of_all_are_errors() -> None:
    sampler = HostSampler(made(logit_bias=dict.fromkeys(range(14), False)), 14)
    with pytest.raises(RequestError, match="the grammar is stuck"):
        sampler.draw(all_of(LOGITS), [], 0, b"\0\0")
    with pytest.raises(RequestError, match="logit_bias bans every allowed token"):
        sampler.draw(all_of(LOGITS), [], 0)
    with pytest.raises(NeedsAllLogits):
        sampler.draw(Scores.of_row(row_of(LOGITS)), [], 0)


@pytest.mark.parametrize("n", [1, 20, 256])
def test_the_largest_of_many_equal_those_of_a_sort(n: int) -> None:
    for number in range(60):
        rng = np.random.default_rng(number)
        logits = rng.normal(0, 3, int(rng.integers(256, 9000)))
        if number % 3 == 0:
            logits = np.round(logits)
        if number % 3 == 1:
            logits[::61] = 50.0  # just those that the sample sees
        assert largest_indices(logits.tolist(), n) == np.argsort(-logits, kind="stable")[:n].tolist()


def at_the_cut(name: str, probs: F64, logits: F64, k: int, off: float) -> dict[str, Any]:
    """The option whose cut is exactly at token k, or at the sum up to it, times a factor near 1."""
    order = np.argsort(np.abs(np.log(probs) - (probs * np.log(probs)).sum()), kind="stable")
    return {
        "top_n_sigma": {"top_n_sigma": float((logits.max() - logits[k]) / logits.std() * (1 + 50 * off))},
        "top_p": {"top_p": float(np.cumsum(probs)[k] * (1 + off))},
        "typical_p": {"typical_p": float(np.cumsum(probs[order])[k] * (1 + off))},
        "xtc": {"xtc_probability": 1, "xtc_threshold": float(probs[k] * (1 + off))},
        "mirostat": {"mirostat": 2, "mirostat_tau": float(-np.log2(probs[k] * (1 + off)) / 2)},
    }[name]


@pytest.mark.parametrize("name", ["top_n_sigma", "top_p", "typical_p", "xtc", "mirostat"])
def test_a_cut_within_a_devices_rounding_requests_all_logits(name: str) -> None:
    for number in range(40):
        rng = np.random.default_rng(number)
        logits = np.sort(rng.normal(0, 3, 600).astype(np.float32).astype(np.float64))[::-1]
        probs, k = softmax(logits), int(rng.integers(2, 9))
        options = at_the_cut(name, probs, logits, k, (number % 2 - 0.5) * 1e-5)
        sampler = sampler_of(Case(logits, made(order=[name], **options), []))
        sampler.mu = 2 * sampler.params.mirostat_tau
        with pytest.raises(NeedsAllLogits):
            sampler.draw(Scores.of_row(row_of(logits)), [], 0)


def test_the_likeliest_tokens_have_logprobs() -> None:
    logits = np.round(np.random.default_rng(1).normal(0, 3, 900), 1)
    row = row_of(logits)
    whole = row._replace(candidates=None, logits=all_of(logits).logits)
    probs = np.log(softmax(logits.astype(np.float32).astype(np.float64)))
    for found in (Scores.of_row(row).top_logprobs(7), Scores.of_row(whole).top_logprobs(7)):
        assert [i for i, _ in found] == ranked(logits)[:7].tolist()
        assert [value for _, value in found] == pytest.approx(probs[ranked(logits)[:7]].tolist(), abs=1e-5)
    best = int(ranked(logits)[0])
    for view in (Scores.of_row(row), Scores.of_row(whole)):
        assert view.logprob(best) == pytest.approx(probs[best], abs=1e-5)


def test_more_alternatives_than_tokens_are_all_tokens() -> None:
    assert len(Scores.of_row(row_of(LOGITS)).top_logprobs(20)) == 14


@pytest.mark.parametrize(
    "name", [name for name in SAMPLERS if name not in ("logit_bias", "penalties", "dry")]
)
def test_hidden_logits_may_have_any_value_within_their_bounds(name: str) -> None:
    """A result from the candidates must hold for all values of the hidden logits within their bounds."""
    options = {
        "top_n_sigma": {"top_n_sigma": 0.8}, "top_k": {"top_k": 3}, "typical_p": {"typical_p": 0.6},
        "top_p": {"top_p": 0.8}, "min_p": {"min_p": 0.1},
        "xtc": {"xtc_probability": 1, "xtc_threshold": 0.15},
        "temperature": {"temperature": 0.5}, "mirostat": {},
    }[name]  # fmt: skip
    answered = 0
    for number in range(600):
        rng = np.random.default_rng(number)
        logits = np.sort(rng.normal(0, 3, 24))[::-1]
        given, rest = logits[:12], logits[12:]
        if name == "mirostat":
            options = {"mirostat": 1 + number % 2}
        case = Case(logits, made(order=[name], **options), [], mu=float(rng.uniform(1, 5)))
        sums = np.log(np.exp(rest).sum())
        slack = float(rng.choice([0.0, 0.01, 1.0]))
        bounds = UnlistedTokens(
            12, float(rest[0] + slack), float(sums - slack), float(sums + slack), float(logits.std())
        )
        survivors = Survivors(list(range(12)), given.tolist(), bounds)
        sampler = sampler_of(case)
        try:
            SAMPLERS[name].apply(survivors, sampler._context([], 0))
        except NeedsAllLogits:
            continue
        answered += 1
        with np.errstate(all="ignore"):
            want = set(np.flatnonzero(np.isfinite(surviving_logits(case))).tolist())
        assert set(survivors.ids) == (want if survivors.unlisted is None else {i for i in want if i < 12})
    assert answered > 100


@pytest.mark.parametrize("name", ["top_p", "top_n_sigma"])
def test_sums_over_all_tokens_do_not_bound_masked_sums(name: str) -> None:
    for number in range(40):
        rng = np.random.default_rng(number)
        logits = rng.normal(0, 1, 600)
        mask = np.isin(np.arange(600), ranked(logits)[: int(rng.integers(40, 256))])
        options = {name: float(rng.uniform(0.1, 0.6))}
        case = Case(logits, made(order=[name], **options), [], position=number, mask=mask)
        want = sampler_of(case).draw(all_of(logits), [], number, packed(mask))
        try:
            assert sampler_of(case).draw(Scores.of_row(row_of(logits)), [], number, packed(mask)) == want
        except NeedsAllLogits:
            continue


@pytest.mark.parametrize(
    ("logits", "noise", "place"),
    [([3.0, 2.0], [0.0, 1.0], 1), ([10.0, -2.5], [0.0, 17.0], 1), ([10.0, -8.0], [0.0, 17.0], 0)],
)
def test_the_greatest_sum_wins_and_ties_go_to_the_lowest_id(
    logits: list[float], noise: list[float], place: int
) -> None:
    """Ids 9 and 5; the last noise is close to the maximum."""
    rolled: Any = SimpleNamespace(gumbel=dict(zip((9, 5), noise, strict=True)).__getitem__)
    assert winner(Survivors([9, 5], logits), rolled) == place


def test_candidates_equal_in_float32_are_ordered_by_id() -> None:
    row = row_of(np.array([3.0, 3.0]))
    assert row.candidates is not None
    turned = replace(row.candidates, ids=memoryview(np.array([1, 0], np.uint32).tobytes()).cast("I"))
    view = Scores.of_row(row._replace(candidates=turned))
    assert HostSampler(made(temperature=0), 2).draw(view, [], 0) == 0
