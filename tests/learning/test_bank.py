"""Hints and policies: clusters, win rates with intervals, a bandit and its regret."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.support.feedback import item, opened
from tests.support.lesson import vector

from camelid.errors import RequestError
from camelid.learning.bank import MOST_TRIALS, Bank, Hint, Trajectory, common_steps, decide, with_hint
from camelid.learning.kmeans import kmeans, seeds
from camelid.learning.policies import Policies, Policy
from camelid.learning.store.forget import forget
from camelid.learning.store.store import Store
from camelid.learning.win_rate import Rate, gain


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = opened(tmp_path)
    yield store
    store.close()


def cost_of(points: np.ndarray, labels: tuple[int, ...]) -> float:
    groups = [points[[i for i, label in enumerate(labels) if label == k]] for k in set(labels)]
    return float(sum(((group - group.mean(0)) ** 2).sum() for group in groups))


def test_kmeans_is_near_the_best_of_all_partitions() -> None:
    """Of 9 points in 2 clusters; one start may end beside the best, as Lloyd's iterations do."""
    for seed in range(8):
        points = np.random.default_rng(seed).normal(size=(9, 2))
        best = min(cost_of(points, labels) for labels in product((0, 1), repeat=9))
        found = [kmeans(points.tolist(), 2, seed=each) for each in range(20)]
        assert min(each.cost for each in found) <= best * 1.1
        for each in found:
            assert each.cost == pytest.approx(cost_of(points, each.nearest), rel=1e-9)
            assert each.cost <= best * 8 * (np.log(2) + 2)  # the seeding's expectation


def test_kmeans_finds_planted_clusters_and_repeats_itself() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate(
        [rng.normal(size=(20, 8)) * 0.1 + centre for centre in rng.normal(size=(4, 8)) * 3]
    )
    found = kmeans(points.tolist(), 4, seed=1)
    assert [len(set(found.nearest[i : i + 20])) for i in range(0, 80, 20)] == [1] * 4
    assert len(set(found.nearest)) == 4
    assert kmeans(points.tolist(), 4, seed=1) == found
    assert len(kmeans([[1.0], [1.0], [2.0]], 3).centres) == 2
    assert kmeans([], 3).nearest == ()


def test_seeds_are_drawn_by_squared_distance() -> None:
    """The second of two seeds over 4,000 draws, within four standard deviations of its chance."""
    points = [[0.0], [1.0], [3.0], [7.0]]
    want = np.zeros(4)
    for first in points:
        squares = np.array([(first[0] - p[0]) ** 2 for p in points])
        want += 0.25 * squares / squares.sum()
    n, found = 4000, Counter[float]()
    for seed in range(n):
        found[seeds(points, 2, Random(seed))[1][0]] += 1
    for point, p in zip(points, want, strict=True):
        assert abs(found[point[0]] - n * p) < 4 * (n * p * (1 - p)) ** 0.5


def test_intervals_are_the_published_ones() -> None:
    """Newcombe, Statistics in Medicine 17 (1998): 56/70 against 48/80, method 10; Wilson's of 56/70."""
    low, high = gain(Rate(56, 70), Rate(48, 80))
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)
    low, high = Rate(81, 263).interval()
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert Rate(0, 0).interval() == (0.0, 1.0)
    assert Rate(0, 10).interval()[0] == 0.0
    assert gain(Rate(), Rate(1, 2)) == (-1.0, 1.0)


def trajectory(i: int, *, won: bool, topic: str = "weather in town") -> Trajectory:
    steps = ("call lookup", "call forecast", "answer") if won else ("call lookup", "answer at once")
    return Trajectory(question=f"{topic} number {i}", steps=steps, won=won, completion_id=f"cmpl-{i}")


def test_a_hint_has_the_steps_of_successes() -> None:
    cluster = [trajectory(i, won=i % 2 == 0) for i in range(8)]
    assert (
        common_steps(cluster) == "For requests like 'weather in town number 0': call forecast; then answer."
    )
    assert common_steps([trajectory(1, won=False)]) == ""


def test_hints_are_distilled_by_cluster_and_found_again(store: Store) -> None:
    bank = Bank(store, vector)
    for i in range(12):
        bank.add(trajectory(i, won=i % 3 > 0))
        bank.add(trajectory(100 + i, won=i % 3 > 0, topic="grade of a patient"))
    hints = bank.distil(2, seed=0)
    assert len(hints) == 2
    assert {"weather" in hint.text for hint in hints} == {True, False}
    found = bank.hint("weather in town number 77")
    assert found is not None
    assert "weather" in found[0].text
    assert bank.hint("quite another subject") is None
    assert bank.distil(2, seed=0) == hints, "a text is put on trial once"
    messages = [{"role": "user", "content": "q"}]
    assert with_hint(messages, found[0])[0] == {"role": "system", "content": found[0].text}
    both = with_hint([{"role": "system", "content": "s"}, *messages], found[0])
    assert both[0]["content"] == f"s\n\n{found[0].text}"


@pytest.mark.parametrize(
    ("with_it", "without", "before", "want"),
    [
        (Rate(18, 20), Rate(5, 20), "trial", "kept"),
        (Rate(5, 20), Rate(18, 20), "trial", "dropped"),
        (Rate(3, 4), Rate(2, 4), "trial", "trial"),
        (Rate(12, 20), Rate(10, 20), "kept", "trial"),  # its gain is no longer sure
        (Rate(60, 100), Rate(55, 100), "trial", "dropped"),  # nobody can tell after so many
        (Rate(18, 20), Rate(5, 20), "dropped", "dropped"),
    ],
)
def test_a_hint_stays_only_while_it_helps(with_it: Rate, without: Rate, before: str, want: str) -> None:
    hint = Hint(id=1, text="t", status=before, origins=(), with_it=with_it, without=without)  # type: ignore[arg-type]
    assert decide(hint) == want


@pytest.mark.parametrize(
    ("chance_with", "chance_without", "want"), [(0.9, 0.3, "kept"), (0.5, 0.5, "dropped")]
)
def test_a_simulated_hint_is_kept_or_dropped(
    store: Store, chance_with: float, chance_without: float, want: str
) -> None:
    bank, rng = Bank(store, vector), Random(3)
    for i in range(4):
        bank.add(trajectory(i, won=True))
    (hint,) = bank.distil(1)
    received = Counter[bool]()
    for i in range(MOST_TRIALS + 50):
        found = bank.hint(f"weather in town number {i}")
        if found is None:
            break
        received[found[1]] += 1
        chance = chance_with if found[1] else chance_without
        hint = bank.outcome(hint.id, received=found[1], won=rng.random() < chance)
    assert hint.status == want
    assert min(received.values()) > 5


def test_forgetting_takes_trajectories_and_hints_along(store: Store, tmp_path: Path) -> None:
    bank = Bank(store, vector)
    for _ in range(3):
        bank.add(Trajectory(question="the secret of the red llama", steps=("sing",), won=True))
    bank.distil(1)
    id = store.add(item(5, question="the secret of the red llama"), b"").id
    assert bank.hints()
    forget(store, id)
    assert (bank.hints(), bank.trajectories()) == ([], [])
    store.close()
    assert b"red llama" not in b"".join(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())


HEATS = {"cold": 0.0, "warm": 0.7, "hot": 1.2}
POLICIES = [Policy(name=name, sampling={"temperature": heat}) for name, heat in HEATS.items()]
CHANCES = {"code": (0.8, 0.5, 0.2), "prose": (0.2, 0.5, 0.75)}


def test_forgetting_takes_hints_and_policies_with_its_text_along(store: Store, tmp_path: Path) -> None:
    """Also a hint whose trajectory is gone for its age, and text with marks that JSON escapes."""
    asked = 'please say "woolwhite" to the llama'
    stored = store.add(item(1, question=asked), vector("llama").tobytes())
    with store.connection.transaction() as sql:
        row = (f"For {asked}: bow.", "trial", vector("llama").tobytes(), "[]")
        sql.execute("INSERT INTO hints(text, status, vector, origins) VALUES(?, ?, ?, ?)", row)
    policies = Policies(store, POLICIES)
    policies.reward(asked, POLICIES[0], 1.0)
    policies.reward("other", POLICIES[0], 1.0)
    assert forget(store, stored.id).n_bytes > 0
    assert Bank(store, vector).hints() == []
    assert [sum(each.n for each in policies.tallies(name).values()) for name in (asked, "other")] == [0, 1]


def regret(store: Store, seed: int, n: int, *, choose: str) -> list[float]:
    """The regret of each request: the best policy's chance less the chosen one's."""
    rng = Random(seed)
    bandit = Policies(store, POLICIES, Random(seed + 1))
    found: list[float] = []
    for _ in range(n):
        context = rng.choice(list(CHANCES))
        policy = bandit.choose(context) if choose == "bandit" else rng.choice(POLICIES)
        chances = CHANCES[context]
        chance = chances[POLICIES.index(policy)]
        found.append(max(chances) - chance)
        if choose == "bandit":
            bandit.reward(context, policy, float(rng.random() < chance))
    return found


def test_the_bandits_regret_grows_with_the_log(tmp_path: Path) -> None:
    """Over 5 seeds of 1,200 requests in two contexts: far below chance, and ever slower.

    By Lai and Robbins (1985) no policy has less than sum of gap / KL times ln n: 6 here for both contexts.
    """
    halves, by_chance = np.zeros(2), 0.0
    for seed in range(5):
        store = opened(tmp_path / str(seed))
        found = np.array(regret(store, seed, 1200, choose="bandit"))
        halves += found[:600].sum() / 5, found[600:].sum() / 5
        by_chance += sum(regret(store, seed, 1200, choose="chance")) / 5
        best = Policies(store, POLICIES)
        assert [best.best(context).name for context in CHANCES] == ["cold", "hot"]
        store.close()
    assert halves.sum() < 0.15 * by_chance
    assert halves[1] < 0.5 * halves[0]


def test_policies_are_kept_by_their_settings(store: Store) -> None:
    bandit = Policies(store, POLICIES[:2], Random(0))
    for _ in range(30):
        bandit.reward("code", POLICIES[0], 1.0)
        bandit.reward("code", POLICIES[1], 0.25)
    again = Policies(store, POLICIES, Random(0))
    assert [tally.n for tally in again.tallies("code").values()] == [30, 30, 0]
    assert again.tallies("code")[POLICIES[1].key].reward == pytest.approx(7.5)
    assert again.best("code") == POLICIES[0]
    assert [tally.n for tally in again.tallies("prose").values()] == [0, 0, 0]
    with pytest.raises(RequestError, match="expected 0 to 1"):
        again.reward("code", POLICIES[0], 1.5)
    for wrong in ([], [POLICIES[0], POLICIES[0]]):
        with pytest.raises(RequestError, match="expected different policies"):
            Policies(store, wrong)


def test_vectors_of_tests_have_the_size_of_the_stores() -> None:
    assert len(array("f", vector("a b").tobytes())) == 256
