"""One conversation: its messages, and the tools that its first message offers."""

from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
Tool = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """Messages in OpenAI's shape; `tools` as a chat template takes them."""

    messages: list[Message]
    tools: tuple[Tool, ...] = ()


def user(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """A message of the assistant."""
    return {"role": "assistant", "content": text}


def exchange(question: str, answer: str) -> list[Message]:
    """A question and its answer."""
    return [user(question), assistant(answer)]
