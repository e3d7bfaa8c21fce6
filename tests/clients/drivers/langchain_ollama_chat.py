"""langchain-ollama. Ollama's API has no choice of tools, so a call cannot be forced."""

from __future__ import annotations

from common import MAX_TOKENS, MODEL, QUESTION, UNKNOWN, URL, Answer, error_of, report
from langchain_ollama import ChatOllama


def chat(model: str = MODEL) -> ChatOllama:
    return ChatOllama(base_url=URL, model=model, temperature=0, num_predict=MAX_TOKENS)


whole = chat().invoke(QUESTION)
parts = list(chat().stream(QUESTION))
joined = parts[0]
for part in parts[1:]:
    joined += part
report(
    plain=whole.content,
    streamed=joined.content,
    n_parts=len(parts),
    usage=[whole.usage_metadata["input_tokens"], whole.usage_metadata["output_tokens"]],
    streamed_usage=[joined.usage_metadata["input_tokens"], joined.usage_metadata["output_tokens"]],
    schema=chat().with_structured_output(Answer, method="json_schema").invoke(QUESTION).model_dump(),
    error=error_of(lambda: chat(UNKNOWN).invoke(QUESTION)),
)
