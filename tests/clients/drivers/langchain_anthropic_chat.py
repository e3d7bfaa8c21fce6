"""langchain-anthropic."""

from __future__ import annotations

from common import (
    KEY,
    MAX_TOKENS,
    MODEL,
    QUESTION,
    SCHEMA,
    UNKNOWN,
    URL,
    WEATHER,
    Answer,
    error_of,
    report,
)
from langchain_anthropic import ChatAnthropic


def chat(model: str = MODEL) -> ChatAnthropic:
    return ChatAnthropic(base_url=URL, api_key=KEY, model=model, temperature=0, max_tokens=MAX_TOKENS)


whole = chat().invoke(QUESTION)
parts = list(chat().stream(QUESTION))
joined = parts[0]
for part in parts[1:]:
    joined += part
caller = chat().bind_tools([WEATHER], tool_choice="weather")
call = caller.invoke(QUESTION).tool_calls[0]
calls = list(caller.stream(QUESTION))
streamed_call = calls[0]
for part in calls[1:]:
    streamed_call += part
by_tool = chat().with_structured_output(Answer)
by_schema = chat().with_structured_output(SCHEMA, method="json_schema")
schema_parts = list(by_schema.stream(QUESTION))
report(
    plain=whole.content,
    streamed=joined.text,
    n_parts=len(parts),
    usage=[whole.usage_metadata["input_tokens"], whole.usage_metadata["output_tokens"]],
    streamed_usage=[joined.usage_metadata["input_tokens"], joined.usage_metadata["output_tokens"]],
    call=[call["name"], call["args"]],
    streamed_call=[streamed_call.tool_calls[0]["name"], streamed_call.tool_calls[0]["args"]],
    called=by_tool.invoke(QUESTION).model_dump(),
    streamed_called=list(by_tool.stream(QUESTION))[-1].model_dump(),
    schema=by_schema.invoke(QUESTION),
    streamed_schema=schema_parts[-1],
    n_schema_parts=len(schema_parts),
    error=error_of(lambda: chat(UNKNOWN).invoke(QUESTION)),
)
