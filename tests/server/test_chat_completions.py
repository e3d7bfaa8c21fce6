"""POST /v1/chat/completions: the library's answers, whole and streamed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.served import Served

import camelid
from camelid.api.llm import LLM

ASK: list[Any] = [{"role": "user", "content": "What is 12 plus 30?"}]
PATH = "/v1/chat/completions"
WRONG: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "nothing"}}}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu") as loaded:
        yield loaded


def test_an_answer_is_the_librarys(server: Served, llm: LLM) -> None:
    for seed in range(4):
        wanted = llm.chat(ASK, seed=seed, temperature=1.5, max_tokens=24)
        body = {"messages": ASK, "seed": seed, "temperature": 1.5, "max_tokens": 24}
        reply = server.post(PATH, body).json()
        choice = reply["choices"][0]
        assert choice["message"]["content"] == wanted.text
        assert choice["finish_reason"] == wanted.finish_reason
        assert reply["usage"]["completion_tokens"] == len(wanted.token_ids)
        streamed = list(server.stream(PATH, {**body, "stream": True}))
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in streamed) == wanted.text
        assert streamed[-1]["choices"][0]["finish_reason"] == wanted.finish_reason


def test_a_stream_has_one_head_and_its_usage_last(server: Served) -> None:
    body = {"messages": ASK, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
    first, *chunks, last = server.stream(PATH, body)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert last["choices"] == []
    n_answer = last["usage"]["completion_tokens"]
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + n_answer
    assert n_answer >= len(chunks) - 1 > 4
    assert all(chunk["usage"] is None for chunk in chunks)
    heads = {(c["id"], c["created"], c["model"], c["system_fingerprint"]) for c in (first, *chunks, last)}
    assert len(heads) == 1
    assert first["system_fingerprint"].startswith("b")


def test_log_probabilities_are_the_librarys_bit_for_bit(server: Served, llm: LLM) -> None:
    body = {"messages": ASK, "logprobs": True, "top_logprobs": 3, "temperature": 0, "max_tokens": 8}
    content = server.post(PATH, body).json()["choices"][0]["logprobs"]["content"]
    events = list(llm.stream(ASK, logprobs=3, temperature=0.0, max_tokens=8))
    assert [entry["id"] for entry in content] == [event.token_id for event in events]
    assert [entry["logprob"] for entry in content] == [event.logprob for event in events]
    for entry, event in zip(content, events, strict=True):
        assert [(top["id"], top["logprob"]) for top in entry["top_logprobs"]] == list(event.top_logprobs)
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert math.exp(entry["logprob"]) <= 1


def test_choices_differ_and_share_their_prompt(server: Served) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me a story."}], "n": 4}
    body |= {"temperature": 2, "seed": 5, "max_tokens": 16, "top_k": 0, "top_p": 1, "min_p": 0}
    whole = server.post(PATH, body).json()
    texts = [choice["message"]["content"] for choice in whole["choices"]]
    assert len(set(texts)) > 1
    streamed = [""] * 4
    for chunk in server.stream(PATH, {**body, "stream": True}):
        for choice in chunk["choices"]:
            streamed[choice["index"]] += choice["delta"].get("content") or ""
    assert streamed == texts


def test_a_prompt_beyond_the_context_names_both_numbers(server: Served) -> None:
    reply = server.post(PATH, {"messages": [{"role": "user", "content": "a " * 5000}]})
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert (error["code"], error["type"]) == ("context_length_exceeded", "exceed_context_size_error")
    assert error["n_prompt_tokens"] > error["n_ctx"] == 1024


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": None}, 400, "messages"),
        ({"messages": [{"role": "user"}]}, 400, "messages"),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"temperature": 1e308}, 400, "temperature"),
        ({"n": True}, 400, "n"),
        ({"n": 17}, 400, "n"),
        ({"stop": ["x"] * 17}, 400, "stop"),
        ({"logit_bias": {"x": 1}}, 400, "logit_bias"),
        ({"top_logprobs": 3}, 400, "top_logprobs"),
        ({"store": True}, 400, "store"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 501, "messages"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": WRONG}}},
            400,
            "response_format",
        ),
        ({"json_schema": WRONG}, 400, "json_schema"),
        ({"grammar": "root ::= nowhere"}, 400, "grammar"),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": WRONG}}],
                "tool_choice": "required",
            },
            400,
            "tools",
        ),
    ],
)
def test_a_bad_field_is_named(server: Served, change: dict[str, Any], status: int, param: str) -> None:
    reply = server.post(PATH, {"messages": ASK, "max_tokens": 2, **change})
    assert reply.status_code == status, reply.text
    assert reply.json()["error"]["param"] == param


def test_an_unknown_field_is_a_warning(server: Served) -> None:
    reply = server.post(PATH, {"messages": ASK, "max_tokens": 2, "nonsense": 1})
    assert reply.status_code == 200
    assert "'nonsense' is unknown" in reply.headers["warning"]


def test_a_time_limit_ends_the_answer_and_keeps_its_text(server: Served) -> None:
    """llama.cpp's `t_max_predict_ms` counts from the first token, and ends at a new line."""
    for path, prompt in ((PATH, {"messages": ASK}), ("/v1/completions", {"prompt": "Hi"})):
        body = {**prompt, "grammar": 'root ::= "a\\n"{900}', "max_tokens": -1, "t_max_predict_ms": 1}
        reply = server.post(path, body)
        assert reply.status_code == 200, reply.text
        choice = reply.json()["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert choice["finish_reason"] == "length"
        assert 0 < len(text) < 1800


@pytest.mark.parametrize("field", [
    {"user": "u"}, {"metadata": {"a": "b"}}, {"safety_identifier": "s"}, {"prompt_cache_key": "k"},
])  # fmt: skip
def test_a_field_without_effect_is_warned_of(server: Served, field: dict[str, Any]) -> None:
    reply = server.post(PATH, {"messages": ASK, "max_tokens": 1, **field})
    assert reply.status_code == 200
    (name,) = field
    assert f"the field '{name}' has no effect" in reply.headers["warning"]


@pytest.mark.parametrize(("path", "prompt"), [
    (PATH, {"messages": ASK}), ("/v1/completions", {"prompt": "Hi"}), ("/v1/responses", {"input": "Hi"}),
])  # fmt: skip
def test_options_of_a_stream_need_a_stream(server: Served, path: str, prompt: dict[str, Any]) -> None:
    reply = server.post(path, {**prompt, "stream_options": {"include_obfuscation": False}})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "stream_options")


def test_inclusions_without_effect_are_warned_of(server: Served) -> None:
    include = ["reasoning.encrypted_content", "web_search_call.results"]
    reply = server.post("/v1/responses", {"input": "Hi", "max_output_tokens": 1, "include": include})
    assert reply.status_code == 200
    assert all(f"include {name} has no effect" in reply.headers["warning"] for name in include)
