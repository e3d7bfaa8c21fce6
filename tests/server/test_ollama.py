"""Ollama's API by its own client: chat and generate, whole and streamed; tools; formats; models; refusals."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from tests.support.dialects import prompt_of, saying, thinker, thinker_library
from tests.support.served import Served, served
from tests.support.served_here import ServedHere, until

from camelid.api.llm import LLM
from camelid.server.fields.ollama import CHAT, EMBED, EMBEDDINGS, GENERATE, OPTIONS

ASK: list[Any] = [{"role": "user", "content": "What is 12 plus 30?"}]
# cria calls a tool on this question.
POWER: list[Any] = [{"role": "user", "content": "I would like to know the power of Moscow."}]
GREEDY = {"temperature": 0.0, "num_predict": 60}
CALL = '<tool_call>\n{"name": "power_rubber", "arguments": {"person": "Ö"}}\n</tool_call>'


def tool(name: str, about: str, argument: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


TOOLS = [
    tool("power_rubber", "Gives the power of the person", "person"),
    tool("this_century", "Gets the century of any dog", "dog"),
]


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[ollama.Client]:
    with ollama.Client(host=server.url) as opened:
        yield opened


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHere]:
    with thinker(tmp_path_factory.mktemp("model")) as served:
        yield served


@pytest.fixture(scope="module")
def llm(thinking: ServedHere) -> Iterator[LLM]:
    with thinker_library(thinking) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def thinker_client(thinking: ServedHere) -> Iterator[ollama.Client]:
    with ollama.Client(host=str(thinking.http.base_url)) as opened:
        yield opened


def test_every_field_of_the_client_is_honoured_or_refused() -> None:
    methods = {
        ollama.Client.chat: CHAT,
        ollama.Client.generate: GENERATE,
        ollama.Client.embed: EMBED,
        ollama.Client.embeddings: EMBEDDINGS,
    }
    for method, table in methods.items():
        names = set(inspect.signature(method).parameters) - {"self"}
        assert len(names) > 3
        assert names <= table.fields.keys() | table.refused.keys()
    assert ollama.Options.model_fields.keys() <= OPTIONS.fields.keys() | OPTIONS.refused.keys()


def test_an_answer_is_the_librarys(thinker_client: ollama.Client, llm: LLM) -> None:
    texts = set[str]()
    for seed in range(4):
        wanted = llm.chat(ASK, seed=seed, temperature=1.5, max_tokens=24)
        options = {"seed": seed, "temperature": 1.5, "num_predict": 24}
        done = thinker_client.chat("cria", ASK, options=options)
        assert done.message.content == wanted.text
        assert (done.done, done.done_reason) == (True, wanted.finish_reason)
        assert (done.prompt_eval_count, done.eval_count) == (
            wanted.usage.prompt_tokens,
            wanted.usage.completion_tokens,
        )
        *pieces, last = thinker_client.chat("cria", ASK, options=options, stream=True)
        assert "".join(piece.message.content or "" for piece in pieces) == wanted.text
        assert not any(piece.done for piece in pieces)
        assert (last.done_reason, last.message.content) == (wanted.finish_reason, "")
        made = thinker_client.generate("cria", ASK[0]["content"], options=options)
        assert (made.response, made.done_reason) == (wanted.text, wanted.finish_reason)
        streamed = thinker_client.generate("cria", ASK[0]["content"], options=options, stream=True)
        assert "".join(piece.response or "" for piece in streamed) == wanted.text
        texts.add(wanted.text)
    assert len(texts) == 4


def test_times_are_nanoseconds_and_lines_are_the_default(server: Served) -> None:
    with server.http.stream("POST", "/api/chat", json={"messages": ASK}) as reply:
        assert reply.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in reply.iter_lines()]
    last = lines[-1]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert 0 < last["eval_duration"] < last["total_duration"] < 60e9
    assert 0 <= last["load_duration"] < last["total_duration"]
    assert 0 < last["prompt_eval_duration"] < last["total_duration"]
    assert type(last["total_duration"]) is int
    assert last["created_at"].endswith("Z")


def calls_of(done: ollama.ChatResponse) -> list[ollama.Message.ToolCall]:
    return list(done.message.tool_calls or ())


def test_a_tool_is_called_and_its_result_read(client: ollama.Client) -> None:
    done = client.chat("cria", POWER, tools=TOOLS, options=GREEDY)
    (call,) = calls_of(done)
    assert (call.function.name, call.function.arguments) == ("power_rubber", {"person": "Moscow"})
    assert done.done_reason == "stop"
    pieces = list(client.chat("cria", POWER, tools=TOOLS, options=GREEDY, stream=True))
    (streamed,) = [call for piece in pieces for call in calls_of(piece)]
    assert streamed.function == call.function
    result = {"role": "tool", "tool_name": "power_rubber", "content": "The power is 7."}
    told = client.chat("cria", [*POWER, done.message, result], tools=TOOLS, options=GREEDY)
    assert "7" in (told.message.content or "")


def test_a_format_is_obeyed(client: ollama.Client) -> None:
    schema = {
        "type": "object", "properties": {"x": {"enum": ["a", "b"]}}, "required": ["x"],
        "additionalProperties": False,
    }  # fmt: skip
    done = client.chat("cria", ASK, format=schema)
    assert json.loads(done.message.content or "")["x"] in ("a", "b")
    made = client.generate("cria", ASK[0]["content"], format="json", options={"num_predict": 9})
    assert (made.response or "").startswith("{")  # 12 without a format


def test_thoughts_and_calls_are_apart(thinker_client: ollama.Client, thinking: ServedHere) -> None:
    with saying(thinking, f"<think>hm, so</think>Well.{CALL}"):
        done = thinker_client.chat("cria", ASK, think=True, tools=TOOLS)
        pieces = list(thinker_client.chat("cria", ASK, think=True, tools=TOOLS, stream=True))
        made = thinker_client.generate("cria", "x", think=True)
    assert (done.message.thinking, done.message.content) == ("hm, so", "Well.")
    (call,) = calls_of(done)
    assert call.function.arguments == {"person": "Ö"}
    assert "".join(piece.message.thinking or "" for piece in pieces) == "hm, so"
    assert "".join(piece.message.content or "" for piece in pieces) == "Well."
    assert [piece.message.tool_calls for piece in pieces if piece.message.tool_calls] == [[call]]
    assert (made.thinking, made.response) == ("hm, so", "Well.")


@pytest.mark.parametrize(("think", "end"), [(True, "start|>"), (False, "</think>"), ("low", "start|>")])
def test_think_is_the_templates_variable(thinking: ServedHere, think: Any, end: str) -> None:
    body = {"messages": ASK, "think": think, "stream": False}
    with saying(thinking, "Well."):
        assert prompt_of(thinking, "/api/chat", body).endswith(end)


def test_a_conversation_reaches_the_template(thinking: ServedHere) -> None:
    calls = [{"function": {"name": "add", "arguments": {"a": 1}}}]
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": calls},
        {"role": "tool", "tool_name": "add", "content": "3"},
    ]
    body = {"messages": messages, "stream": False, "options": {"num_predict": 1}}
    assert prompt_of(thinking, "/api/chat", body) == (
        '<|im_start|>system Be kind.<|im_end|><|im_start|>assistant <think>hm</think>add{"a": 1}<|im_end|>'
        "<|im_start|>tool 3<|im_end|><|im_start|>"
    )


def test_generate_takes_a_system_prompt_or_a_raw_one(thinking: ServedHere) -> None:
    body: Any = {"prompt": "<|im_start|>user x", "stream": False, "options": {"num_predict": 1}}
    assert prompt_of(thinking, "/api/generate", {**body, "raw": True}) == body["prompt"]
    assert prompt_of(thinking, "/api/generate", {**body, "prompt": "x", "system": "Be kind."}) == (
        "<|im_start|>system Be kind.<|im_end|><|im_start|>user x<|im_end|><|im_start|>"
    )


def test_a_suffix_is_filled_in_by_the_files_tokens(
    thinking: ServedHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = thinking.service
    roles = {"fim_pre_token_id": "a", "fim_suf_token_id": "b", "fim_mid_token_id": "c"}
    for role, text in roles.items():
        (token_id,) = service.builder.tokenizer.encode(text)
        monkeypatch.setitem(service.host.running.file.gguf.metadata, f"tokenizer.ggml.{role}", token_id)
    body = {"prompt": "1", "suffix": "2", "stream": False, "think": False, "options": {"num_predict": 1}}
    assert prompt_of(thinking, "/api/generate", body) == "a1b2c"


def test_log_probabilities_come_with_their_text(client: ollama.Client, server: Served) -> None:
    done = client.chat("cria", ASK, logprobs=True, top_logprobs=2, options=GREEDY)
    assert done.logprobs
    assert "".join(entry.token for entry in done.logprobs) == done.message.content
    assert all(len(entry.top_logprobs or ()) == 2 and entry.logprob <= 0 for entry in done.logprobs)
    pieces = client.chat("cria", ASK, logprobs=True, stream=True, options={**GREEDY, "stop": ["= 42"]})
    tokens = [entry.token for piece in pieces for entry in piece.logprobs or ()]
    whole = "".join(tokens)
    assert whole.startswith("12 + 30 = 42"), whole


def test_models_are_listed_and_shown(client: ollama.Client) -> None:
    (model,) = client.list().models
    assert (model.model, model.details and model.details.family) == ("cria:latest", "llama")
    assert model.details
    assert model.details.quantization_level == "Q8_0"
    assert model.size
    assert model.size > 3e6
    shown = client.show("cria")
    assert shown.modelinfo
    assert shown.modelinfo["llama.block_count"] == 4
    assert shown.modelinfo["tokenizer.ggml.tokens"] is None
    assert shown.capabilities == ["completion", "tools"]
    assert "temperature 0.0" in (shown.parameters or "")
    assert "<|im_start|>" in (shown.template or "")
    (held,) = client.ps().models
    assert held.context_length == 1024
    assert held.size
    assert held.size > 4e6
    assert held.size_vram == 0


def test_a_name_with_the_tag_latest_is_the_name(client: ollama.Client) -> None:
    assert client.chat("cria:latest", ASK, options=GREEDY).model == "cria:latest"
    with pytest.raises(ollama.ResponseError, match="does not exist") as caught:
        client.chat("cria:7b", ASK)
    assert caught.value.status_code == 404


def test_a_pull_succeeds_for_a_model_that_is_here_only(client: ollama.Client, server: Served) -> None:
    assert client.pull("cria:latest").status == "success"
    assert [step.status for step in client.pull("cria", stream=True)][-1] == "success"
    with pytest.raises(ollama.ResponseError, match="no model is fetched") as caught:
        client.pull("llama3")
    assert caught.value.status_code == 501
    assert server.get("/api/version").json()["version"].count(".") == 2


def test_requests_that_change_models_are_refused(client: ollama.Client, server: Served) -> None:
    changes = [
        lambda: client.push("cria"),
        lambda: client.create("x", from_="cria"),
        lambda: client.copy("cria", "x"),
        lambda: client.embed("cria", "text"),
        lambda: client.embeddings("cria", "text"),
    ]
    for change in changes:
        with pytest.raises(ollama.ResponseError) as caught:
            change()
        assert caught.value.status_code == 501
    reply = server.http.request("DELETE", "/api/delete", json={"model": "cria"})
    assert (reply.status_code, list(reply.json())) == (501, ["error"])


@pytest.mark.parametrize(
    ("path", "change", "status", "said_by"),
    [
        ("chat", {"options": {"num_ctx": 4096}}, 400, "context of 1024"),
        ("chat", {"options": {"num_gpu": 99}}, 400, "num_gpu"),
        ("chat", {"options": {"num_thread": 99}}, 400, "num_thread"),
        ("chat", {"options": {"num_predict": 0}}, 400, "num_predict"),
        ("chat", {"options": {"temperature": "hot"}}, 400, "temperature"),
        ("chat", {"think": True}, 400, "cannot think"),
        ("chat", {"format": "xml"}, 400, "format"),
        ("chat", {"format": {"type": "nothing"}}, 400, "nothing"),
        ("chat", {"keep_alive": "soon"}, 400, "keep_alive"),
        ("chat", {"top_logprobs": 2}, 400, "logprobs"),
        ("chat", {"truncate": True}, 400, "truncate"),
        ("chat", {"messages": [{"role": "user", "content": "a " * 5000}]}, 400, "1024"),
        ("chat", {"messages": [{"role": "user", "content": "a", "images": ["AA=="]}]}, 501, "image"),
        ("chat", {"messages": [{"role": "king", "content": "a"}]}, 400, "role"),
        ("generate", {"template": "{{ .Prompt }}"}, 400, "template"),
        ("generate", {"context": [1, 2]}, 400, "context"),
        ("generate", {"suffix": "end"}, 400, "fill-in-the-middle tokens"),
        ("generate", {"suffix": "end", "raw": True}, 400, "leave raw out"),
        ("generate", {"images": ["AA=="]}, 501, "image"),
        ("generate", {"raw": True, "system": "Be kind."}, 400, "system"),
        ("embed", {"prompt": None}, 400, "input"),
        ("embed", {"input": 3}, 400, "input"),
        ("embed", {"input": ["a", "b"]}, 501, "embedding"),
    ],
)
def test_a_bad_request_is_refused_by_name(
    server: Served, path: str, change: dict[str, Any], status: int, said_by: str
) -> None:
    body = {"messages": ASK} if path == "chat" else {"prompt": "the llama"} if path == "generate" else {}
    reply = server.post(f"/api/{path}", {**body, **change})
    assert reply.status_code == status, reply.text
    assert list(reply.json()) == ["error"]
    assert said_by in reply.json()["error"]


def test_options_that_change_nothing_are_allowed(server: Served) -> None:
    options = {"num_ctx": 512, "num_gpu": -1, "use_mlock": False, "num_keep": 4, "mirostat": 0, "odd": 1}
    reply = server.post("/api/chat", {"messages": ASK, "stream": False, "options": options})
    assert reply.status_code == 200, reply.text
    assert "'odd' is unknown" in reply.headers["warning"]
    assert "num_ctx has no effect: the model keeps its context of 1024" in reply.headers["warning"]


def test_the_servers_bound_of_an_answer_holds_without_num_predict() -> None:
    with served("--backend", "cpu", "-n", "3") as server:
        for options, n_tokens in (({}, 3), ({"num_predict": 5}, 5)):
            body = {"prompt": "A", "raw": True, "stream": False, "options": options}
            assert server.post("/api/generate", body).json()["eval_count"] == n_tokens


def test_an_error_after_the_first_byte_is_a_line(thinking: ServedHere) -> None:
    body = {"messages": ASK, "options": {"num_predict": 900, "temperature": 2}}
    with saying(thinking, "x" * 900), thinking.http.stream("POST", "/api/chat", json=body) as reply:
        lines = reply.iter_lines()
        next(lines)
        thinking.service.host.post(lambda driver: driver.engine.cancel_all())
        *_, last = lines
    assert list(json.loads(last)) == ["error"]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("path", ["chat", "generate"])
def test_a_client_that_leaves_frees_its_units(thinking: ServedHere, path: str, streams: bool) -> None:
    body = {"messages": ASK, "prompt": "x", "stream": streams}
    body = {name: body[name] for name in ("stream", "messages" if path == "chat" else "prompt")}
    data = json.dumps(body).encode()
    before = thinking.engine.counters.requests
    with saying(thinking, "x" * 900):
        connection = thinking.connect()
        head = f"POST /api/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        until(lambda: thinking.engine.counters.requests > before and thinking.engine.n_running > 0)
        connection.close()
        thinking.wait_idle()
