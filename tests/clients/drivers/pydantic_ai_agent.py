"""pydantic-ai: agents on OpenAI's and on Anthropic's API."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Literal

from common import (
    KEY,
    MAX_TOKENS,
    MODEL,
    OPENAI_URL,
    QUESTION,
    UNKNOWN,
    URL,
    WEATHER_QUESTION,
    WEATHER_RESULT,
    Answer,
    report,
)
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

SETTINGS: Any = {"temperature": 0.0, "max_tokens": MAX_TOKENS}
NATIVE = ModelProfile(supports_json_schema_output=True)  # unknown to it of a model that is not Claude


def model(name: str = MODEL) -> Any:
    if sys.argv[1] == "openai":
        return OpenAIChatModel(name, provider=OpenAIProvider(base_url=OPENAI_URL, api_key=KEY))
    return AnthropicModel(name, provider=AnthropicProvider(base_url=URL, api_key=KEY), profile=NATIVE)


def weather(city: Literal["Oslo", "Rome"]) -> str:
    """The weather of a city."""
    return WEATHER_RESULT


async def told() -> tuple[str, str]:
    """The answer after the agent ran the tool, and a streamed one."""
    agent = Agent(model(), tools=[weather], model_settings=SETTINGS)
    async with agent.run_stream(WEATHER_QUESTION) as result:
        return (await agent.run(WEATHER_QUESTION)).output, await result.get_output()


async def streamed() -> list[str]:
    async with Agent(model(), model_settings=SETTINGS).run_stream(QUESTION) as result:
        return [part async for part in result.stream_text(delta=True, debounce_by=None)]


async def streamed_answer() -> dict[str, Any]:
    agent = Agent(model(), output_type=ToolOutput(Answer), model_settings=SETTINGS)
    async with agent.run_stream(QUESTION) as result:
        return (await result.get_output()).model_dump()


async def streamed_schema() -> list[Any]:
    agent = Agent(model(), output_type=NativeOutput(Answer), model_settings=SETTINGS)
    async with agent.run_stream(QUESTION) as result:
        return [part async for part in result.stream_output(debounce_by=None)]


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
    native = Agent(model(), output_type=NativeOutput(Answer), model_settings=SETTINGS)
    schema_parts = await streamed_schema()
    whole_told, streamed_told = await told()
    report(
        plain=whole.output,
        streamed="".join(parts),
        n_parts=len(parts),
        usage=[usage.input_tokens, usage.output_tokens],
        called=by_tool.output.model_dump(),
        streamed_called=await streamed_answer(),
        schema=(await native.run(QUESTION)).output.model_dump(),
        streamed_schema=schema_parts[-1].model_dump(),
        n_schema_parts=len(schema_parts),
        told=whole_told,
        streamed_told=streamed_told,
        error=await error(),
    )


asyncio.run(main())
