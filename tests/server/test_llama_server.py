"""Replies under llama-server's flags, as its clients and its tests expect them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.dialects import saying, thinker
from tests.support.served import Served, served
from tests.support.served_here import served_here

CHAT, ASK = "/v1/chat/completions", [{"role": "user", "content": "Tell me about a fish."}]
FREE: dict[str, Any] = {"messages": ASK, "max_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    flags = ("--metrics", "--alias", "two,one", "--tags", "red,blue", "-c", "512", "-np", "2", "--jinja")
    with served("--backend", "cpu", "-m", "cria", *flags) as running:
        yield running


def chat(server: Served, **fields: Any) -> Any:
    reply = server.post(CHAT, FREE | fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_the_only_model_answers_to_every_name(server: Served) -> None:
    assert chat(server, model="gpt-3.5-turbo")["model"] == "one"
    assert server.post("/v1/models/load", {"model": "gpt-3.5-turbo"}).status_code == 404
    assert server.get("/v1/models/gpt-3.5-turbo").status_code == 404
    with served_here(is_strict=True) as strict:
        reply = strict.http.post(CHAT, json={**FREE, "model": "gpt-3.5-turbo"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


def test_the_list_of_models_has_llama_servers_facts(server: Served) -> None:
    reply = server.get("/v1/models").json()
    (model,), (card,) = reply["data"], reply["models"]
    assert (model["id"], model["aliases"], model["tags"]) == ("one", ["one", "two"], ["blue", "red"])
    facts = {
        name: model["meta"][name] for name in ("vocab_type", "n_vocab", "n_ctx", "n_ctx_train", "n_embd")
    }
    assert facts == {"vocab_type": 2, "n_vocab": 1088, "n_ctx": 256, "n_ctx_train": 1024, "n_embd": 256}
    assert (card["name"], card["type"], card["details"]["format"]) == ("one", "model", "gguf")


def test_metrics_by_its_flag_have_its_names(server: Served) -> None:
    reply = server.get("/metrics")
    assert "\nllamacpp:prompt_tokens_total " in reply.text
    assert "\nllamacpp:prompt_tokens_cached_total " in reply.text
    assert reply.headers["process-start-time-unix"].isdecimal()
    with served_here() as plain:
        assert "llamacpp:" not in plain.http.get("/metrics").text


def test_a_prefix_precedes_every_path() -> None:
    with served("--backend", "cpu", "--api-prefix", "/api/v9") as server:
        assert server.get("/api/v9/health").json() == {"status": "ok"}
        assert server.post(f"/api/v9{CHAT}", FREE).status_code == 200
        for path in ("/health", "/api/v90/health", "/props", CHAT):
            reply = server.http.get(path)
            assert (reply.status_code, repr(path) in reply.text) == (404, True), path


def test_a_prefix_hides_nothing_from_the_guard() -> None:
    with served("--backend", "cpu", "--api-prefix", "/api", "--api-key", "k") as server:
        assert server.get("/api/health").status_code == 200
        assert server.get("/api/props").status_code == 401
        assert server.get("/props").status_code in (401, 404)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"messages": [*ASK, *[{"role": "assistant", "content": "A"}] * 2]}, "messages"),
        ({"samplers": "kz"}, "samplers"),
        ({"reasoning_format": "loud"}, "reasoning_format"),
    ],
)
def test_contradictions_are_refused(server: Served, fields: Any, field: str) -> None:
    talk = [*ASK, {"role": "assistant", "content": "A"}]
    reply = server.post(CHAT, {**FREE, "messages": talk, **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


def test_a_message_goes_on_without_another_opening(server: Served) -> None:
    talk = [*ASK, {"role": "assistant", "content": "A fish"}]
    whole = chat(server, messages=talk, temperature=0)
    again = chat(
        server, messages=talk, temperature=0, continue_final_message=True, add_generation_prompt=False
    )
    assert again["choices"] == whole["choices"]
    assert again["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]


def test_a_random_seed_and_an_order_of_samplers(server: Served) -> None:
    hot = {"temperature": 1.9, "max_tokens": 24, "verbose": True}
    texts = {
        chat(server, seed=-1, top_k=0, top_p=1, min_p=0, **hot)["__verbose"]["content"] for _ in range(4)
    }
    assert len(texts) > 1, "-1 draws another seed each time"
    settings = chat(server, samplers=["top_k", "temperature"], **hot)["__verbose"]["generation_settings"]
    assert settings["samplers"] == ["top_k", "temperature"]


def test_unread_variables_of_the_template_are_warnings(server: Served) -> None:
    reply = server.post(CHAT, {**FREE, "chat_template_kwargs": {"enable_thinking": False}})
    assert reply.status_code == 200
    assert "enable_thinking" in reply.headers["warning"]


def test_text_parts_are_lines(server: Served) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    reply = server.post("/apply-template", {"messages": [{"role": "user", "content": parts}]})
    assert "one\ntwo" in reply.json()["prompt"]


def test_text_completions_have_a_native_reply(server: Served) -> None:
    body = {"prompt": "x", "max_tokens": 3, "ignore_eos": True, "verbose": True}
    native = server.post("/v1/completions", body).json()["__verbose"]
    assert (native["tokens_predicted"], native["stop_type"]) == (3, "limit")


def test_a_message_needs_no_length(server: Served) -> None:
    reply = server.post("/v1/messages", {"messages": ASK, "temperature": 0})
    assert (reply.status_code, reply.json()["stop_reason"]) == (200, "end_turn")


def test_raw_reasoning_stays_in_the_text(tmp_path: Path) -> None:
    with thinker(tmp_path) as running, saying(running, "<think>hm</think>yes"):
        apart, raw = (
            running.http.post(CHAT, json={"messages": ASK, "reasoning_format": name}).json()
            for name in ("auto", "none")
        )
    assert apart["choices"][0]["message"] == {
        "role": "assistant",
        "content": "yes",
        "reasoning_content": "hm",
    }
    assert raw["choices"][0]["message"] == {"role": "assistant", "content": "<think>hm</think>yes"}
