"""OpenAI's own client: chat completions and responses."""

from __future__ import annotations

import json
from typing import Any

from common import (
    CHOICE,
    KEY,
    MAX_TOKENS,
    MODEL,
    OPENAI_URL,
    QUESTION,
    TOOL,
    UNKNOWN,
    WEATHER,
    Answer,
    error_of,
    report,
)
from openai import OpenAI

client = OpenAI(base_url=OPENAI_URL, api_key=KEY, max_retries=0)
CHAT: dict[str, Any] = {
    "model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0,
    "max_tokens": MAX_TOKENS,
}  # fmt: skip
FORCED: dict[str, Any] = CHAT | {"tools": [TOOL], "tool_choice": CHOICE}
RESPONSE: dict[str, Any] = {
    "model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": MAX_TOKENS,
}  # fmt: skip
FORCED_RESPONSE: dict[str, Any] = RESPONSE | {
    "tools": [{"type": "function", **WEATHER, "strict": True}],
    "tool_choice": {"type": "function", "name": "weather"},
}


def streamed(**body: Any) -> tuple[int, Any]:
    with client.chat.completions.stream(**body, stream_options={"include_usage": True}) as stream:
        return sum(1 for _ in stream), stream.get_final_completion()


def streamed_response(**body: Any) -> tuple[int, Any]:
    with client.responses.stream(**body) as stream:
        return sum(1 for _ in stream), stream.get_final_response()


def call_of(reply: Any) -> list[Any]:
    function = reply.choices[0].message.tool_calls[0].function
    return [function.name, json.loads(function.arguments)]


def call_of_response(reply: Any) -> list[Any]:
    return [reply.output[0].name, json.loads(reply.output[0].arguments)]


def counts(reply: Any) -> list[int]:
    return [reply.usage.prompt_tokens, reply.usage.completion_tokens]


whole, (n_parts, joined) = client.chat.completions.create(**CHAT), streamed(**CHAT)
parsed = client.chat.completions.parse(**CHAT, response_format=Answer)
n_schema_parts, answer = streamed(**CHAT, response_format=Answer)
n_response_parts, response = streamed_response(**RESPONSE)
_, answer_response = streamed_response(**RESPONSE, text_format=Answer)
report(
    plain=whole.choices[0].message.content,
    streamed=joined.choices[0].message.content,
    n_parts=n_parts,
    usage=counts(whole),
    streamed_usage=counts(joined),
    call=call_of(client.chat.completions.create(**FORCED)),
    streamed_call=call_of(streamed(**FORCED)[1]),
    schema=parsed.choices[0].message.parsed.model_dump(),
    streamed_schema=answer.choices[0].message.parsed.model_dump(),
    n_schema_parts=n_schema_parts,
    response=client.responses.create(**RESPONSE).output_text,
    streamed_response=response.output_text,
    n_response_parts=n_response_parts,
    response_usage=[response.usage.input_tokens, response.usage.output_tokens],
    response_call=call_of_response(client.responses.create(**FORCED_RESPONSE)),
    streamed_response_call=call_of_response(streamed_response(**FORCED_RESPONSE)[1]),
    response_schema=client.responses.parse(**RESPONSE, text_format=Answer).output_parsed.model_dump(),
    streamed_response_schema=answer_response.output_parsed.model_dump(),
    error=error_of(lambda: client.chat.completions.create(**CHAT | {"model": UNKNOWN})),
)
