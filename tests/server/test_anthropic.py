"""POST /v1/messages by Anthropic's own client: the library's answers, whole and streamed; tools; counts."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from tests.support.dialects import prompt_of, saying, thinker, thinker_library
from tests.support.served import Served
from tests.support.served_here import ServedHere, until

from camelid.api.llm import LLM
from camelid.server.faces.anthropic_prompt import tool_options
from camelid.server.fields.anthropic import COUNT, MESSAGES

ASK: list[Any] = [{"role": "user", "content": "What is 12 plus 30?"}]
ADD: Any = {
    "name": "power_rubber",
    "description": "Gives the power of the person",
    "input_schema": {"type": "object", "properties": {"person": {"type": "string"}}, "required": ["person"]},
}
CENTURY: Any = {
    "name": "this_century",
    "description": "Gets the century of any dog",
    "input_schema": {"type": "object", "properties": {"dog": {"type": "string"}}, "required": ["dog"]},
}
# cria calls a tool on this question.
POWER: list[Any] = [{"role": "user", "content": "I would like to know the power of Moscow."}]
PATH = "/v1/messages"
CALL = '<tool_call>\n{"name": "power_rubber", "arguments": {"person": "Ö"}}\n</tool_call>'


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as opened:
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
def thinker_client(thinking: ServedHere) -> Iterator[anthropic.Anthropic]:
    url = str(thinking.http.base_url)
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as opened:
        yield opened


def test_every_field_of_the_client_is_honoured_or_refused() -> None:
    create: Any = anthropic.types.message_create_params.MessageCreateParamsBase
    count: Any = anthropic.types.message_count_tokens_params.MessageCountTokensParams
    for params, table in ((create, MESSAGES), (count, COUNT)):
        names = set(typing.get_type_hints(params))
        assert len(names) > 8
        assert names <= table.fields.keys() | table.refused.keys()


def texts_of(message: anthropic.types.Message) -> list[str]:
    return [block.text for block in message.content if block.type == "text"]


def test_an_answer_is_the_librarys(thinker_client: anthropic.Anthropic, llm: LLM) -> None:
    texts = set[str]()
    for seed in range(4):
        wanted = llm.chat(ASK, seed=seed, temperature=1.0, top_k=0, max_tokens=24)
        body: Any = {"model": "cria", "max_tokens": 24, "messages": ASK}
        body["extra_body"] = {"seed": seed, "temperature": 1.0, "top_k": 0}
        message = thinker_client.messages.create(**body)
        assert texts_of(message) == [wanted.text]
        assert message.stop_reason == {"stop": "end_turn", "length": "max_tokens"}[wanted.finish_reason]
        assert message.usage.output_tokens == len(wanted.token_ids)
        with thinker_client.messages.stream(**body) as stream:
            assert "".join(stream.text_stream) == wanted.text
            final = stream.get_final_message()
        assert (texts_of(final), final.stop_reason) == ([wanted.text], message.stop_reason)
        assert final.usage.output_tokens == message.usage.output_tokens
        texts.add(wanted.text)
    assert len(texts) == 4


def test_usage_excludes_cached_tokens(client: anthropic.Anthropic) -> None:
    ask: Any = [{"role": "user", "content": "llama " * 200}]
    first = client.messages.create(model="cria", max_tokens=1, messages=ask).usage
    again = client.messages.create(model="cria", max_tokens=1, messages=ask).usage
    assert first.cache_read_input_tokens == 0
    assert again.cache_read_input_tokens
    assert again.cache_creation_input_tokens == 0
    assert again.input_tokens + again.cache_read_input_tokens == first.input_tokens
    counted = client.messages.count_tokens(model="cria", messages=ask)
    assert counted.input_tokens == first.input_tokens


def test_a_stream_has_the_events_of_anthropics_api(server: Served) -> None:
    body = {"max_tokens": 30, "messages": ASK, "stream": True, "temperature": 0}
    events = list(server.stream(PATH, body))
    kinds = [event["type"] for event in events]
    n_deltas = kinds.count("content_block_delta")
    deltas = ["content_block_delta"] * n_deltas
    assert n_deltas > 4
    assert kinds == [
        "message_start", "ping", "content_block_start", *deltas, "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    with server.http.stream("POST", PATH, json=body) as reply:
        names = [line.removeprefix("event: ") for line in reply.iter_lines() if line.startswith("event: ")]
    assert names == kinds
    assert events[0]["message"]["content"] == []
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


def test_the_stop_sequence_that_matched_is_told(client: anthropic.Anthropic) -> None:
    options: Any = {"model": "cria", "max_tokens": 30, "messages": ASK, "extra_body": {"temperature": 0}}
    done = client.messages.create(**options, stop_sequences=["never", "= 4"])
    assert (done.stop_reason, done.stop_sequence) == ("stop_sequence", "= 4")
    assert texts_of(done) == ["12 + 30 "]
    with client.messages.stream(**options, stop_sequences=["never", "= 4"]) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", "= 4")
    assert texts_of(final) == texts_of(done)


def test_an_answer_ends_at_the_context(client: anthropic.Anthropic) -> None:
    ask: Any = [{"role": "user", "content": "a " * 480}]
    done = client.messages.create(
        model="cria", max_tokens=4000, messages=ask, extra_body={"ignore_eos": True}
    )
    assert done.stop_reason == "model_context_window_exceeded"
    usage = done.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) + usage.output_tokens == 1024


def test_a_tool_is_called_and_its_result_read(client: anthropic.Anthropic) -> None:
    options: Any = {
        "model": "cria", "max_tokens": 60, "tools": [ADD, CENTURY], "extra_body": {"temperature": 0}
    }  # fmt: skip
    done = client.messages.create(messages=POWER, **options)
    (call,) = done.content
    assert call.type == "tool_use"
    assert (call.name, call.input, done.stop_reason) == ("power_rubber", {"person": "Moscow"}, "tool_use")
    with client.messages.stream(messages=POWER, **options) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        (streamed,) = stream.get_final_message().content
    assert len(pieces) > 1
    assert streamed.type == "tool_use"
    assert (streamed.name, streamed.input) == (call.name, call.input)
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "The power is 7."}
    answer: Any = {"role": "assistant", "content": done.content}
    told = client.messages.create(messages=[*POWER, answer, {"role": "user", "content": [result]}], **options)
    (text,) = told.content
    assert text.type == "text"
    assert "7" in text.text


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"type": "any", "disable_parallel_tool_use": True}, {"power_rubber", "this_century"}),
        ({"type": "tool", "name": "this_century", "disable_parallel_tool_use": True}, {"this_century"}),
        ({"type": "none"}, set()),
    ],
    ids=["any", "tool", "none"],
)
def test_a_choice_of_tools_is_enforced(client: anthropic.Anthropic, choice: Any, names: set[str]) -> None:
    done = client.messages.create(
        model="cria", max_tokens=200, messages=POWER, tools=[ADD, CENTURY], tool_choice=choice,
        extra_body={"temperature": 0, "seed": 1},
    )  # fmt: skip
    calls = [block.name for block in done.content if block.type == "tool_use"]
    assert len(calls) == bool(names)
    assert set(calls) <= names
    assert done.stop_reason == ("tool_use" if names else "end_turn")


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (None, {}),
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        ({"type": "tool", "name": "x"}, {"tool_choice": {"type": "function", "function": {"name": "x"}}}),
    ],
)
def test_a_choice_becomes_the_librarys_options(choice: Any, wanted: dict[str, Any]) -> None:
    options = tool_options({"tools": [ADD], "tool_choice": choice})
    (tool,) = options.pop("tools")
    assert tool["function"]["parameters"] == ADD["input_schema"]
    assert options == wanted
    strict = tool_options({"tools": [{**ADD, "strict": True}], "tool_choice": choice})
    assert {key: strict[key] for key in strict if key != "tools"} == (wanted or {"tool_choice": "auto"})


def test_an_output_format_is_obeyed(client: anthropic.Anthropic) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": ["a", "b"]}}, "required": ["x"]}
    config: Any = {"format": {"type": "json_schema", "schema": {**schema, "additionalProperties": False}}}
    done = client.messages.create(model="cria", max_tokens=60, messages=ASK, output_config=config)
    (block,) = done.content
    assert block.type == "text"
    assert json.loads(block.text)["x"] in ("a", "b")


@pytest.mark.parametrize("shown", [True, False])
def test_thoughts_and_calls_are_blocks_in_order(
    thinker_client: anthropic.Anthropic, thinking: ServedHere, shown: bool
) -> None:
    options: Any = {"model": "cria", "max_tokens": 1500, "messages": ASK, "tools": [ADD]}
    options["thinking"] = {"type": "adaptive", "display": "summarized" if shown else "omitted"}
    with saying(thinking, f"<think>hm, so</think>Well.{CALL}"):
        done = thinker_client.messages.create(**options)
        with thinker_client.messages.stream(**options) as stream:
            signatures = [event.signature for event in stream if event.type == "signature"]
            final = stream.get_final_message()
    thought, text, call = done.content
    assert (thought.type, text.type, call.type) == ("thinking", "text", "tool_use")
    assert (thought.thinking, thought.signature) == ("hm, so" if shown else "", "")
    assert (text.text, call.input, done.stop_reason) == ("Well.", {"person": "Ö"}, "tool_use")
    assert signatures == [""]
    for streamed, whole in zip(final.content, done.content, strict=True):
        assert streamed.model_dump(exclude={"id"}) == whole.model_dump(exclude={"id"})


def test_a_call_that_is_cut_off_is_left_out(
    thinker_client: anthropic.Anthropic, thinking: ServedHere
) -> None:
    with saying(thinking, CALL):
        done = thinker_client.messages.create(model="cria", max_tokens=55, messages=ASK, tools=[ADD])
    assert (done.content, done.stop_reason) == ([], "max_tokens")


def test_a_conversation_in_blocks_reaches_the_template(thinking: ServedHere) -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    error = {"type": "tool_result", "tool_use_id": "t1", "is_error": True}
    body: Any = {
        "max_tokens": 1,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cch=1f2e;"},
            {"type": "text", "text": "Be kind.", **cached},
        ],
        "messages": [
            {"role": "user", "content": "one"},
            {"role": "user", "content": [{"type": "text", "text": "two", **cached}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "redacted_thinking", "data": "AAAA"},
                    {"type": "text", "text": "three"},
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {**error, "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}]},
                    {"type": "text", "text": "four"},
                ],
            },
        ],
    }
    assert prompt_of(thinking, PATH, body) == (
        "<|im_start|>system Be kind.<|im_end|><|im_start|>user one\ntwo<|im_end|>"
        '<|im_start|>assistant <think>hm</think>threeadd{"a": 1}<|im_end|>'
        "<|im_start|>tool Error: no\nway<|im_end|><|im_start|>user four<|im_end|><|im_start|>"
    )


def test_a_billing_line_does_not_change_the_prompt(thinking: ServedHere) -> None:
    body: Any = {"max_tokens": 1, "messages": ASK}
    prompts = {
        prompt_of(thinking, PATH, {**body, "system": f"x-anthropic-billing-header: cch={i};\nBe kind."})
        for i in range(2)
    }
    (prompt,) = prompts
    assert prompt.startswith("<|im_start|>system Be kind.<|im_end|>")
    only = prompt_of(thinking, PATH, {**body, "system": "x-anthropic-billing-header: cch=1;"})
    assert only == prompt_of(thinking, PATH, body)


@pytest.mark.parametrize(
    ("thinking_field", "end"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, "<|im_start|>"),
        ({"type": "disabled"}, "<|im_start|><think></think>"),
        ({"type": "adaptive"}, "<|im_start|>"),
    ],
    ids=["enabled", "disabled", "adaptive"],
)
def test_thinking_is_the_templates_variable(thinking: ServedHere, thinking_field: Any, end: str) -> None:
    body = {"max_tokens": 2000, "messages": ASK, "thinking": thinking_field}
    with saying(thinking, "Well."):
        assert prompt_of(thinking, PATH, body).endswith(f"30?<|im_end|>{end}")


def test_a_count_is_the_tokens_that_messages_use(
    thinker_client: anthropic.Anthropic, thinking: ServedHere
) -> None:
    body: Any = {
        "model": "cria", "messages": ASK, "tools": [ADD], "system": "Be kind.",
        "thinking": {"type": "disabled"}, "tool_choice": {"type": "any"},
    }  # fmt: skip
    counted = thinker_client.messages.count_tokens(**body)
    body["tool_choice"] = {"type": "none"}
    used = thinker_client.messages.create(max_tokens=1, **body)
    assert counted.input_tokens == used.usage.input_tokens + (used.usage.cache_read_input_tokens or 0)
    plain = thinker_client.messages.count_tokens(model="cria", messages=ASK)
    assert plain.input_tokens < counted.input_tokens


def test_the_client_raises_its_own_errors(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(model="cria", max_tokens=-1, messages=ASK)


def test_an_error_after_the_first_byte_is_an_event(thinking: ServedHere) -> None:
    body = {"max_tokens": 900, "messages": ASK, "stream": True, "ignore_eos": True}
    with thinking.http.stream("POST", PATH, json=body) as reply:
        lines = reply.iter_lines()
        until(lambda: "content_block_delta" in next(lines))
        thinking.service.host.post(lambda driver: driver.engine.cancel_all())
        rest = list(lines)
    at = rest.index("event: error")
    error = json.loads(rest[at + 1].removeprefix("data: "))
    assert error["error"]["type"] == "overloaded_error"
    assert error["request_id"] == reply.headers["x-request-id"]


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_leaves_frees_its_units(thinking: ServedHere, streams: bool) -> None:
    body = {"max_tokens": 900, "messages": ASK, "stream": streams, "ignore_eos": True}
    data = json.dumps(body).encode()
    before = thinking.engine.counters.requests
    connection = thinking.connect()
    connection.sendall(
        f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
    )
    until(lambda: thinking.engine.counters.requests > before and thinking.engine.n_running > 0)
    connection.close()
    thinking.wait_idle()
