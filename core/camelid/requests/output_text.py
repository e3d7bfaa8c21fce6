"""Turns a sequence's token ids into text, and in a conversation into reasoning and tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from camelid.requests.completion import SourceFactory
from camelid.text.tokenizers.detokenize import StopMatcher, StreamDecoder, TokenBytes
from camelid.text.toolcalls.parts import Content, Part

if TYPE_CHECKING:  # a text prompt needs no parser
    from camelid.text.toolcalls.parser import OutputParser


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation's token ids up to the answer, and the factory of the answer's text source."""

    token_ids: list[int]
    answer: SourceFactory


class NoText:
    """The text source of a model without a tokenizer: always empty."""

    stopped = False

    def push(self, token_id: int) -> str:  # noqa: ARG002
        """Always empty."""
        return ""

    def flush(self) -> str:
        """Always empty."""
        return ""

    def take(self) -> tuple[Part, ...]:
        """Always empty."""
        return ()


class OutputText:
    """The text source of a plain answer: whole characters, up to the first stop sequence.

    `after` is the prompt's last token id; None for an empty prompt. An answer after a control token opens a
    new text; after any other token it continues the prompt's text and keeps its leading space.
    """

    def __init__(self, tokenizer: TokenBytes, stops: tuple[str, ...], *, after: int | None = None) -> None:
        self.stopped = False
        self._decoder = StreamDecoder(tokenizer, opens=after is None or tokenizer.is_control(after))
        self._matcher = StopMatcher(stops)

    def push(self, token_id: int) -> str:
        """Text that may be shown after this token."""
        return self._match(self._decoder.push(token_id))

    def flush(self) -> str:
        """Withheld text; no token follows."""
        return self._match(self._decoder.finish()) + self._matcher.finish()

    def take(self) -> tuple[Part, ...]:
        """Always empty: plain text has no parts."""
        return ()

    def _match(self, text: str) -> str:
        shown, self.stopped = self._matcher.push(text)
        return shown


class ChatOutput:
    """The text source of a conversation's answer; `take` returns reasoning and tool calls as parts."""

    def __init__(self, text: OutputText, parser: OutputParser) -> None:
        self._text = text
        self._parser = parser
        self._parts: list[Part] = []

    @property
    def stopped(self) -> bool:
        """True once a stop sequence was read."""
        return self._text.stopped

    def push(self, token_id: int) -> str:
        """Content that may be shown after this token."""
        return self._content(self._parser.push(self._text.push(token_id)))

    def flush(self) -> str:
        """Withheld content; no token follows."""
        return self._content(self._parser.push(self._text.flush()) + self._parser.finish())

    def take(self) -> tuple[Part, ...]:
        """Parts since the last call."""
        parts, self._parts = tuple(self._parts), []
        return parts

    def _content(self, parts: list[Part]) -> str:
        self._parts += parts
        return "".join(part.text for part in parts if isinstance(part, Content))


@dataclass(frozen=True, slots=True)
class MarkerTokenizer:
    """A tokenizer that shows some control tokens as text: the markers that a parser reads."""

    tokenizer: TokenBytes
    markers: frozenset[int]

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of the token."""
        return self.tokenizer.token_bytes(token_id)

    def opening_bytes(self, token_id: int) -> bytes:
        """Bytes of the token at the beginning of a text."""
        return self.tokenizer.opening_bytes(token_id)

    def is_control(self, token_id: int) -> bool:
        """True if the token's text is hidden."""
        return token_id not in self.markers and self.tokenizer.is_control(token_id)
