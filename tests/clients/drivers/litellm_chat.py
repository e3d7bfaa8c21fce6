"""litellm, in OpenAI's, Anthropic's and Ollama's dialects."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import asks for a file of the network

import litellm
from common import (
    CHOICE,
    KEY,
    MAX_TOKENS,
    MODEL,
    OPENAI_URL,
    QUESTION,
    TOOL,
    UNKNOWN,
    URL,
    WEATHER_QUESTION,
    Answer,
    error_of,
    report,
)

DIALECTS = {"openai": OPENAI_URL, "anthropic": URL, "ollama_chat": URL}
DIALECT = sys.argv[1]
litellm.telemetry, litellm.suppress_debug_info = False, True


def ask(model: str = MODEL, question: str = QUESTION, **more: Any) -> Any:
    return litellm.completion(
        model=f"{DIALECT}/{model}", api_base=DIALECTS[DIALECT], api_key=KEY, temperature=0,
        max_tokens=MAX_TOKENS, messages=[{"role": "user", "content": question}], num_retries=0, **more,
    )  # fmt: skip


def streamed(**more: Any) -> tuple[int, Any]:
    parts = list(ask(stream=True, stream_options={"include_usage": True}, **more))
    return len(parts), litellm.stream_chunk_builder(parts)


def call_of(reply: Any) -> list[Any]:
    function = reply.choices[0].message.tool_calls[0].function
    return [function.name, json.loads(function.arguments)]


def answer_of(reply: Any) -> Any:
    return json.loads(reply.choices[0].message.content)


def counts(reply: Any) -> list[int]:
    return [reply.usage.prompt_tokens, reply.usage.completion_tokens]


whole, (n_parts, joined) = ask(), streamed()
found: dict[str, Any] = {
    "plain": whole.choices[0].message.content,
    "streamed": joined.choices[0].message.content,
    "n_parts": n_parts,
    "usage": counts(whole),
    "streamed_usage": counts(joined),
    "error": error_of(lambda: ask(UNKNOWN)),
}
calling: dict[str, Any] = {"tools": [TOOL], "question": WEATHER_QUESTION}
if DIALECT != "ollama_chat":  # no choice of tools in Ollama's API
    calling["tool_choice"] = CHOICE
found |= {"call": call_of(ask(**calling)), "streamed_call": call_of(streamed(**calling)[1])}
schema = answer_of(ask(response_format=Answer))
n_schema_parts, joined = streamed(response_format=Answer)
report(**found, schema=schema, streamed_schema=answer_of(joined), n_schema_parts=n_schema_parts)
