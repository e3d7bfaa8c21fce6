"""langchain-openai."""

from __future__ import annotations

from common import (
    CHOICE,
    KEY,
    MAX_TOKENS,
    MODEL,
    OPENAI_URL,
    QUESTION,
    SCHEMA,
    TOOL,
    UNKNOWN,
    Answer,
    error_of,
    report,
)
from langchain_openai import ChatOpenAI


def chat(model: str = MODEL) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=OPENAI_URL, api_key=KEY, model=model, temperature=0, max_tokens=MAX_TOKENS,
        stream_usage=True,
    )  # fmt: skip


whole = chat().invoke(QUESTION)
parts = list(chat().stream(QUESTION))
joined = parts[0]
for part in parts[1:]:
    joined += part
caller = chat().bind_tools([TOOL], tool_choice=CHOICE)
call = caller.invoke(QUESTION).tool_calls[0]
calls = list(caller.stream(QUESTION))
streamed_call = calls[0]
for part in calls[1:]:
    streamed_call += part
by_class = chat().with_structured_output(Answer, method="json_schema")
by_schema = chat().with_structured_output(SCHEMA, method="json_schema")
schema_parts = list(by_schema.stream(QUESTION))
report(
    plain=whole.content,
    streamed=joined.content,
    n_parts=len(parts),
    usage=[whole.usage_metadata["input_tokens"], whole.usage_metadata["output_tokens"]],
    streamed_usage=[joined.usage_metadata["input_tokens"], joined.usage_metadata["output_tokens"]],
    call=[call["name"], call["args"]],
    streamed_call=[streamed_call.tool_calls[0]["name"], streamed_call.tool_calls[0]["args"]],
    schema=by_class.invoke(QUESTION).model_dump(),
    streamed_schema=schema_parts[-1],
    n_schema_parts=len(schema_parts),
    error=error_of(lambda: chat(UNKNOWN).invoke(QUESTION)),
)
