"""The parts of an answer as Anthropic's content blocks, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from camelid.requests.output_text import Event
from camelid.server.faces.common import Body
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning


def parts_of(events: Iterable[Event]) -> Iterator[Part]:
    """The parts of events; an answer without a parser is text."""
    for event in events:
        if event.parts:
            yield from event.parts
        elif event.text:
            yield Content(event.text)


def block_key(part: Part) -> str:
    """The same text for parts of one block, if they are neighbours."""
    match part:
        case Content():
            return "text"
        case Reasoning():
            return "thinking"
        case _:
            return f"call {part.index}"


def content_blocks(parts: Iterable[Part], *, shows_thinking: bool) -> list[Body]:
    """The blocks of a whole answer; a call that is not complete is left out, since it cannot be run."""
    runs = [(key, list(run)) for key, run in groupby(parts, block_key)]
    blocks = [whole_block(key, run, shows_thinking=shows_thinking) for key, run in runs]
    return [block for block in blocks if block]


def whole_block(key: str, run: Sequence[Part], *, shows_thinking: bool) -> Body | None:
    text = "".join(part.text for part in run if isinstance(part, Content | Reasoning | CallArguments))
    if key == "text":
        return {"type": "text", "text": text}
    if key == "thinking":
        return {"type": "thinking", "thinking": text if shows_thinking else "", "signature": ""}
    start, end = run[0], run[-1]
    if isinstance(start, CallStart) and isinstance(end, CallEnd) and end.complete:
        return {"type": "tool_use", "id": start.id, "name": start.name, "input": json.loads(text)}
    return None


class Blocks:
    """The events of a stream's content blocks."""

    def __init__(self, *, shows_thinking: bool) -> None:
        self._shows_thinking = shows_thinking
        self._index = -1
        self._open = ""  # key of the open block

    def events(self, parts: Iterable[Part]) -> Iterator[Body]:
        """The events of the next parts."""
        for part in parts:
            if block_key(part) != self._open:
                yield from self.close()
                yield self._start(part)
            if delta := self._delta(part):
                yield self._event("content_block_delta", delta=delta)
            if isinstance(part, CallEnd):
                yield from self.close()

    def close(self) -> Iterator[Body]:
        """The events that end the open block."""
        if self._open == "thinking":
            yield self._event("content_block_delta", delta={"type": "signature_delta", "signature": ""})
        if self._open:
            yield self._event("content_block_stop")
        self._open = ""

    def _start(self, part: Part) -> Body:
        self._index, self._open = self._index + 1, block_key(part)
        return self._event("content_block_start", content_block=empty_block(part))

    def _delta(self, part: Part) -> Body | None:
        match part:
            case Content(text):
                return {"type": "text_delta", "text": text}
            case Reasoning(text):
                return {"type": "thinking_delta", "thinking": text} if self._shows_thinking else None
            case CallArguments(_, text):
                return {"type": "input_json_delta", "partial_json": text}
            case _:
                return None

    def _event(self, kind: str, **fields: Body) -> Body:
        return {"type": kind, "index": self._index, **fields}


def empty_block(part: Part) -> Body:
    """The block that a part opens."""
    match part:
        case CallStart(_, call_id, name):
            return {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        case Reasoning():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case _:
            return {"type": "text", "text": ""}
