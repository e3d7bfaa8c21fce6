"""Items of feedback and past requests as plain values, and their commitments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from camelid.errors import RequestError, shown
from camelid.learning.calls import fault_of_calls

Message: TypeAlias = Mapping[str, Any]
MOST_BYTES = 1 << 20  # of one item as JSON
MARKS = ("is_learnt", "is_undecided")  # of an exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A finished request: its messages and tools, the answer as a message, and the answer's token ids.

    `prompt_ids` are the token ids that the model read; neither they nor `answer_ids` need be known.
    `is_learnt` is True for an answer that memory or a version acted on, `is_undecided` for one near feedback
    before memory's scope was fitted.
    """

    completion_id: str
    messages: tuple[Message, ...]
    answer: Message
    tools: tuple[Message, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    answer_ids: tuple[int, ...] = ()
    is_learnt: bool = False
    is_undecided: bool = False

    @property
    def question(self) -> str:
        """The text of the last user message."""
        return question_of(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One piece of feedback: an exchange, a rating of +1 or -1, and perhaps the right answer.

    `source` names who gave it. `id` is its number in the log, from 1 on; 0 before it is stored. `wall` is
    the wall clock's time in seconds, which may jump: the order of items is that of their ids.
    """

    exchange: Exchange
    rating: int
    correction: Message | None = None
    source: str = "local"
    id: int = 0
    wall: float = 0.0

    @property
    def approved(self) -> Message | None:
        """The answer to give: the correction, or an answer rated +1; none whose calls its tools refuse."""
        right = self.correction or (self.exchange.answer if self.rating > 0 else None)
        return None if right is None or fault_of_calls(right, self.exchange.tools) else right

    @property
    def refused(self) -> Message | None:
        """The answer not to give."""
        return self.exchange.answer if self.rating < 0 else None

    def stored(self, id: int, wall: float) -> Item:
        """The stored item."""
        return replace(self, id=id, wall=wall)


def question_of(messages: Sequence[Message]) -> str:
    """The text of the last user message; of the last message, if no user wrote one."""
    users = [message for message in messages if message.get("role") == "user"]
    last = (users or list(messages))[-1:]
    return text_of(last[0]) if last else ""


def text_of(message: Message) -> str:
    """The text of a message, joined from its parts if it has parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


def same_answer(a: Message, b: Message) -> bool:
    """True for answers of equal text, up to spaces at the ends, and equal tool calls, up to their ids."""
    return answer_key(a) == answer_key(b)


def answer_key(answer: Message) -> str:
    """The text by which answers are equal: words and tool calls, without ids and outer spaces."""
    calls = [_call_key(call) for call in answer.get("tool_calls") or ()]
    return json.dumps([text_of(answer).strip(), calls], ensure_ascii=False)


def _call_key(call: Mapping[str, Any]) -> list[Any]:
    function: Mapping[str, Any] = call.get("function") or {}
    arguments = function.get("arguments", "")
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        parsed = arguments
    return [function.get("name", ""), json.dumps(parsed, sort_keys=True, ensure_ascii=False)]


def checked_rating(rating: object) -> int:
    """Raises RequestError for a rating other than +1 and -1."""
    if type(rating) is int and rating in (1, -1):
        return rating
    raise RequestError(f"rating is {shown(rating)}, expected +1 or -1", field="rating")


def checked_correction(correction: object) -> Message | None:
    """The right answer as a message, from a text or a message. Raises RequestError for any other value."""
    if correction is None:
        return None
    if isinstance(correction, str) and correction.strip():
        return {"role": "assistant", "content": correction}
    if isinstance(correction, Mapping):
        fields = cast("Mapping[str, Any]", correction)
        if fields.get("content") or fields.get("tool_calls"):
            return {**fields, "role": "assistant"}
    raise RequestError(
        f"correction is {shown(cast('object', correction))}, expected the right answer as text, or as a "
        "message with content or tool_calls",
        field="correction",
    )


def check_calls(item: Item) -> None:
    """Raises RequestError for an approved answer whose calls the request's tools refuse."""
    right = item.correction or (item.exchange.answer if item.rating > 0 else {})
    fault = fault_of_calls(right, item.exchange.tools)
    if fault:
        way = "correct the call" if item.correction else "rate the answer -1, or give a correction"
        raise RequestError(
            f"{fault}, so that this call cannot be right; {way}",
            field="correction" if item.correction else "rating",
        )


def exchange_body(exchange: Exchange) -> dict[str, Any]:
    """An exchange as JSON values."""
    return {
        "completion_id": exchange.completion_id,
        "messages": list(exchange.messages),
        "answer": exchange.answer,
        "tools": list(exchange.tools),
        "prompt_ids": list(exchange.prompt_ids),
        "answer_ids": list(exchange.answer_ids),
    } | {name: True for name in MARKS if getattr(exchange, name)}


def item_body(item: Item) -> str:
    """An item as canonical JSON, without its id. Raises RequestError for one that is too large or no JSON."""
    body = exchange_body(item.exchange) | {
        "rating": item.rating, "correction": item.correction, "source": item.source,
    }  # fmt: skip
    return checked_json(body)


def checked_json(body: object) -> str:
    """Canonical JSON. Raises RequestError for a value that JSON lacks, and beyond MOST_BYTES."""
    try:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        n_bytes = len(text.encode())
    except (TypeError, ValueError) as error:  # a lone surrogate is a ValueError
        raise RequestError(
            f"the conversation is no JSON: {error}; images and other objects cannot be learnt from",
            field="messages",
        ) from error
    if n_bytes > MOST_BYTES:
        raise RequestError(
            f"the conversation has {n_bytes} bytes as JSON, at most {MOST_BYTES} are stored; give feedback "
            "on a shorter one",
            field="messages",
        )
    return text


def read_exchange(body: Mapping[str, Any]) -> Exchange:
    """The exchange of `exchange_body`."""
    return Exchange(
        completion_id=body["completion_id"],
        messages=tuple(body["messages"]),
        answer=body["answer"],
        tools=tuple(body["tools"]),
        prompt_ids=tuple(body["prompt_ids"]),
        answer_ids=tuple(body["answer_ids"]),
        **{name: body.get(name, False) for name in MARKS},
    )


def read_item(id: int, wall: float, text: str) -> Item:
    """The item of `item_body`."""
    body = json.loads(text)
    return Item(
        exchange=read_exchange(body), rating=body["rating"], correction=body["correction"],
        source=body["source"], id=id, wall=wall,
    )  # fmt: skip


def commitment(salt: bytes, text: str) -> bytes:
    """A hash that binds an item's text and, once its salt is deleted, tells nothing about the text."""
    return hashlib.sha256(salt + text.encode()).digest()
