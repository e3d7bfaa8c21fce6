"""The counts behind the metrics: histograms, rates, jobs and loads, without a server."""

from __future__ import annotations

import bisect
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from camelid.engine.metrics import Counters, StepStats
from camelid.engine.results import Timings, Usage
from camelid.requests.output_text import Completion, Event
from camelid.server.metrics.histogram import TOKEN_S, WINDOW_S, Histogram, Rate, merged, percentile
from camelid.server.metrics.live import ModelTally
from camelid.server.metrics.tally import Tally
from camelid.server.service.host import Batch
from camelid.server.service.service import Service, Started


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    rng, own = random.Random(1), Histogram(TOKEN_S)
    values = [rng.choice((*TOKEN_S, rng.uniform(0, 9))) for _ in range(500)]
    for x in values:
        own.observe(x)
    for bound, n in own.cumulated():
        assert n == sum(x <= float(bound) for x in values)
    assert own.total == pytest.approx(sum(values))
    twice = merged([own, own], TOKEN_S)
    assert twice.counts == [2 * n for n in own.counts]
    assert twice.n == 1000


def test_a_rate_is_the_mean_of_whole_seconds() -> None:
    rate, n = Rate(), WINDOW_S
    for second in range(100, 100 + n + 3):
        rate.add(7, second + 0.5)
    assert rate.per_second(100 + n + 3) == 7
    assert rate.per_second(100 + n + 3 + n) == 0
    rate.add(50, 1000.0)
    assert rate.per_second(1000.9) == 0, "the second under way is not whole"
    assert rate.per_second(1001.1) == 50 / n


def test_percentiles_are_of_sorted_values() -> None:
    values = sorted(random.Random(2).random() for _ in range(200))
    for share in (0.0, 0.5, 0.99, 1.0):
        at = bisect.bisect_right(values, percentile(values, share))
        assert at >= share * len(values)
    assert percentile([], 0.5) == 0.0


def completion(n_answer: int, reason: str = "stop", n_cached: int = 2) -> Completion:
    times = Timings(
        queue_s=0.5, ttft_s=1.5, prefill_tps=0, decode_tps=0, inter_token_s=0, total_s=4.0, n_steps=3
    )
    return Completion(
        text="", token_ids=[0] * n_answer, finish_reason=cast(Any, reason), seed=0,
        usage=Usage(10, n_answer, n_cached), timings=times,
    )  # fmt: skip


class Scene:
    """A tally with a clock, and one job."""

    def __init__(self, n: int = 1) -> None:
        self.now = 100.0
        self.tally = Tally(lambda: self.now)
        engine = SimpleNamespace(counters=Counters(), hooks=[])
        service = SimpleNamespace(name="m", host=SimpleNamespace(running=SimpleNamespace(engine=engine)))
        self.started = cast(Started, Job(
            service=service, job=SimpleNamespace(endpoint="e", n=n), request=SimpleNamespace(n_read=10),
            place=SimpleNamespace(entered=99.0),
        ))  # fmt: skip
        self.tally.submitted(self.started)
        self.series = self.tally.series["e", "m"]

    def batch(self, n_events: int, choice: int = 0, done: Completion | None = None) -> None:
        events = [Event("x", 1, 0.0)] * n_events
        self.tally.advanced(self.started, Batch(choice, events, done))


class Job(SimpleNamespace):
    """A namespace that is equal to itself alone, as `Started` is."""

    def __hash__(self) -> int:
        return id(self)


def test_tokens_of_one_step_share_its_time() -> None:
    scene = Scene()
    scene.batch(1)
    assert scene.series.first_token.total == 1.0
    scene.now += 0.3
    scene.batch(3)
    assert scene.series.inter_token.n == 3
    assert scene.series.inter_token.total == pytest.approx(0.3)
    scene.tally.advanced(scene.started, Batch(0, [Event("withheld", None, 0.0)], completion(4)))
    assert scene.series.n_answer == 4, "text without a token is no token"
    scene.now += 0.7
    scene.tally.closed(scene.started)
    assert scene.series.whole.total == pytest.approx(2.0)
    assert (scene.series.queue.total, scene.series.prefill.total, scene.series.decode.total) == (
        0.5,
        1.0,
        2.5,
    )
    assert (scene.series.n_prompt, scene.series.n_cached, scene.series.n_computed) == (10, 2, 8)
    assert scene.series.reasons == {"stop": 1}
    assert scene.series.n_cancelled == 0


def test_choices_without_an_end_were_cancelled() -> None:
    scene = Scene(n=3)
    scene.batch(2, choice=1)
    scene.batch(1, choice=0, done=completion(1))
    scene.tally.advanced(scene.started, Batch(2, (), error=ValueError()))
    scene.tally.closed(scene.started)
    scene.tally.closed(scene.started)
    assert scene.series.reasons == {"stop": 1, "error": 1, "cancelled": 1}
    assert scene.series.n_cancelled == 1
    assert scene.series.n_prompt == 10, "the choices share one prompt"


def test_counters_outlive_an_engine() -> None:
    tally, models = Scene().tally, []
    for n in (3, 4):
        engine = SimpleNamespace(counters=Counters(preemptions=n), hooks=[])
        models.append(engine)
        service = SimpleNamespace(name="m", host=SimpleNamespace(running=SimpleNamespace(engine=engine)))
        for _ in range(2):
            tally.loaded(cast(Service, service))
        assert len(engine.hooks) == 1
    models[1].counters.preemptions += 10
    assert tally.model("m").totals().preemptions == 17


def test_steps_are_counted_by_program() -> None:
    tally = ModelTally()
    for program, seconds in (("decode", 0.1), ("mixed", 0.2), ("decode", 0.3)):
        tally.step(StepStats(program, 4, 8, seconds))
    assert tally.steps["decode"].seconds.total == pytest.approx(0.4)
    assert (tally.steps["decode"].n_rows, tally.steps["decode"].n_sequences) == (16, 8)
    assert list(tally.steps["mixed"].recent) == [0.2]
