"""From a sequence's ids to what its stream shows: text, and in a conversation thoughts and tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from camelid.requests.completion import SourceFactory
from camelid.text.tokenizers.detokenize import StopMatcher, StreamDecoder, TokenBytes
from camelid.text.toolcalls.parts import Content, Part

if TYPE_CHECKING:  # a prompt of text needs no parser
    from camelid.text.toolcalls.parser import OutputParser


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation's ids up to where the answer begins, and what reads the answer."""

    token_ids: list[int]
    answer: SourceFactory


class NoText:
    """For models without a tokenizer, and for requests that only want logits."""

    stopped = False

    def push(self, token_id: int) -> str:  # noqa: ARG002
        """No text, whatever the id."""
        return ""

    def flush(self) -> str:
        """Nothing is held back."""
        return ""

    def take(self) -> tuple[Part, ...]:
        """Nothing."""
        return ()


class OutputText:
    """Whole characters only, and nothing of a stop string.

    `after` is the prompt's last id, if it has one. An answer behind a control token opens a text of its own;
    behind text it goes on with that, and keeps a space that it begins with.
    """

    def __init__(self, tokenizer: TokenBytes, stops: tuple[str, ...], *, after: int | None = None) -> None:
        self.stopped = False
        self._decoder = StreamDecoder(tokenizer, opens=after is None or tokenizer.is_control(after))
        self._matcher = StopMatcher(stops)

    def push(self, token_id: int) -> str:
        """The text that may be shown by now."""
        return self._match(self._decoder.push(token_id))

    def flush(self) -> str:
        """What was held back."""
        return self._match(self._decoder.finish()) + self._matcher.finish()

    def take(self) -> tuple[Part, ...]:
        """Nothing: the text is not looked into."""
        return ()

    def _match(self, text: str) -> str:
        shown, self.stopped = self._matcher.push(text)
        return shown


class ChatOutput:
    """The answer to a conversation: its text without thoughts and tool calls, which `take` gives."""

    def __init__(self, text: OutputText, parser: OutputParser) -> None:
        self._text = text
        self._parser = parser
        self._parts: list[Part] = []

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self._text.stopped

    def push(self, token_id: int) -> str:
        """The content that may be shown by now."""
        return self._content(self._parser.push(self._text.push(token_id)))

    def flush(self) -> str:
        """The content that was held back."""
        return self._content(self._parser.push(self._text.flush()) + self._parser.finish())

    def take(self) -> tuple[Part, ...]:
        """The parts since the last call."""
        parts, self._parts = tuple(self._parts), []
        return parts

    def _content(self, parts: list[Part]) -> str:
        self._parts += parts
        return "".join(part.text for part in parts if isinstance(part, Content))


@dataclass(frozen=True, slots=True)
class MarkerTokenizer:
    """A tokenizer some of whose control tokens are text: markers that a parser must see."""

    tokenizer: TokenBytes
    markers: frozenset[int]

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for."""
        return self.tokenizer.token_bytes(token_id)

    def opening_bytes(self, token_id: int) -> bytes:
        """The same at the beginning of a text."""
        return self.tokenizer.opening_bytes(token_id)

    def is_control(self, token_id: int) -> bool:
        """Whether the token is hidden."""
        return token_id not in self.markers and self.tokenizer.is_control(token_id)
