"""POST /v1/responses through OpenAI's client: items, events, stored conversations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from tests.support.served_here import ServedHere, served_here

import camelid
from camelid.api.llm import LLM
from camelid.server.http.keys import KeyRing, plain_keys

ASK = "What is 12 plus 30?"
ADD: Any = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}
CALL = r'"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}</tool_call>"'


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(keys=KeyRing(plain_keys(["one", "two"]))) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: ServedHere) -> Iterator[openai.OpenAI]:
    with openai_client(served, "one") as made:
        yield made


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu") as loaded:
        yield loaded


def openai_client(served: ServedHere, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key=key, max_retries=0)


def create(client: openai.OpenAI, **fields: Any) -> Any:
    return client.responses.create(**{"model": "cria", "input": ASK, "temperature": 0, **fields})


def test_an_answer_is_the_librarys(client: openai.OpenAI, llm: LLM) -> None:
    found = create(
        client, instructions="Be brief.", metadata={"team": "red"}, temperature=1.5, extra_body={"seed": 3}
    )
    wanted = llm.chat(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK}],
        temperature=1.5,
        seed=3,
    )
    assert found.output_text == wanted.text
    assert found.status == "completed"
    assert found.usage.output_tokens == len(wanted.token_ids)
    assert found.usage.input_tokens == wanted.usage.prompt_tokens
    assert (found.metadata, found.instructions, found.temperature) == ({"team": "red"}, "Be brief.", 1.5)
    assert found.id.startswith("resp_")
    assert found.output[0].id.startswith("msg_")


def test_a_cut_answer_is_incomplete(client: openai.OpenAI) -> None:
    found = create(client, max_output_tokens=3)
    assert found.status == found.output[0].status == "incomplete"
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.usage.output_tokens == 3
    events = list(create(client, max_output_tokens=3, stream=True))
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == found.output_text


def test_events_come_in_the_official_order(client: openai.OpenAI) -> None:
    whole = create(client)
    events = list(create(client, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * len(deltas),
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event.delta for event in deltas) == whole.output_text
    first, last = events[0].response, events[-1].response
    assert (first.id, first.status, first.output) == (last.id, "in_progress", [])
    assert last.output_text == events[-4].text == whole.output_text
    assert {event.item_id for event in deltas} == {last.output[0].id}
    assert last.usage == whole.usage.model_copy(
        update={"input_tokens_details": last.usage.input_tokens_details}
    )


def test_a_conversation_continues(client: openai.OpenAI, llm: LLM) -> None:
    first = create(client, instructions="Be brief.")
    second = create(client, input="And 2 plus 5?", previous_response_id=first.id)
    wanted = llm.chat(
        [
            {"role": "user", "content": ASK},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "And 2 plus 5?"},
        ],
        temperature=0.0,
    )
    assert second.output_text == wanted.text  # the instructions were the first turn's alone
    third = create(client, input="And 1 plus 1?", previous_response_id=second.id)
    n_before = second.usage.input_tokens + second.usage.output_tokens
    assert n_before - 2 <= third.usage.input_tokens_details.cached_tokens <= n_before
    twin = create(client, input="And 1 plus 1?", previous_response_id=second.id)
    assert twin.output_text == third.output_text  # a turn may be continued twice


def test_the_drawn_token_ids_are_kept(served: ServedHere, client: openai.OpenAI, llm: LLM) -> None:
    """Letter by letter, as the grammar demands, the text has other token ids than `encode` gives it."""
    letters = "root ::= " + " ".join(f'"{c}" ""' for c in "once upon a time")
    ids = [llm.tokenizer.encode(c)[-1] for c in "once upon a time"]
    bias = {str(i): 50 for i in ids}
    first = create(client, extra_body={"grammar": letters, "logit_bias": bias})
    assert first.output_text == "once upon a time"
    assert first.usage.output_tokens > len(llm.tokenizer.encode("once upon a time"))
    second = create(client, input="Go on.", previous_response_id=first.id)
    n_before = first.usage.input_tokens + first.usage.output_tokens
    assert second.usage.input_tokens_details.cached_tokens >= n_before - 2


def test_keys_do_not_share_responses(served: ServedHere, client: openai.OpenAI) -> None:
    found = create(client)
    assert client.responses.retrieve(found.id).output_text == found.output_text
    other = openai_client(served, "two")
    for call in (
        lambda: other.responses.retrieve(found.id),
        lambda: other.responses.delete(found.id),
        lambda: other.responses.cancel(found.id),
        lambda: other.responses.input_items.list(found.id),
        lambda: create(other, previous_response_id=found.id),
    ):
        with pytest.raises(openai.NotFoundError):
            call()
    assert client.responses.retrieve(found.id).id == found.id


def test_a_response_is_deleted_or_never_stored(client: openai.OpenAI) -> None:
    found = create(client)
    client.responses.delete(found.id)
    for id in (found.id, create(client, store=False).id, "resp_none", "x" * 300):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(id)
        with pytest.raises(openai.NotFoundError):
            create(client, previous_response_id=id)


def test_input_items_are_listed_by_pages(client: openai.OpenAI) -> None:
    items: Any = [{"role": "user", "content": f"{i}"} for i in range(5)]
    found = create(client, input=items, max_output_tokens=2)
    latest: Any = client.responses.input_items.list(found.id)
    assert [item.content for item in latest.data] == ["4", "3", "2", "1", "0"]
    pages: Any = client.responses.input_items.list(found.id, order="asc", limit=2)
    assert [item.content for item in pages] == ["0", "1", "2", "3", "4"]  # the client follows `after`
    with pytest.raises(openai.BadRequestError):
        client.responses.input_items.list(found.id, limit=101)
    with pytest.raises(openai.BadRequestError):
        client.responses.input_items.list(found.id, after="msg_none")


def test_nothing_is_cancelled_or_in_the_background(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(create(client).id)
    with pytest.raises(openai.BadRequestError, match="background"):
        create(client, background=True)


def test_a_tool_call_and_its_result(client: openai.OpenAI, llm: LLM) -> None:
    body = {"grammar": f'root ::= "Let me see. " {CALL}'}
    first = create(client, tools=[ADD], extra_body=body)
    message, call = first.output
    assert (message.type, message.content[0].text) == ("message", "Let me see. ".rstrip())
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 1, "b": 2})
    assert call.id.startswith("fc_") and call.id != call.call_id
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
    by_id = create(client, input=[result], previous_response_id=first.id, tools=[ADD])
    # The same conversation, sent back whole, as clients without stored responses do.
    sent = [
        {"role": "user", "content": ASK},
        *(item.model_dump(exclude_none=True) for item in first.output),
        result,
    ]
    by_items = create(client, input=sent, tools=[ADD], store=False)
    assert by_id.output_text == by_items.output_text
    assert by_id.usage.input_tokens == pytest.approx(by_items.usage.input_tokens, abs=3)
    tool = {"type": "function", "function": {name: ADD[name] for name in ADD if name != "type"}}
    function = {"name": "add", "arguments": call.arguments}
    wanted = llm.chat(
        [
            {"role": "user", "content": ASK},
            {
                "role": "assistant",
                "content": message.content[0].text,
                "tool_calls": [{"id": call.call_id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call.call_id, "content": "3"},
        ],
        tools=[tool], temperature=0.0,
    )  # fmt: skip
    assert by_items.output_text == wanted.text
    assert by_items.usage.input_tokens == wanted.usage.prompt_tokens


def test_a_streamed_call_joins_to_its_arguments(client: openai.OpenAI) -> None:
    body = {"grammar": f'root ::= "Well. " {CALL} {CALL}'}
    with client.responses.stream(
        model="cria", input=ASK, tools=[ADD], temperature=0, extra_body=body
    ) as stream:
        events: list[Any] = list(stream)
        final: Any = stream.get_final_response()
    assert [item.type for item in final.output] == ["message", "function_call", "function_call"]
    for item in final.output[1:]:
        own = [e for e in events if getattr(e, "item_id", None) == item.id]
        deltas = [e.delta for e in own if e.type == "response.function_call_arguments.delta"]
        done = [e for e in own if e.type == "response.function_call_arguments.done"]
        assert "".join(deltas) == done[0].arguments == item.arguments == '{"a": 1, "b": 2}'
    order = [e.output_index for e in events if e.type == "response.output_item.done"]
    assert order == [0, 1, 2]


def test_a_call_that_is_cut_is_incomplete(client: openai.OpenAI) -> None:
    body = {"grammar": f"root ::= {CALL}"}
    whole = create(client, tools=[ADD], extra_body=body)
    n = whole.usage.output_tokens - 12
    found = create(client, tools=[ADD], max_output_tokens=n, extra_body=body)
    assert (found.status, found.output[-1].type) == ("incomplete", "function_call")
    assert found.output[-1].status == "incomplete"
    create(client, input="Go on.", previous_response_id=found.id)  # its arguments are no JSON


class Sum(BaseModel):
    left: int
    right: int


def test_parse_returns_the_model(client: openai.OpenAI) -> None:
    for _ in range(2):  # also from a conversation that is sent back
        found = client.responses.parse(model="cria", input=ASK, text_format=Sum, max_output_tokens=60)
        assert isinstance(found.output_parsed, Sum)
    sent: Any = [{"role": "user", "content": ASK}, *found.output, {"role": "user", "content": "Again."}]
    assert client.responses.parse(
        model="cria", input=sent, text_format=Sum, max_output_tokens=60
    ).output_parsed
    json.loads(create(client, text={"format": {"type": "json_object"}}, max_output_tokens=200).output_text)


def test_log_probabilities_are_the_librarys(client: openai.OpenAI, llm: LLM) -> None:
    found = create(client, top_logprobs=2)
    entries = found.output[0].content[0].logprobs
    events = list(llm.stream([{"role": "user", "content": ASK}], temperature=0.0, logprobs=2))
    assert [entry.logprob for entry in entries] == [e.logprob for e in events if e.token_id is not None]
    assert "".join(entry.token for entry in entries) == found.output_text
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    streamed = create(client, stream=True, include=["message.output_text.logprobs"])
    deltas = [e for e in streamed if e.type == "response.output_text.delta"]
    assert [p.logprob for e in deltas for p in e.logprobs] == [entry.logprob for entry in entries]


def test_input_tokens_are_those_of_the_answer(client: openai.OpenAI) -> None:
    cases: tuple[Any, ...] = ({}, {"instructions": "Be brief."}, {"tools": [ADD]})
    for more in cases:
        count = client.responses.input_tokens.count(model="cria", input=ASK, **more)
        assert count.input_tokens == create(client, max_output_tokens=1, **more).usage.input_tokens


def test_the_parts_of_a_message_are_lines_of_its_text(client: openai.OpenAI) -> None:
    parts: Any = [{"type": "input_text", "text": text} for text in ("What is", "12 plus 30?")]
    counts = [
        client.responses.input_tokens.count(model="cria", input=[{"role": "user", "content": content}])
        for content in (parts, "What is\n12 plus 30?")
    ]
    assert counts[0].input_tokens == counts[1].input_tokens


def test_obfuscation_pads_deltas(client: openai.OpenAI) -> None:
    events = list(create(client, stream=True, stream_options={"include_obfuscation": True}))
    assert all(hasattr(e, "obfuscation") == e.type.endswith(".delta") for e in events)


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"input": None}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": [{"type": "computer_call_output"}]}, 400, "input[0]"),
        ({"input": [{"role": "tool", "content": "x"}]}, 400, "input[0].role"),
        ({"input": [{"role": "user"}]}, 400, "input[0]"),
        ({"input": [{"role": "user", "content": None}]}, 400, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": None}]}]}, 400,
            "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, 400, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}, 501,
            "input"),
        ({"input": [{"role": "user", "content": "x", "nonsense": 1}]}, 400, "input[0].nonsense"),
        ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]}, 400, None),
        ({"tools": [{"type": "web_search"}]}, 400, "tools[0]"),
        ({"tool_choice": {"type": "file_search"}}, 400, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
            {"type": "function", "name": "sub"}]}, "tools": [ADD]}, 400, "tool_choice"),
        ({"truncation": "auto"}, 400, "truncation"),
        ({"text": {"format": {"type": "xml"}}}, 400, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "nothing"}}}}, 400,
            "text.format"),
        ({"reasoning": {"effort": "high"}}, 400, "reasoning.effort"),
        ({"max_output_tokens": 0}, 400, "max_output_tokens"),
        ({"top_logprobs": 21}, 400, "top_logprobs"),
        ({"conversation": "c"}, 400, "conversation"),
    ],
)  # fmt: skip
def test_a_bad_field_is_named(
    served: ServedHere, change: dict[str, Any], status: int, param: str | None
) -> None:
    body = {"input": ASK, "max_output_tokens": 2, **change}
    served.wait_idle()  # of the answers before, whose last steps may still run
    reply = served.http.post("/v1/responses", json=body, headers={"authorization": "Bearer one"})
    assert reply.status_code == status, reply.text
    assert param is None or reply.json()["error"]["param"] == param
    assert served.is_idle
