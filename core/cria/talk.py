"""A conversation: its messages, and the tools on offer."""

from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
Tool = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A conversation in OpenAI's format; `tools` are the template's variable of that name."""

    messages: list[Message]
    tools: tuple[Tool, ...] = ()


def user(text: str) -> Message:
    """A message of role user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """A message of role assistant."""
    return {"role": "assistant", "content": text}


def exchange(question: str, answer: str) -> list[Message]:
    """The two messages of a question and its answer."""
    return [user(question), assistant(answer)]
