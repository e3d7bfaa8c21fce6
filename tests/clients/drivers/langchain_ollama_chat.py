"""langchain-ollama. Ollama's API has no choice of tools: the model chooses to call."""

from __future__ import annotations

from common import (
    MAX_TOKENS,
    MODEL,
    QUESTION,
    SCHEMA,
    UNKNOWN,
    URL,
    WEATHER,
    WEATHER_QUESTION,
    Answer,
    error_of,
    report,
)
from langchain_ollama import ChatOllama


def chat(model: str = MODEL) -> ChatOllama:
    return ChatOllama(base_url=URL, model=model, temperature=0, num_predict=MAX_TOKENS)


whole = chat().invoke(QUESTION)
parts = list(chat().stream(QUESTION))
joined = parts[0]
for part in parts[1:]:
    joined += part
caller = chat().bind_tools([WEATHER])
call = caller.invoke(WEATHER_QUESTION).tool_calls[0]
streamed_call = next(part for part in caller.stream(WEATHER_QUESTION) if part.tool_calls).tool_calls[0]
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
    streamed_call=[streamed_call["name"], streamed_call["args"]],
    schema=by_class.invoke(QUESTION).model_dump(),
    streamed_schema=schema_parts[-1],
    n_schema_parts=len(schema_parts),
    error=error_of(lambda: chat(UNKNOWN).invoke(QUESTION)),
)
