"""The command line and library `llm`, with this server as a model of its own settings file."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from common import (
    KEY,
    MAX_TOKENS,
    MODEL,
    OPENAI_URL,
    QUESTION,
    UNKNOWN,
    WEATHER,
    WEATHER_QUESTION,
    WEATHER_RESULT,
    Answer,
    error_of,
    report,
)

FOLDER = Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(FOLDER)
ROWS = [
    f"- model_id: {name}\n  model_name: {name}\n  api_base: {OPENAI_URL}\n"
    "  supports_schema: true\n  supports_tools: true\n"
    for name in (MODEL, UNKNOWN)
]
(FOLDER / "extra-openai-models.yaml").write_text("".join(ROWS))

import llm  # noqa: E402 - it reads the folder's name

# llm has no choice of tools: the model chooses to call.
TOOL = llm.Tool(WEATHER["name"], WEATHER["description"], WEATHER["parameters"], lambda city: WEATHER_RESULT)
OPTIONS = {"temperature": 0, "max_tokens": MAX_TOKENS, "key": KEY}
model = llm.get_model(MODEL)
whole = model.prompt(QUESTION, stream=False, **OPTIONS)
plain = whole.text()
parts = list(model.prompt(QUESTION, stream=True, **OPTIONS))
usage = whole.usage()


def call(stream: bool) -> list[Any]:
    made = model.prompt(WEATHER_QUESTION, stream=stream, tools=[TOOL], **OPTIONS).tool_calls()[0]
    return [made.name, made.arguments]


def told(stream: bool) -> str:
    """The answer after llm ran the tool."""
    options = {"temperature": 0, "max_tokens": MAX_TOKENS}
    return model.chain(WEATHER_QUESTION, stream=stream, tools=[TOOL], options=options, key=KEY).text()


schema_parts = list(model.prompt(QUESTION, stream=True, schema=Answer, **OPTIONS))
report(
    plain=plain,
    streamed="".join(parts),
    n_parts=len(parts),
    usage=[usage.input, usage.output],
    schema=json.loads(model.prompt(QUESTION, stream=False, schema=Answer, **OPTIONS).text()),
    streamed_schema=json.loads("".join(schema_parts)),
    n_schema_parts=len(schema_parts),
    call=call(stream=False),
    streamed_call=call(stream=True),
    told=told(stream=False),
    streamed_told=told(stream=True),
    error=error_of(lambda: llm.get_model(UNKNOWN).prompt(QUESTION, stream=False, **OPTIONS).text()),
)
