"""Token ids of an answer to events and a completion: text, stop sequences, reasoning, tool calls."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from camelid.engine.results import FinishReason as EngineFinishReason
from camelid.engine.results import Generation, Timings, Token, Usage
from camelid.engine.stream import Stream
from camelid.errors import RequestError
from camelid.images.decode import ImageFile
from camelid.text.tokenizers.pipeline import StreamDecoder, TokenBytes
from camelid.text.toolcalls.parts import Content, Part, ToolCall, gather

if TYPE_CHECKING:  # a text prompt needs no parser
    from camelid.text.toolcalls.parser import OutputParser

FinishReason: TypeAlias = EngineFinishReason | Literal["tool_calls"]


@dataclass(frozen=True, slots=True)
class Event:
    """One token of the answer and the text that it completes.

    `text` is empty while bytes of a character, or a possible stop sequence, are withheld. Text withheld until
    the end token makes a last event without a token id. In a conversation, `parts` also hold reasoning and
    tool calls. `top_logprobs` are the likeliest tokens at this position, where the request asks for
    `logprobs`. Log-probabilities are natural, of the model's distribution before any sampler.
    """

    text: str
    token_id: int | None
    logprob: float
    parts: tuple[Part, ...] = ()
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A finished answer. `token_ids` exclude the end token; `text` ends before a stop sequence.

    `finish_reason` is "stop" for an end token, a stop sequence or the end of a grammar; "length" at
    `max_tokens` or a full context; "tool_calls" where complete tool calls end the answer. A completion with
    "timeout" or "cancelled" holds the answer up to that moment.

    In a conversation `reasoning` and `tool_calls` are the parts that the model's family marks as such; `text`
    is the rest. `stop_sequence` is the stop sequence that ended the answer, if one did. `id` is random.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    seed: int
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop_sequence: str | None = None
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}", compare=False)


def answer_message(done: Completion) -> dict[str, object]:
    """The answer as a message of a conversation. Incomplete tool calls are left out: they cannot be run."""
    calls = [_call(call) for call in done.tool_calls if call.complete]
    more: dict[str, object] = {"reasoning_content": done.reasoning} if done.reasoning else {}
    return {"role": "assistant", "content": done.text, **more, **({"tool_calls": calls} if calls else {})}


def _call(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


TextStream: TypeAlias = Stream[Event, Completion]


class TextSource(Protocol):
    """Turns token ids into text as they come."""

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that was read."""
        ...

    def push(self, token_id: int) -> str:
        """Text that may be shown after this token."""
        ...

    def flush(self) -> str:
        """Withheld text; no token follows."""
        ...

    def take(self) -> tuple[Part, ...]:
        """Parts of a conversation's answer since the last call: content, reasoning, tool calls."""
        ...


SourceFactory: TypeAlias = Callable[[tuple[str, ...]], TextSource]  # from stop sequences


class TextReader:
    """The engine's output reader for text: events with text, and a completion at the end."""

    def __init__(self, source: TextSource) -> None:
        self._source = source
        self._shown = ""  # text of the token read last
        self._texts: list[str] = []
        self._parts: list[Part] = []

    @property
    def stopped(self) -> bool:
        """True once a stop sequence was read."""
        return self._source.stop_sequence is not None

    def push(self, token_id: int) -> None:
        """Reads one token of the answer."""
        self._shown = self._source.push(token_id)

    def event(self, token: Token | None, *, is_last: bool) -> Event | None:
        """The event of a token, or of text withheld until the end (None if no text was withheld)."""
        shown, self._shown = self._shown, ""
        text = shown + self._source.flush() if is_last else shown
        parts = self._source.take()
        self._texts.append(text)
        self._parts += parts
        if token:
            return Event(text, token.token_id, token.logprob, parts, token.top_logprobs)
        return Event(text, None, 0.0, parts) if text or parts else None

    def completion(self, generation: Generation) -> Completion:
        """The complete answer. Complete tool calls turn the finish reason "stop" into "tool_calls"."""
        message = gather(self._parts)
        calls = any(call.complete for call in message.tool_calls)
        reason = generation.finish_reason
        return Completion(
            text="".join(self._texts),
            token_ids=generation.token_ids,
            finish_reason="tool_calls" if calls and reason == "stop" else reason,
            usage=generation.usage,
            timings=generation.timings,
            seed=generation.seed,
            reasoning=message.reasoning,
            tool_calls=message.tool_calls,
            stop_sequence=self._source.stop_sequence,
        )


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation's token ids up to the answer, and the factory of the answer's text source.

    `calls` describe the grammar of the answer's tool calls, if the request has one. `images` belong to the
    markers among the token ids, in order. `messages` and `tools` are those that were rendered, where known.
    """

    token_ids: list[int]
    answer: SourceFactory
    calls: Mapping[str, object] | None = None
    images: tuple[ImageFile, ...] = ()
    messages: Sequence[Mapping[str, object]] = ()
    tools: Sequence[Mapping[str, object]] = ()


class NoText:
    """The text source of a model without a tokenizer: always empty."""

    stop_sequence = None

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
        self._decoder = StreamDecoder(tokenizer, opens=after is None or tokenizer.is_control(after))
        self._matcher = StopMatcher(stops)

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that was read."""
        return self._matcher.found

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
        return self._matcher.push(text)[0]


class ChatOutput:
    """The text source of a conversation's answer; `take` returns reasoning and tool calls as parts."""

    def __init__(self, text: OutputText, parser: OutputParser) -> None:
        self._text = text
        self._parser = parser
        self._parts: list[Part] = []

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that was read."""
        return self._text.stop_sequence

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


class StopMatcher:
    """Cuts text at the first stop sequence, independent of the borders of tokens.

    The stop sequence that ends first counts; of several, the longest. So the result does not depend on the
    borders of tokens. Knuth-Morris-Pratt: the work per character does not depend on the sequences' length.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise RequestError("a stop sequence is empty, which would stop at once; remove it", field="stop")
        self._stops = list(dict.fromkeys(stops))
        self._failures = [_failure_table(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)
        self._held = ""
        self.found: str | None = None  # the stop sequence that was found

    def push(self, text: str) -> tuple[str, bool]:
        """The text that is free of stop sequences by now, and True if a stop sequence was found."""
        if self.found:
            return "", True
        self._held += text
        for end in range(len(self._held) - len(text), len(self._held)):
            length = self._advance(self._held[end])
            if length:
                border = end + 1 - length
                shown, self.found, self._held = self._held[:border], self._held[border : end + 1], ""
                return shown, True
        border = len(self._held) - max(self._matched, default=0)
        shown, self._held = self._held[:border], self._held[border:]
        return shown, False

    def finish(self) -> str:
        """The text that was held back as the possible beginning of a stop sequence."""
        shown, self._held = self._held, ""
        return shown

    def _advance(self, char: str) -> int:
        """Advances every stop sequence by one character; returns the length of the longest match, or 0."""
        complete = 0
        for i, (stop, failure) in enumerate(zip(self._stops, self._failures, strict=True)):
            matched = self._matched[i]
            while matched and stop[matched] != char:
                matched = failure[matched - 1]
            self._matched[i] = matched = matched + (stop[matched] == char)
            if matched == len(stop):
                complete = max(complete, matched)
        return complete


def _failure_table(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper prefix that is also its suffix."""
    table = [0] * len(stop)
    matched = 0
    for i in range(1, len(stop)):
        while matched and stop[matched] != stop[i]:
            matched = table[matched - 1]
        matched += stop[matched] == stop[i]
        table[i] = matched
    return table
