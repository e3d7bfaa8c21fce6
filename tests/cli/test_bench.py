"""`camelid bench`: counted instead of measured time, predictions against a backend's counters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median, stdev
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.backends.base import Program, Ticket
from camelid.backends.common import bandwidth
from camelid.backends.null.backend import NullBackend
from camelid.cli import bench_predict, bench_report
from camelid.cli.bench import has_own_memory
from camelid.cli.bench_cases import Case
from camelid.cli.bench_predict import Yardstick, predict
from camelid.cli.bench_report import Row, Spread, result_lines
from camelid.cli.bench_runs import Bench, Run, model_id, open_bench
from camelid.cli.main import main
from camelid.engine.scheduler import MIN_PREFILL_ROWS
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.plan.cost import SequenceShare, predict_step, step_cost
from camelid.plan.step import decode_step

REFERENCE = ("--backend", "reference")
CHUNK = 64
YARDSTICK = Yardstick(read_gbps=2.0, gflops=3.0)
RUN_S, READ_S = 0.6, 0.4  # of one step
ROW_S = 1 / 128  # of one row of a step


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96, context=1024)
    return str(place)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant yardstick."""
    monkeypatch.setattr(Yardstick, "measure", classmethod(lambda cls, backend: YARDSTICK))


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, words)])


@dataclass
class Time:
    """A clock that a test advances."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """A backend whose steps advance a clock, by a constant per step and per row."""

    def __init__(self, inner: Any, time: Time, run_s: float, read_s: float, row_s: float) -> None:
        self.inner, self.time, self.run_s, self.read_s, self.row_s = inner, time, run_s, read_s, row_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        self.time.now += self.run_s + self.row_s * len(decode_step(step, program.plan.layout).rows)
        return self.inner.run(program, step, inputs)

    async def read(self, ticket: Ticket) -> Any:
        self.time.now += self.read_s
        return await self.inner.read(ticket)


def timed(path: str, case: Case, *, depth: int = 1) -> tuple[Run, Bench]:
    """One run on the null backend, whose steps take a second plus time per row."""

    async def run() -> tuple[Run, Bench]:
        time = Time()
        options = LoadOptions(
            backend="null", context=512, parallel=max(case.batch, 2), chunk=CHUNK, max_in_flight=depth
        )
        async with open_bench(path, options, time) as bench:
            slow: Any = Slow(bench.backend, time, RUN_S, READ_S, ROW_S)
            bench.llm._engine.backend = slow
            return await bench.run(case, 1), bench

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("case", "n_steps", "n_tokens"),
    [
        (Case("pp", 100), 2, 100),  # 64 rows, then 36
        (Case("pp", 64), 1, 64),
        (Case("pp", 100, batch=2), 4, 200),
        (Case("pp", 100, depth=64), 2, 100),
        (Case("pp", 100, depth=70, batch=2), 4, 200),
        (Case("tg", 8), 8, 8),
        (Case("tg", 8, depth=100), 8, 8),
        (Case("tg", 8, batch=3), 8, 24),
        (Case("tg", 8, depth=60, batch=2), 8, 16),
        (Case("tg", 8, depth=130, batch=3), 8, 24),  # the first stream is four tokens ahead
    ],
    ids=str,
)
def test_a_rate_is_tokens_over_step_time(path: str, case: Case, n_steps: int, n_tokens: int) -> None:
    run, bench = timed(path, case)
    seconds = n_steps + ROW_S * n_tokens
    assert (run.seconds, run.n_tokens) == (pytest.approx(seconds), n_tokens)
    assert run.tps == pytest.approx(n_tokens / seconds)
    assert bench.llm.counters.requests == case.batch * (2 if case.depth else 1)


def test_time_to_first_token_is_that_of_the_last_stream(path: str) -> None:
    run, _ = timed(path, Case("tg", 4, depth=100, batch=2))
    most = 4 + 202 * ROW_S  # 200 rows, 64 per step, if no row of the depth is cached
    assert 0 < run.ttft_s <= most + 1e-9
    prefill, _ = timed(path, Case("pp", 100))
    assert prefill.ttft_s == pytest.approx(2.0 + 100 * ROW_S)


def test_steps_that_run_ahead_are_counted_once(path: str) -> None:
    run, bench = timed(path, Case("tg", 16), depth=2)
    assert bench.llm.counters.max_in_flight == 2
    assert run.n_tokens == 16
    assert run.seconds == pytest.approx(16 * (1 + ROW_S))


def test_steps_in_flight_at_the_end_are_not_counted(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device needs a second per step, and returns half of the steps in flight at once."""
    can = NullBackend().capabilities()
    monkeypatch.setattr(NullBackend, "capabilities", lambda self: replace(can, max_in_flight=8))
    for name in ("RUN_S", "ROW_S"):
        monkeypatch.setattr(f"{__name__}.{name}", 0.0)
    run, bench = timed(path, Case("tg", 40), depth=8)
    assert bench.llm.counters.max_in_flight == 8
    assert run.tps == pytest.approx(1 / READ_S)


def test_only_the_timed_part_differs_between_repetitions() -> None:
    case = Case("pp", 50, depth=30, batch=2)
    first, second = (case.prompt(0, repetition, 1000) for repetition in (1, 2))
    assert first == case.prompt(0, 1, 1000), "prompts are not drawn with a fixed seed"
    assert first[:30] == second[:30]
    assert len(first) == 80
    assert sum(a == b for a, b in zip(first[30:], second[30:], strict=True)) < 5
    assert first[:30] != case.prompt(1, 1, 1000)[:30], "streams share a prefix"
    assert len(Case("tg", 50).prompt(0, 1, 1000)) == 1


@pytest.mark.parametrize(("batch", "depth", "chunk"), [(2, 1, 16), (3, 130, 64), (5, 40, 10), (8, 512, 512)])
def test_streams_have_context_for_tokens_during_other_prompts(batch: int, depth: int, chunk: int) -> None:
    """Counted step by step: streams beyond their prompt have a row each, and prompts fill the rest, at the
    pace of a step beside an answer.
    """
    left, n_ahead = [depth] * batch, 0
    while any(left):
        room, n_ahead = chunk - left.count(0), n_ahead + (left[0] == 0)
        room = min(room, MIN_PREFILL_ROWS) if 0 in left else room
        for i, n_left in enumerate(left):
            left[i] -= min(n_left, room)
            room -= n_left - left[i]
    assert Case("tg", 6, depth=depth, batch=batch).rows(chunk) > depth + n_ahead + 6


def test_files_of_different_work_have_different_ids() -> None:
    def id_of(**changes: Any) -> str:
        weight = SimpleNamespace(**({"name": "w", "type": "q8_0", "shape": (2, 32)} | changes))
        return model_id(cast(Model, SimpleNamespace(weights={"w": weight})))

    ways: tuple[dict[str, Any], ...] = ({}, {"name": "v"}, {"type": "q4_0"}, {"shape": (32, 2)})
    assert len({id_of(**way) for way in ways}) == len(ways)
    assert id_of() == id_of()


def counted(path: str, case: Case) -> tuple[int, int]:
    """Bytes and flops that the null backend counts for the case's timed part."""

    async def run() -> tuple[int, int]:
        options = LoadOptions(backend="null", context=512, parallel=2, chunk=CHUNK, max_in_flight=1)
        async with open_bench(path, options, Time()) as bench:
            prompts = [case.prompt(i, 1, bench.llm.spec.vocab_size) for i in range(case.batch)]
            before = dict(bench.llm.memory().counters)
            await (bench._prefill(prompts) if case.kind == "pp" else bench._decode(prompts, case.n))
            after = bench.llm.memory().counters
            return after["bytes"] - before["bytes"], after["flops"] - before["flops"]

    return asyncio.run(run())


@pytest.mark.parametrize("case", [Case("pp", 64), Case("pp", 100), Case("pp", 100, batch=2)], ids=str)
def test_prefill_is_predicted_for_the_engines_chunks(path: str, case: Case) -> None:
    with camelid.load(path, backend="null", parallel=2, context=512) as llm:
        prediction = predict(case, llm.plan("mixed"), YARDSTICK, CHUNK)
    assert (prediction.n_bytes, prediction.flops) == counted(path, case)
    assert prediction.n_tokens == case.n * case.batch
    read_s, multiply_s = prediction.n_bytes / 2e9, prediction.flops / 3e9
    assert prediction.tps == pytest.approx(prediction.n_tokens / max(read_s, multiply_s))
    assert prediction.is_arithmetic == (multiply_s > read_s)


@pytest.mark.parametrize("case", [Case("tg", 40), Case("tg", 40, depth=60)], ids=str)
def test_decode_is_predicted_by_its_bytes(path: str, case: Case) -> None:
    with camelid.load(path, backend="null") as llm:
        plan = llm.plan("decode")
        prediction = predict(case, plan, YARDSTICK, CHUNK)
        alone = predict_step(plan, held=case.held + 20)
        wide = step_cost(plan, [SequenceShare(case.held + 20, 1)] * 4)
        # This model ties its embedding: a step reads a row of each table, and the embedding as the head.
        weight_bytes = sum(w.n_bytes for name, w in plan.weights().items() if name.startswith("blk."))
    assert prediction.tps == pytest.approx(2e9 / prediction.bytes_per_token)
    assert not prediction.is_arithmetic
    assert prediction.bytes_per_token == alone.n_bytes
    assert alone.n_bytes < wide.n_bytes <= 4 * alone.n_bytes - 3 * weight_bytes, (
        "a batch reads the weights once per sequence"
    )
    assert wide.flops == 4 * alone.flops
    read = predict(replace(case, depth=0), plan, YARDSTICK, CHUNK).n_bytes
    if not case.depth:  # and one prompt row of `mixed`
        got, _ = counted(path, case)
        assert got == pytest.approx(read, rel=0.04)


def test_yardsticks_measure_something() -> None:
    """The best of five: under load, a single measurement may find almost no processor time."""
    assert 0.01 < max(bandwidth.read_gbps(1 << 22) for _ in range(5)) < 1e5
    assert 0.01 < max(bandwidth.multiply_gflops(128) for _ in range(5)) < 1e6


TG8 = Case("tg", 8)


def row(*rates: float, case: Case = TG8, rival: tuple[float, ...] = ()) -> Row:
    def run(rate: float) -> Run:
        return Run(seconds=8 / rate, n_tokens=8, ttft_s=0.5)

    prediction = bench_predict.Prediction(
        n_tokens=8, n_bytes=8_000_000, flops=1, read_s=0.004, multiply_s=0.0
    )
    runs, others = [run(rate) for rate in rates], [run(rate) for rate in rival]
    return Row(case=case, yardstick=YARDSTICK, prediction=prediction, runs=runs, rival=others)


def test_a_row_is_the_median_with_its_spread_and_shares() -> None:
    rates = (90.0, 100.0, 140.0, 95.0, 105.0)
    facts = row(*rates, rival=(200.0, 50.0, 80.0)).facts()
    assert (facts["tps"], facts["stdev_tps"]) == (median(rates), pytest.approx(stdev(rates)))
    assert facts["n_runs"] == 5
    assert facts["runs_tps"] == pytest.approx(rates)
    assert facts["bandwidth_share"] == pytest.approx(100 * 1e6 / 2e9)
    assert facts["predicted_tps"] == pytest.approx(2000)
    assert facts["ratio"] == pytest.approx(100 / 80)
    assert Spread.of([Run(seconds=1, n_tokens=1, ttft_s=0)]).stdev == 0.0


def test_the_report_has_the_first_prefills_time_to_first_token() -> None:
    decode = row(100.0)
    prefill = row(50.0, case=Case("pp", 8))
    late = replace(prefill, runs=[replace(run, ttft_s=0.75) for run in prefill.runs])
    assert [bench_report.summary(rows)["ttft_s"] for rows in ([decode, late], [decode])] == [0.75, 0.5]


def test_lines_state_the_reason() -> None:
    measured, why, rival = result_lines(row(100.0, 110.0, rival=(50.0,)), "llama.cpp")
    assert "105 tok/s ± 7.07 (2 runs)" in measured
    assert why.endswith("5.25% of the prediction, 0.105 GB/s, 5.2% of the bandwidth, first token 0.500 s")
    assert "camelid runs at 2.1 times that" in rival
    assert bench_report.rate(12345.6) == "12,346 tok/s"


@pytest.mark.e2e
def test_one_object_with_the_prediction_beside_the_number(path: str, quick: None) -> None:
    done = call(path, "-p", 8, "-n", 4, "-b", "1,2", "-d", "0,16", "-r", 2, *REFERENCE, "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    designed = (
        "backend device model model_bytes threads prefill_tps decode_tps ttft_s bytes_per_token read_gbps"
    )
    assert set(designed.split()) <= facts.keys()
    assert [each["test"] for each in facts["rows"]] == [
        "pp8", "pp8 x 2", "pp8 @ 16", "pp8 x 2 @ 16", "tg4", "tg4 x 2", "tg4 @ 16", "tg4 x 2 @ 16",
    ]  # fmt: skip
    assert all(each["n_runs"] == len(each["runs_tps"]) == 2 for each in facts["rows"])
    assert (facts["prefill_tps"], facts["decode_tps"]) == (facts["rows"][0]["tps"], facts["rows"][4]["tps"])
    assert 0 < facts["bandwidth_share"] == pytest.approx(facts["decode_tps"] / facts["predicted_decode_tps"])
    assert facts["rows"][6]["bytes_per_token"] > facts["rows"][4]["bytes_per_token"], "keys are not counted"
    assert facts["rows"][5]["bytes_per_token"] < facts["rows"][4]["bytes_per_token"], "weights are not shared"


@pytest.mark.e2e
def test_a_prediction_precedes_its_figure(path: str) -> None:
    done = call(path, "-p", 8, "-n", 4, "-r", 1, *REFERENCE)
    heading, prefill, measured, why, decode, *_ = done.stdout.splitlines()
    assert "reference on NumPy" in heading
    assert prefill.startswith("pp8 ")
    assert decode.startswith("tg4 ")
    assert all("at most" in line and "measured just now" in line for line in (prefill, decode))
    assert "tok/s ±" in measured
    assert "% of the bandwidth" in why


@pytest.mark.parametrize(
    ("limits", "is_software", "own"), [({}, False, False), ({"x": 1}, True, False), ({"x": 1}, False, True)]
)
def test_a_gpu_is_distinguished(limits: dict[str, int], is_software: bool, own: bool) -> None:
    capabilities = replace(NullBackend().capabilities(), limits=limits, is_software=is_software)
    assert has_own_memory(capabilities) == own


def test_zero_leaves_a_kind_out(path: str, quick: None) -> None:
    facts = json.loads(call(path, "-p", 0, "-n", 4, "-r", 1, *REFERENCE, "--json").stdout)
    assert [each["kind"] for each in facts["rows"]] == ["tg"]
    assert facts["prefill_tps"] is None
    facts = json.loads(call(path, "-p", "4,6", "-n", 0, "-r", 1, *REFERENCE, "--json").stdout)
    assert [each["n"] for each in facts["rows"]] == [4, 6]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-n", 1), 2, "1 is too small: expected at least 2, or 0 for none"),
        (("-n", "0,1"), 2, "1 is too small: expected at least 2, or 0 for none"),
        (("-p", 0, "-n", 0), 2, "measures nothing"),
        (("-b", "0"), 2, "0 is too small"),
        (("-b", "1,x"), 2, "is not a list of integers"),
        (("-d", "-5"), 2, "is not a list of integers"),
        (("-r", 0), 2, "-r"),
        (("-p", 2000), 1, "context is 2001, expected 1 to 1024"),
        (("--compare", "no.json"), 2, "no.json: cannot be read"),
    ],
)
def test_usage_errors(path: str, words: tuple[object, ...], code: int, said: str) -> None:
    done = call(path, *words, *REFERENCE)
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
