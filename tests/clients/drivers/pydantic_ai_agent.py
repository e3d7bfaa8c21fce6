"""pydantic-ai: agents on OpenAI's and on Anthropic's API."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from common import KEY, MAX_TOKENS, MODEL, OPENAI_URL, QUESTION, UNKNOWN, URL, Answer, report
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

SETTINGS: Any = {"temperature": 0.0, "max_tokens": MAX_TOKENS}


def model(name: str = MODEL) -> Any:
    if sys.argv[1] == "openai":
        return OpenAIChatModel(name, provider=OpenAIProvider(base_url=OPENAI_URL, api_key=KEY))
    return AnthropicModel(name, provider=AnthropicProvider(base_url=URL, api_key=KEY))


async def streamed() -> list[str]:
    async with Agent(model(), model_settings=SETTINGS).run_stream(QUESTION) as result:
        return [part async for part in result.stream_text(delta=True, debounce_by=None)]


async def streamed_answer() -> dict[str, Any]:
    agent = Agent(model(), output_type=ToolOutput(Answer), model_settings=SETTINGS)
    async with agent.run_stream(QUESTION) as result:
        return (await result.get_output()).model_dump()


async def error() -> str:
    try:
        await Agent(model(UNKNOWN)).run(QUESTION)
    except Exception as found:
        return type(found).__name__
    return "none"


async def main() -> None:
    whole = await Agent(model(), model_settings=SETTINGS).run(QUESTION)
    usage, parts = whole.usage, await streamed()
    by_tool = await Agent(model(), output_type=ToolOutput(Answer), model_settings=SETTINGS).run(QUESTION)
    found: dict[str, Any] = {}
    if sys.argv[1] == "openai":  # its profile of an unknown Anthropic model has no native output
        native = Agent(model(), output_type=NativeOutput(Answer), model_settings=SETTINGS)
        found["schema"] = (await native.run(QUESTION)).output.model_dump()
    report(
        plain=whole.output,
        streamed="".join(parts),
        n_parts=len(parts),
        usage=[usage.input_tokens, usage.output_tokens],
        called=by_tool.output.model_dump(),
        streamed_called=await streamed_answer(),
        error=await error(),
        **found,
    )


asyncio.run(main())
