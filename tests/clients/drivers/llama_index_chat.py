"""LlamaIndex, by its class for servers that speak OpenAI's API."""

from __future__ import annotations

from common import (
    CHOICE,
    CITIES,
    KEY,
    MAX_TOKENS,
    MODEL,
    OPENAI_URL,
    QUESTION,
    TOOL,
    UNKNOWN,
    Answer,
    error_of,
    report,
)  # fmt: skip
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

MESSAGES = [ChatMessage(role="user", content=QUESTION)]


def chat(model: str = MODEL, native_schemas: bool = False) -> OpenAILike:
    return OpenAILike(
        api_base=OPENAI_URL, api_key=KEY, model=model, temperature=0, max_tokens=MAX_TOKENS,
        is_chat_model=True, is_function_calling_model=True, max_retries=0,
        should_use_structured_outputs=native_schemas,
    )  # fmt: skip


whole = chat().chat(MESSAGES)
parts = list(chat().stream_chat(MESSAGES))
forced = {"tools": [TOOL], "tool_choice": CHOICE}
call = chat().get_tool_calls_from_response(chat().chat(MESSAGES, **forced))[0]
last = list(chat().stream_chat(MESSAGES, **forced))[-1]
streamed_call = chat().get_tool_calls_from_response(last)[0]
by_tool = chat().as_structured_llm(Answer)  # its stream drops the choice of the tool
by_schema = chat(native_schemas=True).as_structured_llm(Answer)
schema_parts = list(by_schema.stream_chat(MESSAGES))
assert call.tool_kwargs["city"] in CITIES
report(
    plain=whole.message.content,
    streamed="".join(part.delta or "" for part in parts),
    n_parts=len(parts),
    usage=[whole.raw.usage.prompt_tokens, whole.raw.usage.completion_tokens],
    call=[call.tool_name, call.tool_kwargs],
    streamed_call=[streamed_call.tool_name, streamed_call.tool_kwargs],
    called=by_tool.chat(MESSAGES).raw.model_dump(),
    schema=by_schema.chat(MESSAGES).raw.model_dump(),
    streamed_schema=schema_parts[-1].raw.model_dump(),
    n_schema_parts=len(schema_parts),
    error=error_of(lambda: chat(UNKNOWN).chat(MESSAGES)),
)
