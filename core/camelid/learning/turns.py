"""Earlier turns: the nearest approved answers put before a conversation."""

from __future__ import annotations

from collections.abc import Sequence

from camelid.learning.items import Item, Message
from camelid.learning.memory import N_TURNS, Recall


def with_turns(messages: Sequence[Message], recall: Recall) -> list[Message]:
    """The conversation with the nearest items' last question and right answer before its first turn.

    The nearest stands last, and the system message stays first. Of items with a conversation before their
    question, only those are used whose question alone asks the same: others need what was said.
    """
    n_system = int(bool(messages) and messages[0].get("role") == "system")
    usable = [item for item in recall.items if is_single(item)][:N_TURNS]
    turns = [turn for item in reversed(usable) for turn in turn_of(item)]
    return [*messages[:n_system], *turns, *messages[n_system:]]


def is_single(item: Item) -> bool:
    """True for a prompt of one user message, perhaps behind a system message."""
    roles = [message.get("role") for message in item.exchange.messages]
    return roles in (["user"], ["system", "user"])


def turn_of(item: Item) -> tuple[Message, Message]:
    """A question and its right answer."""
    assert item.approved, "an item that acts has a right answer"
    return item.exchange.messages[-1], item.approved
