"""Makes parts of what the parser finds, and holds back white space until it is known to be text."""

from __future__ import annotations

from collections.abc import Callable

from camelid.text.toolcalls.family import SPACE
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning

# White space before a marker is layout; of a longer run the beginning is text, so that little is held.
LAYOUT_LIMIT = 64


class Writer:
    """The parts of one answer, in order."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._parts: list[Part] = []
        self._ids: set[str] = set()
        self._index = -1
        self._kind: type[Content | Reasoning] = Content
        self._space = ""
        self._fresh = False
        self.calling = False

    def take(self) -> list[Part]:
        """The parts made since the last time."""
        parts, self._parts = self._parts, []
        return parts

    def content(self, text: str) -> None:
        """Text for the user."""
        self._text(Content, text)

    def reasoning(self, text: str) -> None:
        """Text of thoughts."""
        self._text(Reasoning, text)

    def border(self) -> None:
        """A marker: white space on either side of it is layout."""
        self._space = ""
        self._fresh = True

    def finish(self) -> None:
        """Nothing follows: white space at the end is text."""
        if self._space:
            self._parts.append(self._kind(self._space))
            self._space = ""

    def start(self, name: str, call_id: str) -> None:
        """A call begins. An id that the model left out, or gave before, is made up."""
        self.border()
        call_id = self._new_id() if not call_id or call_id in self._ids else call_id
        self._ids.add(call_id)
        self._index += 1
        self.calling = True
        self._parts.append(CallStart(self._index, call_id, name))

    def arguments(self, text: str) -> None:
        """The next piece of the call's arguments."""
        if text:
            self._parts.append(CallArguments(self._index, text))

    def end(self, *, complete: bool) -> None:
        """The call is over."""
        self.calling = False
        self._parts.append(CallEnd(self._index, complete))

    def _text(self, kind: type[Content | Reasoning], text: str) -> None:
        if self._fresh:
            text = text.lstrip(SPACE)
        if not text:
            return
        if kind is not self._kind:
            self.finish()
        self._kind, self._fresh = kind, False
        text = self._space + text
        shown = max(len(text.rstrip(SPACE)), len(text) - LAYOUT_LIMIT)
        self._space = text[shown:]
        if shown:
            self._parts.append(kind(text[:shown]))
