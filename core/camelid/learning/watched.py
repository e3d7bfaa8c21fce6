"""A request whose end is noted: the engine's reader, and the exchange that it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from camelid.engine.request import Request
from camelid.engine.results import Generation, OutputReader, Token
from camelid.requests.output_text import Completion

Seen = Callable[[Completion], object]


class WatchedReader:
    """An output reader that hands its completion on. `name` replaces the completion's id, unless empty."""

    def __init__(self, reader: OutputReader, seen: Seen, name: str = "") -> None:
        self._reader, self._seen, self._name = reader, seen, name

    @property
    def stopped(self) -> bool:
        """As the reader's."""
        return self._reader.stopped

    def push(self, token_id: int) -> None:
        """As the reader's."""
        self._reader.push(token_id)

    def event(self, token: Token | None, *, is_last: bool) -> Any:
        """As the reader's."""
        return self._reader.event(token, is_last=is_last)

    def completion(self, generation: Generation) -> Any:
        """As the reader's, seen before the stream has it."""
        done: Completion = self._reader.completion(generation)
        done = replace(done, id=self._name) if self._name else done
        if done.finish_reason != "error" and done.token_ids:
            self._seen(done)
        return done


def watched(request: Request, seen: Seen, name: str = "") -> Request:
    """The request with its completions handed on; those of further choices are NAME#1, NAME#2, and so on."""
    make, numbers = request.reader, count()

    def reader() -> WatchedReader:
        number = next(numbers)
        own = f"{name}#{number}" if name and number else name
        return WatchedReader(make(), seen, own)

    return replace(request, reader=reader)
