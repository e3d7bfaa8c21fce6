"""A server's streamed answer as events and a completion, as a loaded model's answer has them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, cast

from camelid.cli.http_client import Json, ServerError, error_message
from camelid.engine.results import Timings, Usage
from camelid.errors import RequestError
from camelid.requests.output_text import Completion, Event, FinishReason
from camelid.text.toolcalls.parts import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Part,
    Reasoning,
    gather,
)

SEED_UNKNOWN = -1


@dataclass(slots=True)
class Tally:
    """The arrived part of one answer."""

    clock: Callable[[], float] = perf_counter
    parts: list[Part] = field(default_factory=list[Part])
    finish_reason: str | None = None
    usage: Json = field(default_factory=dict[str, Any])
    timings: Json = field(default_factory=dict[str, Any])
    n_events: int = 0
    id: str = ""
    started: float = field(init=False)
    first: float | None = None
    last: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def read(self, data: bytes) -> Event | None:
        """The event of a chunk; None for one without text. Raises ServerError for an error."""
        chunk = read_chunk(data)
        try:
            parts = self._advance(chunk)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ServerError(
                f"the server sent a chunk of another form: {data[:80]!r}", status=200
            ) from error
        if not parts:
            return None
        self.parts += parts
        self.n_events += 1
        self.last = self.clock()
        self.first = self.last if self.first is None else self.first
        text = "".join(part.text for part in parts if isinstance(part, Content))
        return Event(text, None, 0.0, tuple(parts))

    def _advance(self, chunk: Json) -> list[Part]:
        self.id = self.id or str(chunk.get("id") or "")
        self.usage = chunk.get("usage") or self.usage
        self.timings = chunk.get("timings") or self.timings
        return [part for choice in chunk.get("choices") or () for part in self._choice(choice)]

    def _choice(self, choice: Json) -> list[Part]:
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        parts = delta_parts(choice.get("delta") or {})
        if choice.get("finish_reason") == "tool_calls":
            n_calls = sum(isinstance(part, CallStart) for part in (*self.parts, *parts))
            parts += [CallEnd(index) for index in range(n_calls)]
        return parts

    def completion(self, reason: FinishReason) -> Completion:
        """The answer so far. A server without figures leaves those that the client can count."""
        message = gather(self.parts)
        n = self.usage.get("completion_tokens", self.n_events)
        details: Json = self.usage.get("prompt_tokens_details") or {}
        return Completion(
            text=message.content,
            token_ids=[],
            finish_reason=reason,
            usage=Usage(self.usage.get("prompt_tokens", 0), n, details.get("cached_tokens") or 0),
            timings=self._times(n),
            seed=SEED_UNKNOWN,
            reasoning=message.reasoning,
            tool_calls=message.tool_calls,
            id=self.id,
        )

    def _times(self, n: int) -> Timings:
        first = self.first or self.clock()
        seconds = max(self.last - first, 0.0)
        rate = (n - 1) / seconds if n > 1 and seconds else 0.0
        return Timings(
            queue_s=0.0,
            ttft_s=first - self.started,
            prefill_tps=self.timings.get("prompt_per_second", 0.0),
            decode_tps=self.timings.get("predicted_per_second", rate),
            inter_token_s=1 / rate if rate else 0.0,
            total_s=self.clock() - self.started,
            n_steps=0,
        )


def read_chunk(data: bytes) -> Json:
    """The object of an event. Raises ServerError for an error, or for anything but a JSON object."""
    try:
        chunk = json.loads(data)
    except ValueError:
        chunk = None
    if not isinstance(chunk, dict):
        raise ServerError(f"the server sent an event that is no JSON object: {data[:80]!r}", status=200)
    found = cast(Json, chunk)
    if found.get("error"):
        said = error_message(data.decode("utf-8", "replace"))
        raise ServerError(f"the server broke the answer off: {said}", status=200)
    return found


def delta_parts(delta: Json) -> list[Part]:
    """The parts of a chunk's delta; vLLM's name of reasoning is `reasoning`."""
    parts: list[Part] = []
    if thoughts := delta.get("reasoning_content") or delta.get("reasoning"):
        parts.append(Reasoning(thoughts))
    if text := delta.get("content"):
        parts.append(Content(text))
    for call in delta.get("tool_calls") or ():
        index: int = call.get("index", 0)
        function: Json = call.get("function") or {}
        if function.get("name"):
            parts.append(CallStart(index, call.get("id") or "", function["name"]))
        if function.get("arguments"):
            parts.append(CallArguments(index, function["arguments"]))
    return parts


class ServerAnswer(AsyncIterator[Event]):
    """The stream of one answer. The conversation records it at its end or when it is closed."""

    def __init__(self, events: AsyncGenerator[bytes, None], finish: Callable[[Completion], object]) -> None:
        self._events = events
        self._finish = finish
        self._tally = Tally()
        self._done: Completion | None = None

    @property
    def completion(self) -> Completion:
        """The complete answer. Raises RequestError before its end."""
        if self._done is None:
            raise RequestError("the answer has not ended", field="completion")
        return self._done

    def __aiter__(self) -> ServerAnswer:
        return self

    async def __anext__(self) -> Event:
        try:
            while True:
                event = self._tally.read(await anext(self._events))
                if event:
                    return event
        except StopAsyncIteration:
            await self._end(cast(FinishReason, self._tally.finish_reason or "stop"))
            raise
        except Exception:
            await self._end("error")
            raise

    async def aclose(self) -> None:
        """Closes the connection, which frees the sequence; the conversation keeps the text so far."""
        await self._end("cancelled")

    async def _end(self, reason: FinishReason) -> None:
        await self._events.aclose()
        if self._done is None:
            self._done = self._tally.completion(reason)
            if reason != "error":
                self._finish(self._done)
