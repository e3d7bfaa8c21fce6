"""GET /metrics and GET /v1/stats: values that agree with the replies, in text that Prometheus reads."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from tests.support.served import ROOT, Served, served

from camelid.server.metrics.aliases import LLAMACPP_ROWS, VLLM_ROWS
from camelid.server.metrics.names import CAMELID

pytestmark = pytest.mark.e2e
CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 12 plus 30?"}], "temperature": 0}
WHERE = {"endpoint": "chat_completions", "model": "cria"}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served("--backend", "cpu", "--api-key", "k", "--metrics-names", "vllm,llamacpp") as running:
        running.http.headers["authorization"] = "Bearer k"
        yield running


def read(server: Served) -> Samples:
    families = text_string_to_metric_families(server.get("/metrics").text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def grown(server: Served, before: Samples, name: str, **labels: str) -> float:
    return value(read(server), name, **labels) - value(before, name, **labels)


def promtool() -> str:
    """Prometheus' own checker of metrics, from the system or from `.ci/setup test`."""
    if found := shutil.which("promtool") or shutil.which("promtool", path=str(ROOT / ".venv" / "bin")):
        return found
    if not shutil.which("apt-get"):
        pytest.skip("not on this platform: no promtool, and no apt-get to bring it")
    pytest.skip("no promtool: run .ci/setup test")


def test_counts_are_those_of_the_replies(server: Served) -> None:
    before = read(server)
    usages = [server.post(CHAT, ASK | {"max_tokens": 9 + i}).json()["usage"] for i in range(3)]
    streamed = ASK | {"max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    usages.append(list(server.stream(CHAT, streamed))[-1]["usage"])
    after = read(server)

    def counted(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    n_prompt = sum(usage["prompt_tokens"] for usage in usages)
    n_answer = sum(usage["completion_tokens"] for usage in usages)
    n_cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert n_cached >= 32, "the prefix cache never engaged"
    assert counted("camelid_prompt_tokens_total", **WHERE) == n_prompt
    assert counted("camelid_cached_prompt_tokens_total", **WHERE) == n_cached
    assert counted("camelid_prefix_cache_hit_tokens_total", model="cria") == n_cached
    assert counted("camelid_answer_tokens_total", **WHERE) == n_answer
    assert counted("camelid_time_to_first_token_seconds_count", **WHERE) == 4
    assert counted("camelid_inter_token_seconds_count", **WHERE) == n_answer - 4
    assert counted("camelid_request_prompt_tokens_sum", **WHERE) == n_prompt
    assert counted("camelid_request_answer_tokens_sum", **WHERE) == n_answer
    assert counted("camelid_http_replies_total", path=CHAT, method="POST", status="200") == 4
    assert counted("camelid_step_seconds_count", model="cria", program="decode") >= n_answer / 4
    reasons = [
        counted("camelid_answers_total", **WHERE, finish_reason=reason) for reason in ("length", "stop")
    ]
    assert sum(reasons) == 4
    assert reasons[0] >= 1
    vllm = {"model_name": "cria", "engine": "0"}
    assert counted("vllm:prompt_tokens_total", **vllm) == n_prompt
    assert counted("vllm:generation_tokens_total", **vllm) == n_answer
    assert counted("vllm:prefix_cache_hits_total", **vllm) == n_cached
    assert counted("vllm:time_to_first_token_seconds_count", **vllm) == 4
    assert counted("llamacpp:prompt_tokens_total") == n_prompt - n_cached
    assert counted("llamacpp:tokens_predicted_total") == n_answer
    assert value(after, "llamacpp:n_tokens_max") >= max(usage["total_tokens"] for usage in usages)


def test_choices_share_one_prompt_and_end_each(server: Served) -> None:
    before = read(server)
    usage = server.post(CHAT, ASK | {"n": 3, "max_tokens": 3}).json()["usage"]
    assert grown(server, before, "camelid_prompt_tokens_total", **WHERE) == usage["prompt_tokens"]
    assert grown(server, before, "camelid_answer_tokens_total", **WHERE) == usage["completion_tokens"] == 9
    assert grown(server, before, "camelid_answers_total", **WHERE, finish_reason="length") == 3
    assert grown(server, before, "camelid_request_seconds_count", **WHERE) == 1


def test_a_client_that_leaves_is_counted(server: Served) -> None:
    before = read(server)
    body = ASK | {"stream": True, "max_tokens": 900, "ignore_eos": True}
    with server.http.stream("POST", CHAT, json=body) as reply:
        next(reply.iter_lines())
    for _ in range(200):
        if grown(server, before, "camelid_cancellations_total", **WHERE):
            break
    assert grown(server, before, "camelid_cancellations_total", **WHERE) == 1
    assert grown(server, before, "camelid_answers_total", **WHERE, finish_reason="cancelled") == 1
    for _ in range(200):  # the rows of its last step are still under way
        after = read(server)
        if not value(after, "camelid_kv_cache_bytes", model="cria", use="held"):
            break
    assert value(after, "camelid_places_taken", model="cria") == 0
    assert value(after, "camelid_kv_cache_bytes", model="cria", use="held") == 0


def test_unknown_paths_and_methods_are_one_label(server: Served) -> None:
    for i in range(5):
        server.get(f"/nothing/{i}")
        server.http.request(f"METHOD{i}", "/metrics")
    text = server.get("/metrics").text
    assert "/nothing" not in text
    assert "METHOD" not in text
    assert value(read(server), "camelid_http_replies_total", path="other", method="other", status="404") >= 5


def test_both_formats_are_read_by_strict_parsers(server: Served) -> None:
    server.post(CHAT, ASK)
    plain = server.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    accept = "application/openmetrics-text;version=nonsense, text/plain;q=0.1"
    modern = server.get("/metrics", accept=accept)
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in text_string_to_metric_families(plain.text)}
    assert names >= {family.name for family in openmetrics_families(modern.text)}
    for family in openmetrics_families(modern.text):
        assert family.documentation, family.name


def test_promtool_finds_no_fault(server: Served) -> None:
    program = promtool()
    server.post(CHAT, ASK)
    text = server.get("/metrics").text
    done = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True)
    # vLLM's and llama.cpp's own names break one rule
    faults = [line for line in done.stderr.splitlines() if "should not contain ':'" not in line]
    assert faults == []
    assert done.returncode in (0, 3)


def test_names_keep_prometheus_rules() -> None:
    for row in CAMELID:
        is_counter = getattr(row, "kind", "histogram") == "counter"
        assert row.name.endswith("_total") == is_counter, row.name
        assert row.name.startswith("camelid_")
        assert not row.text.endswith(".")
    names = [row.name for row in (*CAMELID, *VLLM_ROWS, *(rows[0] for rows in LLAMACPP_ROWS))]
    assert len(set(names)) == len(names)


def test_a_key_is_needed(server: Served) -> None:
    for path in ("/metrics", "/v1/stats"):
        assert server.get(path, authorization="Bearer wrong").status_code == 401


def test_the_live_panel_shows_load(server: Served) -> None:
    server.post(CHAT, ASK | {"max_tokens": 32})
    body = server.get("/v1/stats").json()
    (model,) = body["models"]
    assert (body["phase"], model["id"], model["state"]) == ("ready", "cria", "loaded")
    assert body["resident_bytes"] > 1 << 20
    assert model["kv_bytes"]["total"] > model["kv_bytes"]["cached"] > 0
    assert model["tokens"]["answer"] > 0
    decode = model["steps"]["decode"]
    assert 0 < decode["p50_ms"] <= decode["p99_ms"] < 1e4
    assert model["places"] == {"taken": 0, "all": 36}


def test_refusals_are_counted_by_reason() -> None:
    with served("--backend", "reference", "--parallel", "1", "--max-queue", "0") as server:
        body = ASK | {"stream": True, "max_tokens": 900, "ignore_eos": True}  # seconds on this backend
        with server.http.stream("POST", CHAT, json=body) as running:
            lines = running.iter_lines()  # without a name it would be closed, and with it the connection
            next(lines)
            assert server.post(CHAT, ASK).status_code == 503
        labels = {"path": CHAT, "code": "server_is_overloaded"}
        assert value(read(server), "camelid_refusals_total", **labels) == 1


def test_metrics_can_be_off() -> None:
    with served("--backend", "cpu", "--no-metrics") as server:
        assert server.get("/metrics").status_code == 501
        assert server.get("/v1/stats").status_code == 200
