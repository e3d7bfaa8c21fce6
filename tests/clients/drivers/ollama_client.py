"""Ollama's own client. Its API has no choice of tools: the model chooses to call."""

from __future__ import annotations

import json
from typing import Any

from common import (
    MAX_TOKENS,
    MODEL,
    QUESTION,
    SCHEMA,
    TOOL,
    UNKNOWN,
    URL,
    WEATHER_QUESTION,
    error_of,
    report,
)
from ollama import Client

client = Client(host=URL)


def ask(question: str = QUESTION, model: str = MODEL, **more: Any) -> Any:
    return client.chat(
        model, [{"role": "user", "content": question}],
        options={"temperature": 0, "num_predict": MAX_TOKENS}, **more,
    )  # fmt: skip


def text_of(parts: list[Any]) -> str:
    return "".join(part.message.content or "" for part in parts)


def call_of(parts: list[Any]) -> list[Any]:
    (call,) = (call for part in parts for call in part.message.tool_calls or ())
    return [call.function.name, dict(call.function.arguments)]


def counts(reply: Any) -> list[int]:
    return [reply.prompt_eval_count, reply.eval_count]


whole, parts = ask(), list(ask(stream=True))
schema_parts = list(ask(format=SCHEMA, stream=True))
report(
    plain=text_of([whole]),
    streamed=text_of(parts),
    n_parts=len(parts),
    usage=counts(whole),
    streamed_usage=counts(parts[-1]),
    call=call_of([ask(WEATHER_QUESTION, tools=[TOOL])]),
    streamed_call=call_of(list(ask(WEATHER_QUESTION, tools=[TOOL], stream=True))),
    schema=json.loads(text_of([ask(format=SCHEMA)])),
    streamed_schema=json.loads(text_of(schema_parts)),
    n_schema_parts=len(schema_parts),
    error=error_of(lambda: ask(model=UNKNOWN)),
)
