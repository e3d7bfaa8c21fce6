"""One turn of a conversation: its messages and prompt, and the part of the answer that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from camelid.errors import RequestError
from camelid.requests.chat import RenderedChat, TextOf
from camelid.requests.messages import checked_messages
from camelid.requests.options import Message
from camelid.requests.output_text import Completion, OutputText
from camelid.requests.transcript import Rendering, Transcript
from camelid.text.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn whose answer has begun: new messages, transcript up to the answer, stop sequences.

    `text_of` turns the answer's token ids into text. The transcript lacks the `n_forgotten` oldest messages
    after the system message.
    """

    messages: list[Message]
    transcript: Transcript
    text_of: TextOf
    stops: tuple[str, ...]
    n_forgotten: int = 0


def text_messages(role: str, text: str | None) -> list[Message]:
    """One message of this text; none for None."""
    return [] if text is None else [{"role": role, "content": text}]


def n_system(messages: Sequence[Message]) -> int:
    """1 if the first message is a system message, else 0."""
    return int(bool(messages) and messages[0].get("role") == "system")


def without_oldest(messages: Sequence[Message], n_forgotten: int) -> list[Message]:
    """The messages without the oldest `n_forgotten`; a system message stays."""
    n = n_system(messages)
    return [*messages[:n], *messages[n + n_forgotten :]]


def forget_next_turn(messages: Sequence[Message], n_forgotten: int) -> int | None:
    """The `n_forgotten` with which the next user message comes first; None if no such message follows."""
    n = n_system(messages)
    later = (i - n for i, m in enumerate(messages) if m.get("role") == "user" and i - n > n_forgotten)
    return next(later, None)


def plain_text(messages: Sequence[Message], tokenizer: Tokenizer, chat: Mapping[str, Any]) -> RenderedChat:
    """The rendering for a model without a chat template: the joined texts of all messages."""
    name = next((name for name, value in chat.items() if value is not None), None)
    if name:
        raise RequestError(
            f"{name} applies to a chat template, and this model's file has none; leave {name} out", field=name
        )
    texts = [content_text(message) for message in checked_messages(messages)]
    rendering = Rendering("".join(texts), message_ends=frozenset(accumulate(map(len, texts))))
    return RenderedChat(rendering, lambda last, stops: OutputText(tokenizer, stops, after=last))


def content_text(message: Mapping[str, Any]) -> str:
    """The text of a message, joined from its parts if it has parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def shown_ids(turn: StartedTurn, done: Completion) -> tuple[list[int], str]:
    """The token ids whose text was shown in full, and the shown part of the next token's text.

    A stop sequence, or an end within a character, leaves token ids whose text was never shown.
    """
    last = next((segment.token_ids[-1] for segment in reversed(turn.transcript) if segment.token_ids), None)
    reader, shown = turn.text_of(last, turn.stops), ""
    for token_id in done.token_ids:
        shown += reader.push(token_id)
    if reader.stop_sequence is None and done.finish_reason in ("stop", "length", "tool_calls"):
        return done.token_ids, ""
    reader, text, n_shown = turn.text_of(last, ()), "", 0
    for i, token_id in enumerate(done.token_ids):
        more = reader.push(token_id)
        if len(text) + len(more) > len(shown):
            break
        text, n_shown = text + more, i + 1 if more else n_shown
    return done.token_ids[:n_shown], shown[len(text) :]
