"""Anthropic's own client."""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic
from common import KEY, MAX_TOKENS, MODEL, QUESTION, UNKNOWN, URL, WEATHER, Answer, error_of, report

client = Anthropic(base_url=URL, api_key=KEY, max_retries=0)
BODY: dict[str, Any] = {
    "model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": MAX_TOKENS,
    "extra_body": {"temperature": 0},
}  # fmt: skip
TOOL = {"name": "weather", "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}
FORCED = BODY | {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "weather"}}


def streamed(**body: Any) -> tuple[int, Any]:
    with client.messages.stream(**body) as stream:
        return sum(1 for _ in stream), stream.get_final_message()


def text_of(reply: Any) -> str:
    return "".join(block.text for block in reply.content)


def call_of(reply: Any) -> list[Any]:
    (block,) = reply.content
    return [block.name, block.input]


def counts(reply: Any) -> list[int]:
    return [reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0), reply.usage.output_tokens]


whole, (n_parts, joined) = client.messages.create(**BODY), streamed(**BODY)
n_schema_parts, answer = streamed(**BODY, output_format=Answer)
report(
    plain=text_of(whole),
    streamed=text_of(joined),
    n_parts=n_parts,
    usage=counts(whole),
    streamed_usage=counts(joined),
    call=call_of(client.messages.create(**FORCED)),
    streamed_call=call_of(streamed(**FORCED)[1]),
    schema=client.messages.parse(**BODY, output_format=Answer).parsed_output.model_dump(),
    streamed_schema=answer.parsed_output.model_dump(),
    n_schema_parts=n_schema_parts,
    error=error_of(lambda: client.messages.create(**BODY | {"model": UNKNOWN})),
)
