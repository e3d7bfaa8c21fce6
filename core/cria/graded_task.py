"""A graded conversation of the second edition's skills. Not edited once training began."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cria.talk import Talk

CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def same_text(answer: str, want: str) -> bool:
    """Equal, blanks at the ends aside."""
    return answer.strip() == want


def canonical(text: str) -> str | None:
    """JSON text with its keys in order, so that true is not 1; None if it is no JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return None


def same_json(answer: str, want: str) -> bool:
    """The whole answer is JSON and means the same; the order of keys is free."""
    return canonical(answer) == canonical(want)


def same_call(answer: str, want: str) -> bool:
    """One call and nothing else, of the same tool with the same arguments."""
    found = CALL.fullmatch(answer.strip())
    return found is not None and canonical(found[1]) == canonical(want)


CHECKS: dict[str, Callable[[str, str], bool]] = {"text": same_text, "json": same_json, "call": same_call}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A conversation that waits for the assistant, the answer wanted, and how the two are compared."""

    skill: str
    talk: Talk
    want: str
    check: str = "text"
    known: bool = True

    @property
    def prompt(self) -> str:
        """The last message."""
        return self.talk.messages[-1]["content"]

    def passed(self, answer: str) -> bool:
        """Whether an answer is right."""
        return CHECKS[self.check](answer, self.want)


def call_text(call: dict[str, Any]) -> str:
    """A call as `same_call` wants it."""
    return json.dumps(call, ensure_ascii=False)
