"""A user's own checks: questions with their right answers, which count as past requests at the gate.

A file has one JSON object a line: `prompt`, or `messages` and perhaps `tools`, and `answer`, the right answer
as a text or a message, or a list of them. A prompt is one message of a user; a model without a chat template
takes `{"content": TEXT}` alone as messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

from camelid.errors import RequestError, shown
from camelid.learning.calls import fault_of_calls
from camelid.learning.items import Message, answer_key, checked_correction
from camelid.learning.retention import Check
from camelid.learning.training import Question
from camelid.requests.messages import checked_messages, checked_tools

MOST_CHECKS, MOST_BYTES = 2000, 8 << 20
KEYS = ("prompt", "messages", "tools", "answer")


def read_checks(path: str | PathLike[str]) -> tuple[Check, ...]:
    """The checks of a file. Raises RequestError, with the line, for a file without checks or with a faulty
    one, and for one that cannot be read.
    """
    try:
        return tuple(_checks(_text(path)))
    except OSError as error:
        fault = error.strerror or str(error)
    except ValueError as error:  # a name with a zero byte, or bytes that are no text
        fault = f"it is no UTF-8 text ({error})"
    except RequestError as error:
        fault = error.message
    raise RequestError(f"checks {str(path)!r:.200}: {fault}", field="learn_checks") from None


def _text(path: str | PathLike[str]) -> str:
    with Path(path).open("rb") as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise _fault(f"it has more than {MOST_BYTES} bytes")
    return found.decode("utf-8-sig")


def _checks(text: str) -> Iterator[Check]:
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not 0 < len(lines) <= MOST_CHECKS:
        raise _fault(f"it has {len(lines)} checks, expected 1 to {MOST_CHECKS}")
    for n, line in lines:
        try:
            yield _check(json.loads(line), n)
        except (ValueError, RecursionError):
            raise _fault(f"line {n} is no JSON") from None
        except RequestError as error:
            raise _fault(f"line {n}: {error.message}") from None


def _check(found: object, line: int) -> Check:
    if not isinstance(found, Mapping):
        raise _fault(f"it is {shown(found)}, expected an object")
    fields = cast("Mapping[str, Any]", found)
    unknown = sorted(fields.keys() - set(KEYS))
    if unknown:
        raise _fault(f"{shown(unknown[0])} is unknown; known: {', '.join(KEYS)}")
    tools = tuple(checked_tools(fields.get("tools")) or ())
    keys = frozenset(answer_key(answer) for answer in _answers(fields.get("answer"), tools))
    question = Question(messages=_messages(fields), tools=tools, completion_id=f"check of line {line}")
    return question, lambda answer: answer_key(answer) in keys


def _messages(fields: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages of a check: of a prompt, a plain text without a role, or a conversation of texts."""
    prompt, messages = fields.get("prompt"), fields.get("messages")
    if isinstance(prompt, str) and prompt and messages is None:
        return ({"role": "user", "content": prompt},)
    if prompt is not None or not isinstance(messages, list) or not messages:
        raise _fault("it needs a text as prompt, or a list of messages")
    given = cast("list[Any]", messages)
    is_text = len(given) == 1 and isinstance(given[0], dict) and "role" not in given[0]
    checked_messages([{"role": "user", **cast("Message", given[0])}] if is_text else given)
    if any(_has_images(message) for message in given):
        raise _fault("it has an image; checks have texts alone")
    return tuple(given)


def _has_images(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part["type"] != "text" for part in cast("list[Any]", content))


def _answers(answer: object, tools: tuple[Message, ...]) -> Iterator[Message]:
    """The right answers. Raises RequestError for one that no answer can equal."""
    each = cast("list[object]", answer) if isinstance(answer, list) else [answer]
    if not each or None in each:
        wanted = "a text, a message with content or tool_calls, or a list of them"
        raise _fault(f"answer is {shown(cast('object', answer))}, expected {wanted}")
    for one in each:
        found = checked_correction(one)
        assert found, "an answer is given"
        checked_messages([found])
        if fault := fault_of_calls(found, tools):
            raise _fault(f"{fault}, so that this call cannot be right")
        yield found


def _fault(words: str) -> RequestError:
    return RequestError(words, field="learn_checks")
