"""Collects the parser's parts, and holds back white space until it is certain to be text."""

from __future__ import annotations

from collections.abc import Callable

from camelid.text.toolcalls.family import SPACE
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning

# White space before a marker is layout. The beginning of a longer run is text, which limits the held text.
LAYOUT_LIMIT = 64


class Writer:
    """The parts of one output, in order."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._parts: list[Part] = []
        self._ids: set[str] = set()
        self._index = -1
        self._kind: type[Content | Reasoning] = Content
        self._space = ""
        self._after_marker = False
        self.calling = False

    def take(self) -> list[Part]:
        """Returns and clears the parts made since the last call."""
        parts, self._parts = self._parts, []
        return parts

    def content(self, text: str) -> None:
        """Adds text for the user."""
        self._text(Content, text)

    def reasoning(self, text: str) -> None:
        """Adds text of reasoning."""
        self._text(Reasoning, text)

    def border(self) -> None:
        """Notes a marker: white space on either side of it is layout."""
        self._space = ""
        self._after_marker = True

    def finish(self) -> None:
        """Ends the output: white space at the end is text."""
        if self._space:
            self._parts.append(self._kind(self._space))
            self._space = ""

    def start(self, name: str, call_id: str) -> None:
        """Starts a call. A missing or duplicate id is replaced by a new one."""
        self.border()
        call_id = self._new_id() if not call_id or call_id in self._ids else call_id
        self._ids.add(call_id)
        self._index += 1
        self.calling = True
        self._parts.append(CallStart(self._index, call_id, name))

    def arguments(self, text: str) -> None:
        """Adds a piece of the call's arguments."""
        if text:
            self._parts.append(CallArguments(self._index, text))

    def end(self, *, complete: bool) -> None:
        """Ends the call."""
        self.calling = False
        self._parts.append(CallEnd(self._index, complete))

    def _text(self, kind: type[Content | Reasoning], text: str) -> None:
        if self._after_marker:
            text = text.lstrip(SPACE)
        if not text:
            return
        if kind is not self._kind:
            self.finish()
        self._kind, self._after_marker = kind, False
        text = self._space + text
        shown = max(len(text.rstrip(SPACE)), len(text) - LAYOUT_LIMIT)
        self._space = text[shown:]
        if shown:
            self._parts.append(kind(text[:shown]))
