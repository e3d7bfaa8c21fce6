"""instructor: objects by a tool call and by a schema, whole and in growing parts."""

from __future__ import annotations

from typing import Any

import instructor
from common import KEY, MAX_TOKENS, MODEL, OPENAI_URL, QUESTION, UNKNOWN, Answer, error_of, report
from openai import OpenAI

MESSAGES: Any = [{"role": "user", "content": QUESTION}]
OPTIONS: Any = {"messages": MESSAGES, "temperature": 0, "max_tokens": MAX_TOKENS, "max_retries": 1}


def client(mode: instructor.Mode) -> Any:
    return instructor.from_openai(OpenAI(base_url=OPENAI_URL, api_key=KEY, max_retries=0), mode=mode)


tools, schema = client(instructor.Mode.TOOLS), client(instructor.Mode.JSON_SCHEMA)
parts = list(tools.create_partial(model=MODEL, response_model=Answer, **OPTIONS))
schema_parts = list(schema.create_partial(model=MODEL, response_model=Answer, **OPTIONS))
report(
    called=tools.create(model=MODEL, response_model=Answer, **OPTIONS).model_dump(),
    streamed_called=parts[-1].model_dump(),
    schema=schema.create(model=MODEL, response_model=Answer, **OPTIONS).model_dump(),
    streamed_schema=schema_parts[-1].model_dump(),
    n_schema_parts=len(schema_parts),
    error=error_of(lambda: tools.create(model=UNKNOWN, response_model=Answer, **OPTIONS)),
)
