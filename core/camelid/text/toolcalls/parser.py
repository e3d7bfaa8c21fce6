"""The parser of generated text: content, reasoning and tool calls by a family's row."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping, Sequence

from camelid.text.toolcalls.families import family_named
from camelid.text.toolcalls.family import Family
from camelid.text.toolcalls.feed import SPACE, Feed, InvalidCall, Wait, string_set
from camelid.text.toolcalls.parts import Part
from camelid.text.toolcalls.steps import follow
from camelid.text.toolcalls.values import tool_schemas
from camelid.text.toolcalls.writer import Writer

ID_CHARS = string.ascii_letters + string.digits


def random_id() -> str:
    """Nine letters and digits: the id format that Mistral's templates accept."""
    return "".join(secrets.choice(ID_CHARS) for _ in range(9))


class OutputParser:
    """Parses generated text into parts as it arrives.

    The parts are independent of how the text is cut, except for the borders of deltas. Only markers, the
    syntax around a call and white space beside markers are dropped: text that merely begins like a call
    becomes content, unchanged and in place. A call starts once its name is known and its arguments begin, and
    is a call from then on. If its arguments become invalid, the call ends incomplete and the following text
    is content. No text raises an error. The parser holds back at most a marker, 64 characters of white space,
    and of a call the text before its arguments (64 Ki characters) or one value of unknown type (1 Mi
    characters).
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
        self._had_thoughts = self.thinking
        self._reader = self._read()

    def push(self, text: str) -> list[Part]:
        """Adds generated text; returns the parts that are certain."""
        self.feed.push(text)
        next(self._reader, None)
        return self.writer.take()

    def finish(self) -> list[Part]:
        """Ends the text; returns the parts that were held back."""
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
        """Reads a beginning that only the start of a message may have."""
        if self.thinking:
            self.writer.border()
            yield from self.feed.run(SPACE)
            yield from self.feed.literal(self.family.thinking[0] if self.family.thinking else "")
        elif self.family.primed is not None:
            self.bare = not self.family.primed
            yield from self._attempt("", self._primed(self.family.primed))
            self.bare = False

    def _primed(self, beginning: str) -> Wait[None]:
        """A call whose opening is in the prompt, or missing."""
        yield from self.feed.run(SPACE)
        if not (yield from self.feed.literal(beginning)) and beginning:
            raise InvalidCall
        first = self.family.call[0]
        opened = isinstance(first, str)
        yield from self.feed.literal(first if opened else "")
        yield from follow(self, self.family.call[opened:])

    def _content(self) -> Wait[bool]:
        """Reads content up to and including the next marker; returns False at the end."""
        family, (opening, _) = self.family, self.family.thinking or ("", "")
        answer = family.answer if self._had_thoughts and family.answer else ()
        patterns = string_set(*family.openings, *family.dropped, *family.ends, opening, *answer)
        word = yield from self.feed.until(patterns, self.writer.content)
        if word in family.openings:
            yield from self._attempt(word, self._call(word))
        elif word:
            self.writer.border()
            self.thinking = word == opening
        return bool(word)

    def _thoughts(self) -> Wait[bool]:
        """Reads reasoning up to and including the next marker; returns False at the end."""
        family, (_, closing) = self.family, self.family.thinking or ("", "")
        openings = family.openings if family.calls_end_thoughts else ()
        self._had_thoughts = True
        word = yield from self.feed.until(string_set(*openings, closing, *family.ends), self.writer.reasoning)
        if word in openings:
            yield from self._attempt(word, self._call(word))
        elif word:
            self.writer.border()
            self.thinking = False
        return bool(word)

    def _call(self, word: str) -> Wait[None]:
        """Reads a call after its opening marker."""
        yield from follow(self, self.family.call[word == self.family.call[0] :])

    def _attempt(self, word: str, call: Wait[None]) -> Wait[None]:
        """Reads a call; if the text is not a valid call, it becomes text again."""
        self.feed.hold(word)
        self.called = False
        try:
            yield from call
            if self.called:
                yield from self.feed.run(SPACE)
                yield from self.feed.literal(*self.family.closes)
            self.feed.release()
        except InvalidCall:
            if self.writer.calling:
                self.writer.end(complete=False)
                self.called = True
            (self.writer.reasoning if self.thinking and not self.called else self.writer.content)(
                self.feed.release()
            )
        self.thinking = self.thinking and not self.called


def parser_for(
    family: Family | str,
    *,
    tools: Sequence[object] | None = None,
    starts_in_reasoning: bool = False,
    new_id: Callable[[], str] = random_id,
) -> OutputParser:
    """A parser for the output of one request.

    `tools` are in OpenAI's format: their schemas give the types of tagged values, and their names decide
    which JSON without a marker is a call (None: any that has the form of a call; empty: none).
    `starts_in_reasoning`: see `opens_reasoning`. `new_id` makes the id of a call without one. Raises
    UnsupportedModelError for an unknown family.
    """
    return OutputParser(
        family_named(family) if isinstance(family, str) else family,
        schemas=None if tools is None else tool_schemas(tools),
        starts_in_reasoning=starts_in_reasoning,
        new_id=new_id,
    )
