"""What one turn of a conversation is: how it was asked, and what of the answer counts afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from camelid.errors import RequestError
from camelid.requests.chat import RenderedChat, TextOf
from camelid.requests.completion import Completion
from camelid.requests.messages import checked_messages
from camelid.requests.options import Message
from camelid.requests.output_text import OutputText
from camelid.requests.rendering import Past, Rendering
from camelid.text.tokenizers.tokenizer import Tokenizer
from camelid.text.toolcalls.parts import ToolCall


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn's beginning: what was said, the past up to the answer, and how the answer's ids are read.

    `n_forgotten` messages behind the system's are not part of that past any longer.
    """

    messages: list[Message]
    past: Past
    text_of: TextOf
    stops: tuple[str, ...]
    n_forgotten: int = 0


def said(role: str, text: str | None) -> list[Message]:
    """A message, if there is something to say."""
    return [] if text is None else [{"role": role, "content": text}]


def n_system(messages: Sequence[Message]) -> int:
    """Whether a system message comes first: 1 or 0."""
    return int(bool(messages) and messages[0].get("role") == "system")


def remembered(messages: Sequence[Message], n_forgotten: int) -> list[Message]:
    """The messages without the oldest; the system's stays."""
    n = n_system(messages)
    return [*messages[:n], *messages[n + n_forgotten :]]


def next_turn(messages: Sequence[Message], n_forgotten: int) -> int | None:
    """How many messages to forget in order to begin with the next user's; None if there is none."""
    n = n_system(messages)
    later = (i - n for i, m in enumerate(messages) if m.get("role") == "user" and i - n > n_forgotten)
    return next(later, None)


def plain_text(messages: Sequence[Message], tokenizer: Tokenizer, chat: Mapping[str, Any]) -> RenderedChat:
    """A conversation with a model that has no template: the text of all messages, one behind the other."""
    given = next((name for name, value in chat.items() if value is not None), None)
    if given:
        raise RequestError(f"{given} is for a chat template, and this model has none", field=given)
    texts = [content_text(message) for message in checked_messages(messages)]
    rendering = Rendering("".join(texts), borders=frozenset(accumulate(map(len, texts))))
    return RenderedChat(rendering, lambda last, stops: OutputText(tokenizer, stops, after=last))


def content_text(message: Mapping[str, Any]) -> str:
    """What a message says, of text or of parts of it."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def answer_message(done: Completion) -> Message:
    """The answer as the conversation goes on with it. Calls that were cut off are left out: nobody can run
    them."""
    calls = [_call(call) for call in done.tool_calls if call.complete]
    more: dict[str, object] = {"reasoning_content": done.reasoning} if done.reasoning else {}
    return {"role": "assistant", "content": done.text, **more, **({"tool_calls": calls} if calls else {})}


def _call(call: ToolCall) -> Message:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def spoken(asked: StartedTurn, done: Completion) -> tuple[list[int], str]:
    """The answer's ids as far as their text was shown, and the text of a part of the next one.

    A stop string, or an end before a word was whole, leaves ids behind that nobody saw.
    """
    last = next((piece.token_ids[-1] for piece in reversed(asked.past) if piece.token_ids), None)
    reader, shown = asked.text_of(last, asked.stops), ""
    for token_id in done.token_ids:
        shown += reader.push(token_id)
    if not reader.stopped and done.finish_reason in ("stop", "length", "tool_calls"):
        return done.token_ids, ""
    reader, text, n_kept = asked.text_of(last, ()), "", 0
    for i, token_id in enumerate(done.token_ids):
        piece = reader.push(token_id)
        if len(text) + len(piece) > len(shown):
            break
        text, n_kept = text + piece, i + 1 if piece else n_kept
    return done.token_ids[:n_kept], shown[len(text) :]
