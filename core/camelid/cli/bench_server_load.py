"""The load generator of `camelid bench --server`: prompts, arrivals, and the times of each answer.

All streams share one event loop. Times are those of the client: an event's is when its bytes were read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from time import perf_counter
from typing import Any

from camelid.cli.chat_server_answer import read_chunk
from camelid.cli.http_client import Client, Json, ServerError

PATH = "/v1/chat/completions"
REQUEST_S = 600.0  # an answer that takes longer counts as an error
# Short words, of one or two tokens in most vocabularies.
WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"),
    *("state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week"),
    *("company", "system", "program", "question", "work", "number", "night", "point", "home", "water"),
    *("room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye"),
    *("job", "word", "business", "issue", "side", "kind", "head", "house", "service", "friend", "father"),
)
PROBES = (1, 2)  # repeats of all words in the two prompts from which the tokens of a word follow


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of random words. None begins like another, but for a shared prefix.

    `nonce` differs between runs, so that no run finds its prompts in the prefix cache of the one before.
    """

    nonce: str
    n_words: int
    n_shared: int = 0  # words that all prompts begin with

    def text(self, i: int) -> str:
        """The i-th prompt."""
        n_shared = min(self.n_shared, self.n_words)
        shared = self._words("shared", n_shared)
        return " ".join((*shared, *self._words(str(i), self.n_words - n_shared)))

    def _words(self, name: str, n: int) -> list[str]:
        return Random(f"{self.nonce} {name}").choices(WORDS, k=n)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a model's tokens follow from words: those of the chat template, and those of a word."""

    template_tokens: float
    word_tokens: float

    def words(self, n_tokens: int) -> int:
        """The number of words of a prompt of about so many tokens; 0 if the template alone has more."""
        return max(round((n_tokens - self.template_tokens) / self.word_tokens), 0)

    def prefix_words(self, n_tokens: int) -> int:
        """The number of words of about so many tokens."""
        return round(n_tokens / self.word_tokens)


async def measure_shape(client: Client, model: str) -> Shape:
    """The shape, by two short prompts, which also warm the server up. Raises ServerError."""
    few, many = [await _prompt_tokens(client, model, " ".join(WORDS * n)) for n in PROBES]
    word_tokens = max((many - few) / len(WORDS), 0.1)
    return Shape(few - len(WORDS) * word_tokens, word_tokens)


async def _prompt_tokens(client: Client, model: str, prompt: str) -> int:
    reply = await client.post(PATH, request_body(model, prompt, 1))
    usage: Any = reply.get("usage")
    try:
        return int(usage["prompt_tokens"])
    except (KeyError, TypeError, ValueError):
        raise ServerError("the server counts no prompt tokens (usage.prompt_tokens)", status=200) from None


def request_body(model: str, prompt: str, n_tokens: int) -> Json:
    """A greedy request for one prompt."""
    messages = [{"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "max_tokens": n_tokens, "temperature": 0}


@dataclass(slots=True)
class Sample:
    """One request. `due` is when it was to be sent: a late load generator must not flatter the server."""

    due: float
    sent: float
    end: float = 0.0
    times: list[float] = field(default_factory=list[float])  # of events with text or log-probabilities
    n_prompt: int = 0
    n_cached: int = 0
    n_tokens: int = 0
    error: str = ""  # a status, or another short name
    message: str = ""

    @property
    def ttft_s(self) -> float:
        """Seconds to the first text."""
        return self.times[0] - self.due

    @property
    def total_s(self) -> float:
        """Seconds to the end of the stream."""
        return self.end - self.due

    @property
    def gaps(self) -> list[float]:
        """Seconds between two such events."""
        return [after - before for before, after in pairwise(self.times)]

    def read(self, chunk: Json, now: float) -> None:
        """Reads a chunk of the stream. Raises ServerError for one of another form."""
        try:
            for choice in chunk.get("choices") or ():
                if has_text(choice["delta"]) or choice.get("logprobs"):
                    self.times.append(now)
            if usage := chunk.get("usage"):
                self._count(usage)
        except (AttributeError, KeyError, TypeError) as error:
            raise ServerError("a chunk of another form", status=200) from error

    def _count(self, usage: Json) -> None:
        self.n_prompt, self.n_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        details: Json = usage.get("prompt_tokens_details") or {}
        self.n_cached = details.get("cached_tokens") or 0

    def fail(self, error: str, message: str) -> None:
        """Notes an error."""
        self.error, self.message = error, message


def has_text(delta: Json) -> bool:
    """True if a delta carries text, reasoning or a tool call."""
    return any(delta.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls"))


@dataclass(frozen=True, slots=True)
class Generator:
    """Sends requests to one server."""

    client: Client
    body: Callable[[int], Json]  # of the i-th request
    clock: Callable[[], float] = perf_counter

    async def ask(self, i: int, due: float | None = None) -> Sample:
        """Sends the i-th request and reads its answer. Errors are noted in the sample."""
        now = self.clock()
        sample = Sample(now if due is None else due, now)
        try:
            async with asyncio.timeout(REQUEST_S):
                await self._read(sample, self.body(i))
        except ServerError as error:
            status = int(str(error.facts.get("status", 0)))
            sample.fail(str(status) if status not in (0, 200) else "broken", error.message)
        except (OSError, TimeoutError) as error:
            is_late = isinstance(error, TimeoutError)
            sample.fail("timeout" if is_late else "connection", str(error) or f"after {REQUEST_S:g} s")
        sample.end = self.clock()
        return sample

    async def _read(self, sample: Sample, body: Json) -> None:
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with aclosing(self.client.stream(PATH, streamed)) as events:
            async for data in events:
                sample.read(read_chunk(data), self.clock())
        if not sample.times:
            raise ServerError("the answer has no text", status=200)
        sample.n_tokens = sample.n_tokens or len(sample.times)

    async def closed_loop(self, n_streams: int, n_requests: int) -> list[Sample]:
        """Streams that each send a request as soon as the one before has ended."""
        numbers = iter(range(n_requests))
        streams = (self._stream(numbers) for _ in range(min(n_streams, n_requests)))
        return [sample for samples in await asyncio.gather(*streams) for sample in samples]

    async def _stream(self, numbers: Iterator[int]) -> list[Sample]:
        return [await self.ask(i) for i in numbers]

    async def open_loop(self, arrivals: Iterable[float]) -> list[Sample]:
        """Requests at these seconds from now, however many are still under way."""
        start = self.clock()
        tasks: list[Awaitable[Sample]] = []
        for i, seconds in enumerate(arrivals):
            due = start + seconds
            await asyncio.sleep(max(due - self.clock(), 0.0))
            tasks.append(asyncio.create_task(self.ask(i, due)))
        return list(await asyncio.gather(*tasks))


def poisson(rate: float, seconds: float, seed: str) -> list[float]:
    """The times of independent arrivals at a mean rate; at least one."""
    draw, now = Random(seed), 0.0
    times: list[float] = []
    while (now := now + draw.expovariate(rate)) < seconds:
        times.append(now)
    return times or [0.0]
