"""POST /api/chat and /api/generate, Ollama's API: lines of JSON unless `stream` is false."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from camelid.loading.options import LoadOptions
from camelid.requests.output_text import Completion, Event
from camelid.server.faces.common import Body, model_tokenizer, token_logprobs
from camelid.server.faces.ollama_names import entry_of, keep_later, served_name, time_text
from camelid.server.faces.ollama_prompt import chat_job, generate_job
from camelid.server.fields.ollama import CHAT, GENERATE
from camelid.server.fields.table import Table, Values
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, ollama_body
from camelid.server.http.reply import LINES_TYPE, JsonReply, Reply, StreamReply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.entry import Entry
from camelid.server.service.job import Job
from camelid.server.service.service import Service, Started
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning

MakeJob = Callable[[Values, Service, Call, LoadOptions], Job]


@dataclass(slots=True)
class Piece:
    """Text, thoughts and whole calls of some events."""

    text: str = ""
    thinking: str = ""
    calls: list[Body] = field(default_factory=list[Body])

    def __bool__(self) -> bool:
        return bool(self.text or self.thinking or self.calls)


class Pieces:
    """Makes pieces of events; a call is whole before it is shown, and left out if it never is."""

    def __init__(self) -> None:
        self._name, self._id, self._arguments = "", "", list[str]()
        self._n_calls = 0

    def of(self, events: Iterable[Event]) -> Piece:
        """The piece of the next events."""
        piece = Piece()
        for event in events:
            for part in event.parts or (Content(event.text),):
                self._add(piece, part)
        return piece

    def _add(self, piece: Piece, part: Part) -> None:
        match part:
            case Content(text):
                piece.text += text
            case Reasoning(text):
                piece.thinking += text
            case CallStart(_, call_id, name):
                self._name, self._id, self._arguments = name, call_id, []
            case CallArguments(_, text):
                self._arguments.append(text)
            case CallEnd(_, complete):
                piece.calls += [self._call()] if complete else []

    def _call(self) -> Body:
        arguments = json.loads("".join(self._arguments))
        function = {"index": self._n_calls, "name": self._name, "arguments": arguments}
        self._n_calls += 1
        return {"id": self._id, "function": function}


def chat_shape(piece: Piece) -> Body:
    """A piece in the replies of /api/chat."""
    message: Body = {"role": "assistant", "content": piece.text}
    message |= {"thinking": piece.thinking} if piece.thinking else {}
    message |= {"tool_calls": piece.calls} if piece.calls else {}
    return {"message": message}


def generate_shape(piece: Piece) -> Body:
    """A piece in the replies of /api/generate."""
    return {"response": piece.text, **({"thinking": piece.thinking} if piece.thinking else {})}


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Differences of /api/chat and /api/generate; `asks` is the field without which nothing is answered."""

    table: Table
    asks: str
    make: MakeJob
    shape: Callable[[Piece], Body]


CHATTING = Dialogue(CHAT, "messages", chat_job, chat_shape)
GENERATING = Dialogue(GENERATE, "prompt", generate_job, generate_shape)


async def answer(dialogue: Dialogue, server: Server, call: Call) -> Reply:
    """One answer, as lines or whole; without a question the model is loaded, or unloaded."""
    arrived = time.perf_counter()
    values = dialogue.table.read(call.json(), call)
    own = values.own
    entry = await entry_of(server, own.get("model"))
    keep_s = own.get("keep_alive")
    if not own.get(dialogue.asks):
        return await loaded(dialogue, server, entry, call, keep_s)
    service = await server.service(served_name(entry, own.get("model")))
    load_s = time.perf_counter() - arrived
    job = dialogue.make(values, service, call, entry.row.options)
    keep_later(server, entry, call, keep_s)
    started = await service.start(job)
    call.closing.callback(started.close)
    reply = OllamaReply(started, own.get("model") or entry.row.name, dialogue.shape, arrived, load_s)
    if own.get("stream", True):
        return StreamReply(reply.lines(), failed_line, media_type=LINES_TYPE)
    return JsonReply(await reply.whole())


async def loaded(dialogue: Dialogue, server: Server, entry: Entry, call: Call, keep_s: float | None) -> Reply:
    """The reply to a request without a question, which loads the model, or unloads it by keep_alive 0."""
    if keep_s != 0:
        await server.service(entry.row.name)
    keep_later(server, entry, call, keep_s)
    reason = "unload" if keep_s == 0 else "load"
    head = {"model": entry.row.name, "created_at": now()}
    return JsonReply({**head, **dialogue.shape(Piece()), "done": True, "done_reason": reason})


@dataclass(frozen=True, slots=True)
class OllamaReply:
    """The replies to one request. Times are in seconds: of the arrival, and of loading the model."""

    started: Started
    model: str
    shape: Callable[[Piece], Body]
    arrived: float
    load_s: float

    @property
    def has_logprobs(self) -> bool:
        return "logprobs" in self.started.job.options

    async def whole(self) -> Body:
        """The reply as one object."""
        events, done = await self.started.collected()
        return self.reply(Pieces().of(events), events, self.end(done))

    async def lines(self) -> AsyncIterator[bytes]:
        """The reply as lines of JSON; the last has no text."""
        pieces = Pieces()
        async with aclosing(self.started.batches()) as batches:
            async for batch in batches:
                made = [(pieces.of([event]), event) for event in batch.events]
                lines = [self.line(piece, [event]) for piece, event in made if piece or self.has_logprobs]
                if batch.completion:
                    lines.append(self.line(Piece(), [], self.end(batch.completion)))
                if lines:
                    yield b"".join(lines)

    def line(self, piece: Piece, events: list[Event], end: Body | None = None) -> bytes:
        return json.dumps(self.reply(piece, events, end), ensure_ascii=False).encode() + b"\n"

    def reply(self, piece: Piece, events: list[Event], end: Body | None = None) -> Body:
        """One object of the reply."""
        body = {"model": self.model, "created_at": now(), **self.shape(piece), **(end or {"done": False})}
        if self.has_logprobs and events:
            body["logprobs"] = token_logprobs(events, model_tokenizer(self.started.service))
        return body

    def end(self, done: Completion) -> Body:
        """The fields of the last object: reason, counts, and times in nanoseconds."""
        times = done.timings
        return {
            "done": True,
            "done_reason": "length" if done.finish_reason == "length" else "stop",
            "total_duration": nanoseconds(time.perf_counter() - self.arrived),
            "load_duration": nanoseconds(self.load_s),
            "prompt_eval_count": done.usage.prompt_tokens,
            "prompt_eval_duration": nanoseconds(times.ttft_s - times.queue_s),
            "eval_count": done.usage.completion_tokens,
            "eval_duration": nanoseconds(times.total_s - times.ttft_s),
        }


def nanoseconds(seconds: float) -> int:
    return max(int(seconds * 1e9), 0)


def now() -> str:
    """The time as Ollama writes it."""
    return time_text(datetime.now(UTC))


def failed_line(error: ApiError) -> bytes:
    """The last line of a stream that failed after its first byte."""
    return json.dumps(ollama_body(error, ""), ensure_ascii=False).encode() + b"\n"


ROUTES = (
    Route("POST", "/api/chat", partial(answer, CHATTING), CHAT),
    Route("POST", "/api/generate", partial(answer, GENERATING), GENERATE),
)
