"""`camelid bench --server`: figures against a server of known delays, and against `camelid serve`."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.scripted_server import END, HEAD, Asked, Pieces, answer, delta, event, scripted, whole
from tests.support.served_here import served_here

from camelid.cli import bench_server_load, http_client
from camelid.cli.bench_server_load import PROBES, Generator, Prompts, Sample, Shape, poisson
from camelid.cli.bench_server_report import SHARES, Case, mean_gap, percentile
from camelid.cli.bench_server_report import Result as Measured
from camelid.cli.http_client import Address, Client
from camelid.cli.main import main

EVERY_S, FIRST_S = 0.02, 0.05
TEMPLATE, PER_WORD = 7, 2  # tokens, as the scripted server counts them
FULL = {"error": {"message": "the server is full"}}


def bench(url: str, *words: object) -> Result:
    return CliRunner().invoke(main, ["bench", "--server", url, *map(str, words)])


def rows(done: Result) -> list[Any]:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["rows"]


def text_of(body: Any) -> list[str]:
    return body["messages"][0]["content"].split()


def counted(asked: Asked) -> Pieces:
    """A whole reply that counts the prompt's tokens, for the probes."""
    n = TEMPLATE + PER_WORD * len(text_of(asked.body))
    yield 0.0, whole({"usage": {"prompt_tokens": n, "completion_tokens": 1}})


def steady(asked: Asked) -> Pieces:
    """An answer at fixed intervals."""
    if not asked.body.get("stream"):
        return counted(asked)
    return answer(["x"] * asked.body["max_tokens"], every_s=EVERY_S, first_s=FIRST_S)


def loads(bodies: Sequence[Any]) -> list[Any]:
    """The bodies of the load, without the probes."""
    return [body for body in bodies if body.get("stream")]


def test_a_closed_loop_measures_what_the_server_does() -> None:
    n_streams, n_requests, n = 4, 12, 10
    with scripted(steady) as fake:
        done = bench(fake.url, "-p", 100, "-n", n, "--streams", n_streams, "--requests", n_requests, "--json")
    (row,) = rows(done)
    assert (row["n_requests"], row["n_answered"], row["errors"]) == (n_requests, n_requests, {})
    assert (row["answer_tokens"], row["events"]) == (n_requests * n, n_requests * n)
    total_ms = 1e3 * (FIRST_S + (n - 1) * EVERY_S)
    assert row["inter_token_ms"]["p50"] == pytest.approx(1e3 * EVERY_S, rel=0.25)
    assert row["ttft_ms"]["p50"] == pytest.approx(1e3 * FIRST_S, rel=0.5)
    assert row["per_token_ms"]["p50"] == pytest.approx(1e3 * EVERY_S, rel=0.25)
    assert row["end_to_end_ms"]["p50"] == pytest.approx(total_ms, rel=0.25)
    assert row["seconds"] >= 3 * total_ms / 1e3, "three requests a stream, one after another"
    assert row["tps"] == pytest.approx(row["answer_tokens"] / row["seconds"])
    assert row["requests_per_second"] == pytest.approx(n_requests / row["seconds"])
    assert 0 < row["generator_cpu_s"] < row["seconds"]
    assert fake.n_connections <= n_streams + 1, "connections are used again"


def test_streams_are_under_way_at_once_and_no_more() -> None:
    spans: list[tuple[float, float]] = []

    def script(asked: Asked) -> Pieces:
        if not asked.body.get("stream"):
            yield from counted(asked)
            return
        begun = time.perf_counter()
        yield from answer(["x"] * 3, every_s=0.03)
        spans.append((begun, time.perf_counter()))

    with scripted(script) as fake:
        (row,) = rows(bench(fake.url, "-p", 50, "-n", 3, "--streams", 3, "--requests", 7, "--json"))
    most = max(sum(begun <= at < end for begun, end in spans) for at, _ in spans)
    assert (row["n_answered"], len(spans), most) == (7, 7, 3)


def test_cases_are_every_combination() -> None:
    with scripted(lambda asked: steady(asked)) as fake:
        found = rows(bench(fake.url, "-p", "50,90", "-n", 2, "--streams", "1,2", "--json"))
    shown = [(row["n_prompt"], row["n_answer"], row["streams"], row["n_requests"]) for row in found]
    assert shown == [(50, 2, 1, 8), (50, 2, 2, 16), (90, 2, 1, 8), (90, 2, 2, 16)]


def test_prompts_have_the_length_and_no_common_beginning() -> None:
    with scripted(steady) as fake:
        (row,) = rows(bench(fake.url, "-p", 207, "-n", 2, "--streams", 4, "--requests", 8, "--json"))
    texts = [text_of(body) for body in loads(fake.bodies)]
    assert {len(text) for text in texts} == {(207 - TEMPLATE) // PER_WORD}
    assert len({tuple(text[:8]) for text in texts}) == 8
    assert row["n_prompt"] == 207
    assert all(body["ignore_eos"] and body["temperature"] == 0 for body in loads(fake.bodies))


def test_a_shared_prefix_is_shared_and_the_rest_is_not() -> None:
    words = ("-p", 107, "-n", 2, "--streams", 2, "--requests", 6, "--shared-prefix", 40, "--json")
    with scripted(steady) as fake:
        rows(bench(fake.url, *words))
    texts = [tuple(text_of(body)) for body in loads(fake.bodies)]
    assert len({text[:20] for text in texts}) == 1
    assert len({text[20:26] for text in texts}) == 6
    assert {len(text) for text in texts} == {50}


def test_a_seed_repeats_prompts_and_runs_differ_without_one() -> None:
    def prompts(*words: object) -> list[Any]:
        with scripted(steady) as fake:
            bench(fake.url, "-p", 60, "-n", 2, "--streams", 1, "--requests", 3, *words)
        return [text_of(body) for body in loads(fake.bodies)]

    assert prompts("--load-seed", "a") == prompts("--load-seed", "a") != prompts("--load-seed", "b")
    assert prompts() != prompts()


def test_flags_of_requests() -> None:
    words = ("-p", 60, "-n", 4, "--streams", 1, "--requests", 1, "--model", "m", "--api-key", "k")
    with scripted(steady) as fake:
        bench(fake.url, *words, "--stop-at-eos", "--logprobs")
    (body,) = loads(fake.bodies)
    assert ("ignore_eos" in body, body["logprobs"], body["model"], body["max_tokens"]) == (
        False,
        True,
        "m",
        4,
    )
    assert {one.headers["authorization"] for one in fake.asked} == {"Bearer k"}
    assert [one.path for one in fake.asked if one.method == "GET"] == [], "a name needs no list"


def test_tokens_without_text_count_by_their_log_probabilities() -> None:
    def script(asked: Asked) -> Pieces:
        if not asked.body.get("stream"):
            return counted(asked)
        silent = {"choices": [{"delta": {}, "logprobs": {"content": []}, "finish_reason": None}]}
        usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
        return [(0.0, HEAD), *((0.01, event(one)) for one in (delta("a"), silent, delta("b"), usage)),
                (0.0, event(b"[DONE]") + END)]  # fmt: skip

    with scripted(script) as fake:
        (row,) = rows(bench(fake.url, "-p", 60, "-n", 3, "--streams", 1, "--requests", 2, "--json"))
    assert (row["events"], row["answer_tokens"], row["prompt_tokens"]) == (6, 6, 18)


def test_an_open_loop_keeps_its_rate_while_answers_take_longer() -> None:
    """40 requests a second, each of 0.23 s: about nine are under way at once."""
    with scripted(steady) as fake:
        words = ("-p", 60, "-n", 10, "--rate", 40, "--duration", 1, "--load-seed", "x", "--json")
        (row,) = rows(bench(fake.url, *words))
    expected = len(poisson(40, 1, f"x {Case(60, 10, rate=40, duration_s=1)}"))
    assert row["n_requests"] == row["n_answered"] == expected
    assert (row["loop"], row["rate"], row["duration_s"]) == ("open", 40, 1)
    assert row["seconds"] < 2, "the requests overlap"
    assert fake.n_connections > 3
    assert row["late_ms"]["p50"] < 100


def test_a_late_request_counts_from_its_time() -> None:
    """A load generator that is blocked must not flatter the server."""

    async def work(url: str) -> list[Sample]:
        client = Client(Address.of(url))
        generator = Generator(client, lambda i: {"messages": [{"content": "x"}], "max_tokens": 2})
        asyncio.get_running_loop().call_later(0.05, time.sleep, 0.3)
        try:
            return await generator.open_loop([0.1, 0.12])
        finally:
            await client.aclose()

    with scripted(steady) as fake:
        samples = asyncio.run(work(fake.url))
    assert all(sample.sent - sample.due > 0.15 for sample in samples)
    assert all(sample.ttft_s > 0.15 + FIRST_S for sample in samples)


def test_errors_are_counted_by_status() -> None:
    n = [0]

    def script(asked: Asked) -> Pieces:
        if not asked.body.get("stream"):
            return counted(asked)
        n[0] += 1
        i = n[0] - 1
        usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
        replies: list[Pieces] = [
            [(0.0, whole(FULL, 503, retry_after="1"))],
            [(0.0, HEAD), (0.0, event(delta("half"))), (0.0, b"")],
            [(0.0, HEAD), (0.0, event({"error": {"message": "lost"}})), (0.0, b"")],
            [(0.0, HEAD + event(usage) + event(b"[DONE]") + END)],
            [(0.0, whole(FULL, 429))],
        ]
        return replies[i] if i < len(replies) else answer(["x", "y"])

    with scripted(script) as fake:
        words = ("-p", 60, "-n", 2, "--streams", 1, "--requests", 10)
        shown = bench(fake.url, *words)
        n[0] = 0
        (row,) = rows(bench(fake.url, *words, "--json"))
    assert row["errors"] == {"503": 1, "broken": 3, "429": 1}
    assert row["n_answered"] == 10 - sum(row["errors"].values())
    assert row["answer_tokens"] == 2 * row["n_answered"], "tokens of broken answers do not count"
    assert "3 x broken: the connection ended before the answer did" in shown.stdout
    assert "1 x 429: the server answered 429: the server is full" in shown.stdout


def test_no_answer_at_all_fails() -> None:
    def script(asked: Asked) -> Pieces:
        return [(0.0, whole(FULL, 503))] if asked.body.get("stream") else counted(asked)

    with scripted(script) as fake:
        done = bench(fake.url, "-p", 60, "-n", 2, "--streams", 2)
    assert done.exit_code == 1
    assert "16 x 503: the server answered 503: the server is full" in done.stdout
    assert "no request was answered" in done.stderr
    assert "first token" not in done.stdout


def test_a_slow_answer_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_server_load, "REQUEST_S", 0.1)

    def script(asked: Asked) -> Pieces:
        return answer(["x"], first_s=1) if asked.body.get("stream") else counted(asked)

    with scripted(script) as fake:
        done = bench(fake.url, "-p", 60, "-n", 2, "--streams", 2, "--requests", 2)
    assert "2 x timeout: after 0.1 s" in done.stdout


def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "POST_S", 0.1)
    with scripted(lambda asked: [(1.0, b"")]) as fake:
        done = bench(fake.url, "-p", 60, "-n", 2)
    assert done.exit_code == 1
    assert "no reply of /v1/chat/completions within 0.1 s" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cria",), "the argument MODEL has no meaning with --server"),
        (("-b", "2"), "--batch has no meaning with --server"),
        (("--compare", "llama.cpp"), "--compare has no meaning with --server"),
        (("--rate", "1", "--streams", "2"), "--rate is an open loop"),
        (("--rate", "1", "--requests", "2"), "--rate is an open loop"),
        (("--duration", "2"), "--duration needs --rate"),
        (("-n", "0"), "-p and -n must be above 0"),
        (("-p", "3"), "the chat template alone has 7 tokens"),
    ],
)
def test_wrong_flags_are_refused(words: tuple[str, ...], message: str) -> None:
    with scripted(steady) as fake:
        done = bench(fake.url, *words)
    assert (done.exit_code, message in done.stderr) == (2, True), done.output


@pytest.mark.parametrize(
    "flag", ["--rate=2", "--streams=2", "--logprobs", "--api-key=k", "--shared-prefix=3"]
)
def test_flags_of_the_load_need_a_server(flag: str) -> None:
    done = CliRunner().invoke(main, ["bench", flag])
    assert (done.exit_code, "needs --server URL" in done.stderr) == (2, True)


def test_a_server_that_counts_nothing() -> None:
    with scripted(lambda asked: [(0.0, whole({"choices": []}))]) as fake:
        done = bench(fake.url)
    assert (done.exit_code, "counts no prompt tokens" in done.stderr) == (1, True)


def test_percentiles_are_those_of_the_statistics_module() -> None:
    draw = random.Random(5)
    for n in (2, 3, 10, 101):
        values = sorted(draw.random() for _ in range(n))
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        for name, share in SHARES.items():
            assert percentile(values, share) == pytest.approx(cuts[int(name[1:]) - 1])
    assert percentile([7.0], 0.99) == 7.0


def test_arrivals_are_poisson() -> None:
    times = poisson(50, 200, "seed")
    gaps = [b - a for a, b in pairwise(times)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] < 200
    assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.08), "exponential: deviation equals mean"
    assert poisson(0.001, 0.001, "seed") == [0.0]


def test_a_prompt_depends_on_its_number_and_the_run() -> None:
    prompts = Prompts("a", 30, 10)
    assert prompts.text(1) == prompts.text(1) != prompts.text(2)
    assert prompts.text(1).split()[:10] == prompts.text(2).split()[:10]
    assert prompts.text(1) != Prompts("b", 30, 10).text(1)
    assert Prompts("a", 5, 10).text(0) == Prompts("a", 5, 10).text(1), "a prefix longer than the prompt"


def test_words_for_tokens() -> None:
    shape = Shape(template_tokens=10, word_tokens=1.5)
    assert (shape.words(100), shape.words(5), shape.prefix_words(30)) == (60, 0, 20)


def test_a_report_adds_up() -> None:
    times = (0.25, 0.5, 0.75)
    samples = [
        Sample(due=i, sent=i, end=i + 1.0, times=[i + t for t in times], n_prompt=10, n_tokens=4)
        for i in range(4)
    ]
    samples.append(Sample(due=0, sent=0.5, end=9, error="503", message="full\x1b[2J"))
    result = Measured(Case(10, 4, 2, 5), samples, seconds=8.0, cpu_s=0.2)
    facts, lines = result.facts(), "\n".join(result.lines())
    assert facts["ttft_ms"] == {"p50": 250.0, "p90": 250.0, "p99": 250.0}
    assert facts["inter_token_ms"] == {"p50": 250.0, "p90": 250.0, "p99": 250.0}
    assert (facts["tps"], facts["requests_per_second"], facts["answer_tokens"]) == (2.0, 0.5, 16)
    assert facts["generator_cpu_us_per_token"] == pytest.approx(0.2e6 / 16)
    assert mean_gap(samples[0]) == pytest.approx(0.25)
    assert "16 tokens in 8 s: 2 tok/s, 0.5 requests/s; 4 of 5 requests answered" in lines
    assert "1 x 503: full?[2J" in lines
    assert "load generator: 0.2 s of CPU, 2.5% of one core" in lines


def test_long_times_have_no_exponent() -> None:
    samples = [Sample(due=0, sent=0, end=12.3456, times=[0.0012345, 12.3456], n_tokens=2)]
    lines = "\n".join(Measured(Case(10, 4, 1, 1), samples, seconds=13.0, cpu_s=0.1).lines())
    assert " 12,346 ms" in lines
    assert " 1.234 ms" in lines


def test_a_server_that_counts_no_tokens_in_streams() -> None:
    samples = [Sample(due=0, sent=0, end=1.0, times=[0.5, 0.75], n_tokens=2)]
    lines = Measured(Case(10, 4, 1, 1), samples, seconds=1.0, cpu_s=0.1).lines()
    assert "  the server counts no tokens in streams; the client saw 2 events an answer" in lines


@pytest.mark.e2e
@pytest.mark.slow
def test_camelid_serve_under_load() -> None:
    """The client's figures agree with the engine's own counts."""
    with served_here(parallel=4) as server:
        url, before = f"127.0.0.1:{server.port}", server.engine.counters.requests
        words = ("-p", 120, "-n", 16, "--streams", 4, "--requests", 12, "--logprobs", "--json")
        (row,) = rows(bench(url, *words))
        (shared,) = rows(bench(url, *words, "--shared-prefix", 96))
        server.wait_idle()
        after = server.engine.counters.requests
    assert (row["n_answered"], row["answer_tokens"], row["events"]) == (12, 12 * 16, 12 * 16)
    assert row["errors"] == {}
    assert row["prompt_tokens"] / 12 == pytest.approx(120, rel=0.1)
    template = row["cached_tokens"] / 12
    assert template < 32, "only the chat template is in the prefix cache"
    assert shared["cached_tokens"] / 12 > template + 48
    assert after - before == 2 * (12 + len(PROBES))
    assert row["ttft_ms"]["p50"] < row["end_to_end_ms"]["p50"]
