"""The output of a response: parts of an answer to items, and the events that announce each change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from camelid.requests.output_text import Event
from camelid.server.faces.common import Body, new_id, token_logprobs
from camelid.text.tokenizers.tokenizer import Tokenizer
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning


@dataclass(frozen=True, slots=True)
class TextKind:
    """A kind of item that holds one text: its id's prefix, its fields, its part's fields."""

    prefix: str
    item: Body
    part: Body

    @property
    def event(self) -> str:
        """The middle of its events' names."""
        return f"response.{self.part['type']}"


MESSAGE = TextKind(
    "msg_",
    {"type": "message", "role": "assistant"},
    {"type": "output_text", "annotations": [], "logprobs": []},
)
REASONING = TextKind("rs_", {"type": "reasoning", "summary": []}, {"type": "reasoning_text"})


@dataclass(slots=True)
class OpenText:
    """A text item under construction."""

    kind: TextKind
    index: int  # in the output
    id: str
    texts: list[str] = field(default_factory=list[str])
    logprobs: list[Body] = field(default_factory=list[Body])

    @property
    def place(self) -> Body:
        """The fields that tell a client where the text belongs."""
        return {"item_id": self.id, "output_index": self.index, "content_index": 0}

    @property
    def part(self) -> Body:
        """The part with the text so far."""
        part: Body = {**self.kind.part, "text": "".join(self.texts)}
        return part | ({"logprobs": self.logprobs} if "logprobs" in part else {})

    def item(self, status: str, parts: list[Body]) -> Body:
        """The item in a state."""
        return {"id": self.id, **self.kind.item, "status": status, "content": parts}


@dataclass(slots=True)
class OpenCall:
    """A function call under construction."""

    index: int
    id: str
    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list[str])

    @property
    def place(self) -> Body:
        """The fields that tell a client which call it is."""
        return {"item_id": self.id, "output_index": self.index}

    def item(self, status: str) -> Body:
        """The item in a state."""
        return {
            "id": self.id, "type": "function_call", "status": status, "call_id": self.call_id,
            "name": self.name, "arguments": "".join(self.pieces),
        }  # fmt: skip


class Output:
    """The items of an answer. Each method yields the events of a change, without their numbers.

    With a `tokenizer`, messages have log-probabilities.
    """

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self.n_reasoning = 0  # tokens
        self._tokenizer = tokenizer
        self._done: dict[int, Body] = {}
        self._n_items = 0
        self._text: OpenText | None = None
        self._calls: dict[int, OpenCall] = {}
        self._unplaced: list[Event] = []  # events since the last part: their text is withheld

    @property
    def items(self) -> list[Body]:
        """The finished items in order."""
        return [self._done[index] for index in sorted(self._done)]

    def read(self, event: Event) -> Iterator[Body]:
        """The changes by one event of the answer."""
        self.n_reasoning += event.token_id is not None and any(isinstance(p, Reasoning) for p in event.parts)
        self._unplaced.append(event)
        for part in event.parts:
            yield from self._part(part)

    def _part(self, part: Part) -> Iterator[Body]:
        logprobs = self._take_logprobs()
        match part:
            case Content(text):
                yield from self._add_text(MESSAGE, text, logprobs)
            case Reasoning(text):
                yield from self._add_text(REASONING, text, [])
            case CallStart(number, call_id, name):
                yield from self._start_call(number, call_id, name)
            case CallArguments(number, text):
                call = self._calls[number]
                call.pieces.append(text)
                yield {"type": "response.function_call_arguments.delta", **call.place, "delta": text}
            case CallEnd(number, complete):
                yield from self._end_call(number, "completed" if complete else "incomplete")

    def _take_logprobs(self) -> list[Body]:
        events, self._unplaced = self._unplaced, []
        return token_logprobs(events, self._tokenizer) if self._tokenizer else []

    def _add_text(self, kind: TextKind, text: str, logprobs: Sequence[Body]) -> Iterator[Body]:
        if not text:
            return
        if self._text is None or self._text.kind is not kind:
            yield from self._end_text("completed")
            yield from self._start_text(kind)
        item = self._text
        assert item is not None, "the item was opened above"
        item.texts.append(text)
        item.logprobs += logprobs
        more = {"logprobs": logprobs} if kind is MESSAGE else {}
        yield {"type": f"{kind.event}.delta", **item.place, "delta": text, **more}

    def _start_text(self, kind: TextKind) -> Iterator[Body]:
        item = self._text = OpenText(kind, self._next_index(), new_id(kind.prefix))
        added = {"output_index": item.index, "item": item.item("in_progress", [])}
        yield {"type": "response.output_item.added", **added}
        yield {"type": "response.content_part.added", **item.place, "part": item.part}

    def _end_text(self, status: str) -> Iterator[Body]:
        item, self._text = self._text, None
        if item is None:
            return
        part = item.part
        more = {"logprobs": item.logprobs} if item.kind is MESSAGE else {}
        yield {"type": f"{item.kind.event}.done", **item.place, "text": part["text"], **more}
        yield {"type": "response.content_part.done", **item.place, "part": part}
        yield self._item_done(item.index, item.item(status, [part]))

    def _start_call(self, number: int, call_id: str, name: str) -> Iterator[Body]:
        yield from self._end_text("completed")
        call = self._calls[number] = OpenCall(self._next_index(), new_id("fc_"), call_id, name)
        added = {"output_index": call.index, "item": call.item("in_progress")}
        yield {"type": "response.output_item.added", **added}

    def _end_call(self, number: int, status: str) -> Iterator[Body]:
        call = self._calls.pop(number)
        item = call.item(status)
        done = {"arguments": item["arguments"], "name": call.name}
        yield {"type": "response.function_call_arguments.done", **call.place, **done}
        yield self._item_done(call.index, item)

    def _item_done(self, index: int, item: Body) -> Body:
        self._done[index] = item
        return {"type": "response.output_item.done", "output_index": index, "item": item}

    def _next_index(self) -> int:
        self._n_items += 1
        return self._n_items - 1

    def finish(self, status: str) -> Iterator[Body]:
        """Ends the items that are open; a call that is open at the end is incomplete.

        An empty answer is an empty message.
        """
        if not self._n_items:
            yield from self._start_text(MESSAGE)
        yield from self._end_text(status)
        for number in list(self._calls):
            yield from self._end_call(number, "incomplete")
