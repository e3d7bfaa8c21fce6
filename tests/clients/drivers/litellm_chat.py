"""litellm, in OpenAI's, Anthropic's and Ollama's dialects."""

from __future__ import annotations

import json
import sys
from typing import Any

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
    Answer,
    error_of,
    report,
)

DIALECTS = {"openai": OPENAI_URL, "anthropic": URL, "ollama_chat": URL}
DIALECT = sys.argv[1]
litellm.telemetry = False


def ask(model: str = MODEL, **more: Any) -> Any:
    return litellm.completion(
        model=f"{DIALECT}/{model}", api_base=DIALECTS[DIALECT], api_key=KEY, temperature=0,
        max_tokens=MAX_TOKENS, messages=[{"role": "user", "content": QUESTION}], num_retries=0, **more,
    )  # fmt: skip


def streamed(**more: Any) -> tuple[int, Any]:
    parts = list(ask(stream=True, stream_options={"include_usage": True}, **more))
    return len(parts), litellm.stream_chunk_builder(parts)


def call_of(reply: Any) -> list[Any]:
    function = reply.choices[0].message.tool_calls[0].function
    return [function.name, json.loads(function.arguments)]


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
if DIALECT != "ollama_chat":  # no choice of tools in Ollama's API
    forced: dict[str, Any] = {"tools": [TOOL], "tool_choice": CHOICE}
    found |= {"call": call_of(ask(**forced)), "streamed_call": call_of(streamed(**forced)[1])}
made = ask(response_format=Answer).choices[0].message.content
report(**found, schema=json.loads(made))
