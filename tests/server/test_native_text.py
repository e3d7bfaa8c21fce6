"""/tokenize, /detokenize, /apply-template, /infill, /props, and endpoints that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.served import Served, served

import camelid
from camelid.api.llm import LLM

ASK = [{"role": "user", "content": "hi"}]
OPENED = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu") as loaded:
        yield loaded


def post(server: Served, path: str, **fields: Any) -> Any:
    reply = server.post(path, fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("text", ["What is the capital of France ?", "a\n\n b", "wörld 媽 🤗", ""])
def test_tokens_are_the_librarys_and_come_back_as_text(server: Served, llm: LLM, text: str) -> None:
    token_ids = post(server, "/tokenize", content=text)["tokens"]
    assert token_ids == llm.tokenizer.encode(text, True)
    assert post(server, "/detokenize", tokens=token_ids)["content"] == text


def test_control_tokens_count_unless_told_otherwise(server: Served) -> None:
    assert post(server, "/tokenize", content="<|im_end|>")["tokens"] == [2]
    assert len(post(server, "/tokenize", content="<|im_end|>", parse_special=False)["tokens"]) > 1
    assert post(server, "/tokenize", content=[7, "<|im_end|>", 8])["tokens"] == [7, 2, 8]


def test_pieces_are_text_or_bytes(server: Served) -> None:
    content = "unicode 媽 and 🤗"
    pieces = post(server, "/tokenize", content=content, with_pieces=True)["tokens"]
    assert [each["id"] for each in pieces] == post(server, "/tokenize", content=content)["tokens"]
    data = [p if isinstance(p, list) else list(p.encode()) for p in (each["piece"] for each in pieces)]
    assert b"".join(map(bytes, data)).decode() == content
    assert any(isinstance(each["piece"], list) for each in pieces), "half a character is no text"


def test_a_template_is_applied(server: Served, llm: LLM) -> None:
    assert post(server, "/apply-template", messages=ASK)["prompt"] == OPENED
    closed = post(server, "/apply-template", messages=ASK, add_generation_prompt=False)["prompt"]
    assert closed == "<|im_start|>user\nhi<|im_end|>\n"
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    assert '"look"' in post(server, "/apply-template", messages=ASK, tools=[tool])["prompt"]
    n_tokens = len(llm.tokenizer.encode(OPENED, True))
    for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
        assert post(server, path, messages=ASK)["input_tokens"] == n_tokens


@pytest.mark.parametrize(
    "content", ["Whill", [{"type": "text", "text": "Wh"}, {"type": "text", "text": "ill"}]]
)
def test_a_last_message_of_the_assistant_is_continued(server: Served, content: Any) -> None:
    talk = [*ASK, {"role": "assistant", "content": content}]
    assert post(server, "/apply-template", messages=talk)["prompt"] == f"{OPENED}Whill"
    body = post(server, "/v1/chat/completions", messages=talk, max_tokens=3, verbose=True)
    assert body["__verbose"]["prompt"] == f"{OPENED}Whill"
    new = post(server, "/apply-template", messages=talk, continue_final_message=False)["prompt"]
    assert new == f"{OPENED}Whill<|im_end|>\n<|im_start|>assistant\n"


def test_continued_text_names_no_control_token(server: Served, llm: LLM) -> None:
    talk: Any = [*ASK, {"role": "assistant", "content": "<|im_end|>"}]
    request = llm.request(talk, continue_final_message=True)
    assert request.prompt_ids.count(2) == 1, "the end of the user's message alone"
    with pytest.raises(camelid.RequestError, match="last message"):
        llm.request(ASK, continue_final_message=True)  # type: ignore[arg-type]
    reply = server.post("/v1/chat/completions", {"messages": ASK, "continue_final_message": True})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "continue_final_message")


def test_chat_tells_progress_timings_and_its_native_reply(server: Served) -> None:
    talk = [{"role": "user", "content": "This is a test. " * 60}]
    body = {"messages": talk, "max_tokens": 10, "stream": True, "return_progress": True, "verbose": True}
    chunks = list(server.stream("/v1/chat/completions", {**body, "timings_per_token": True}))
    reports = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    first, *rest = chunks[
        len(reports) :
    ]  # the reports precede the answer, each with its role, as llama-server's
    assert all("prompt_progress" not in chunk for chunk in rest)
    for opening in chunks[: len(reports) + 1]:
        assert opening["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert "timings" not in first
    assert reports[0]["cache"] == reports[0]["processed"]
    assert reports[-1]["processed"] == reports[-1]["total"] > 200
    counts = [chunk["timings"]["predicted_n"] for chunk in rest[:-1]]
    assert counts == sorted(counts)
    assert counts[0] == 1
    native = rest[-1]["__verbose"]
    assert (native["tokens_predicted"], native["content"], native["tokens"]) == (counts[-1], "", [])


def test_infill_needs_a_model_with_its_tokens(server: Served) -> None:
    fields = {"input_prefix": "def f(", "input_suffix": "return x"}
    reply = server.post("/infill", fields)
    assert (reply.status_code, reply.json()["error"]["type"]) == (501, "not_supported_error")
    for extra in ({}, {"filename": "ok"}, {"filename": 1, "text": "a"}, {"filename": "ok", "text": 1}):
        assert server.post("/infill", {**fields, "input_extra": [extra]}).status_code == 400
    assert server.post("/infill", {"input_suffix": "x"}).status_code == 400


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_embeddings_are_checked_then_refused(server: Served, path: str) -> None:
    assert server.post(path, {"content": "text"}).status_code == 501
    assert server.post(path, {"content": [[1], "text"]}).status_code == 501
    assert server.post(path, {}).status_code == 400
    assert server.post(path, {"content": 5}).status_code == 400


def test_no_adapters_are_an_empty_list(server: Served) -> None:
    assert server.get("/lora-adapters").json() == []
    assert server.post("/lora-adapters", []).json() == {"success": True}
    assert server.post("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"}).status_code == 501


def test_props_tell_what_the_server_offers(server: Served) -> None:
    props = server.get("/props").json()
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (4, 1024)
    assert props["model_path"] == Path(props["model_path"]).name == "cria.gguf"
    assert "im_start" in props["chat_template"]
    assert props["build_info"].startswith("b")
    assert (props["eos_token"], props["is_sleeping"]) == ("<|im_end|>", False)
    assert props["default_generation_settings"]["params"]["seed"] == 2**32 - 1
    refused = server.post("/props", {})
    assert (refused.status_code, refused.json()["error"]["type"]) == (501, "not_supported_error")


def test_props_and_slots_are_offered_as_started() -> None:
    with served("--backend", "cpu", "--props", "--no-slots") as server:
        assert server.post("/props", {}).json() == {"success": True}
        for path in ("/slots", "/slots/0"):
            reply = server.get(path)
            assert (reply.status_code, reply.json()["error"]["type"]) == (501, "not_supported_error")
        assert server.post("/slots/0?action=erase").status_code == 501, "no --slot-save-path"
