"""The machine that reads generated text by a family's row: content, thoughts and calls."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping, Sequence

from camelid.text.toolcalls.families import family_named
from camelid.text.toolcalls.family import Family
from camelid.text.toolcalls.feed import SPACE, Broken, Feed, Wait, words
from camelid.text.toolcalls.parts import Part
from camelid.text.toolcalls.steps import follow
from camelid.text.toolcalls.values import tool_schemas
from camelid.text.toolcalls.writer import Writer

ID_CHARS = string.ascii_letters + string.digits


def random_id() -> str:
    """Nine letters and digits: the ids that Mistral's templates accept."""
    return "".join(secrets.choice(ID_CHARS) for _ in range(9))


class OutputParser:
    """Turns generated text into parts while it comes.

    How the text is cut makes no difference but to where deltas are cut. Nothing is lost but markers, the
    syntax around a call and white space beside markers: text that only begins like a call is content as it
    was written, in its place. A call is announced when its name is known and its arguments begin; from then
    on it stays a call. If its arguments break, it ends there, not `complete`, and what follows is content.
    No text raises an error. Held back are at most a marker, 64 characters of white space, and of a call
    what stands before its arguments (64 Ki characters) or one value of unknown type (1 Mi characters).
    """

    def __init__(
        self,
        family: Family,
        *,
        schemas: Mapping[str, Mapping[str, object]] | None,
        starts_in_reasoning: bool,
        new_id: Callable[[], str],
    ) -> None:
        self.family = family
        self.feed = Feed()
        self.writer = Writer(new_id)
        self.schemas = schemas
        self.name = self.id = ""
        self.bare = self.called = False
        self.thinking = starts_in_reasoning and family.thinking is not None
        self._thought = self.thinking
        self._reader = self._read()

    def push(self, text: str) -> list[Part]:
        """More generated text; the parts that are sure by now."""
        self.feed.push(text)
        next(self._reader, None)
        return self.writer.take()

    def finish(self) -> list[Part]:
        """The text is over; the parts that were held back."""
        self.feed.closed = True
        next(self._reader, None)
        self.writer.finish()
        return self.writer.take()

    def _read(self) -> Wait[None]:
        yield from self._begin()
        more = True
        while more:
            more = yield from (self._thoughts() if self.thinking else self._content())

    def _begin(self) -> Wait[None]:
        """What only the beginning of a message may hold."""
        if self.thinking:
            self.writer.border()
            yield from self.feed.run(SPACE)
            yield from self.feed.literal(self.family.thinking[0] if self.family.thinking else "")
        elif self.family.primed is not None:
            self.bare = not self.family.primed
            yield from self._attempt("", self._primed(self.family.primed))
            self.bare = False

    def _primed(self, beginning: str) -> Wait[None]:
        """A call whose opening stands in the prompt, or is left out."""
        yield from self.feed.run(SPACE)
        if not (yield from self.feed.literal(beginning)) and beginning:
            raise Broken
        first = self.family.call[0]
        opened = isinstance(first, str)
        yield from self.feed.literal(first if opened else "")
        yield from follow(self, self.family.call[opened:])

    def _content(self) -> Wait[bool]:
        """Text for the user up to the next marker, and what that begins; False at the end."""
        family, (opening, _) = self.family, self.family.thinking or ("", "")
        answer = family.answer if self._thought and family.answer else ()
        wanted = words(*family.openings, *family.dropped, *family.ends, opening, *answer)
        word = yield from self.feed.until(wanted, self.writer.content)
        if word in family.openings:
            yield from self._attempt(word, self._call(word))
        elif word:
            self.writer.border()
            self.thinking = word == opening
        return bool(word)

    def _thoughts(self) -> Wait[bool]:
        """The same for thoughts."""
        family, (_, closing) = self.family, self.family.thinking or ("", "")
        openings = family.openings if family.calls_end_thoughts else ()
        self._thought = True
        word = yield from self.feed.until(words(*openings, closing, *family.ends), self.writer.reasoning)
        if word in openings:
            yield from self._attempt(word, self._call(word))
        elif word:
            self.writer.border()
            self.thinking = False
        return bool(word)

    def _call(self, word: str) -> Wait[None]:
        """A call, after the marker that opens it."""
        yield from follow(self, self.family.call[word == self.family.call[0] :])

    def _attempt(self, word: str, call: Wait[None]) -> Wait[None]:
        """Read a call. What turns out to be none of it is text again."""
        self.feed.hold(word)
        self.called = False
        try:
            yield from call
            if self.called:
                yield from self.feed.run(SPACE)
                yield from self.feed.literal(*self.family.closes)
            self.feed.let_go()
        except Broken:
            if self.writer.calling:
                self.writer.end(complete=False)
                self.called = True
            (self.writer.reasoning if self.thinking and not self.called else self.writer.content)(
                self.feed.let_go()
            )
        self.thinking = self.thinking and not self.called


def parser_for(
    family: Family | str,
    *,
    tools: Sequence[object] | None = None,
    starts_in_reasoning: bool = False,
    new_id: Callable[[], str] = random_id,
) -> OutputParser:
    """A parser for one answer. `tools` as in OpenAI's API: their schemas tell the types of tagged values,
    and their names which JSON without a marker is a call (None: any that looks like one; empty: none).
    `starts_in_reasoning`: see `opens_reasoning`. `new_id` names a call that has no id of its own.

    UnsupportedModelError for a family that has no row.
    """
    return OutputParser(
        family_named(family) if isinstance(family, str) else family,
        schemas=None if tools is None else tool_schemas(tools),
        starts_in_reasoning=starts_in_reasoning,
        new_id=new_id,
    )
