"""A user's own checks: questions with their right answers, of which a candidate may lose at most two.

A file has one JSON object a line: `prompt`, or `messages` and perhaps `tools`, and `answer`, the right answer
as a text or a message, or a list of them. A check that the base fails can be no loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

from camelid.errors import RequestError, shown
from camelid.learning.gate import Graded
from camelid.learning.items import Message, answer_key, checked_correction
from camelid.learning.training import Question

MOST_BYTES = 16 << 20
KEYS = ("prompt", "messages", "tools", "answer")


def read_checks(path: str | PathLike[str]) -> tuple[Graded, ...]:
    """The checks of a file. Raises RequestError, with the line, for a file that cannot be read or is none."""
    try:
        with Path(path).open("rb") as file:
            found = file.read(MOST_BYTES + 1)
        if len(found) > MOST_BYTES:
            raise RequestError(f"it has more than {MOST_BYTES} bytes", field="learn_checks")
        return tuple(_checks(found.decode()))
    except OSError as error:
        fault = error.strerror or str(error)
    except UnicodeDecodeError:
        fault = "it is no UTF-8 text"
    except RequestError as error:
        fault = error.message
    raise RequestError(f"checks {str(path)!r:.200}: {fault}", field="learn_checks") from None


def _checks(text: str) -> Iterator[Graded]:
    for n, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield _check(json.loads(line))
        except (ValueError, RecursionError):
            raise RequestError(f"line {n} is no JSON", field="learn_checks") from None
        except RequestError as error:
            raise RequestError(f"line {n}: {error.message}", field="learn_checks") from None


def _check(found: object) -> Graded:
    if not isinstance(found, Mapping):
        raise _fault(f"it is {shown(found)}, expected an object")
    fields = cast("Mapping[str, object]", found)
    unknown = sorted(fields.keys() - set(KEYS))
    if unknown:
        raise _fault(f"{unknown[0]!r} is unknown; known: {', '.join(KEYS)}")
    keys = _answer_keys(fields.get("answer"))
    return _question(fields), lambda answer: answer_key(answer) in keys


def _question(fields: Mapping[str, object]) -> Question:
    prompt, messages = fields.get("prompt"), fields.get("messages")
    if isinstance(prompt, str) and prompt and messages is None:
        return Question(messages=({"role": "user", "content": prompt},), tools=_list(fields, "tools"))
    if prompt is not None or not messages:
        raise _fault("it needs a text as prompt, or messages")
    return Question(messages=_list(fields, "messages"), tools=_list(fields, "tools"))


def _list(fields: Mapping[str, object], name: str) -> tuple[Message, ...]:
    if fields.get(name) is None:
        return ()
    found = cast("Any", fields[name])
    if isinstance(found, list) and all(isinstance(item, Mapping) for item in cast("list[object]", found)):
        return tuple(cast("list[Message]", found))
    raise _fault(f"{name} is {shown(fields[name])}, expected a list of objects")


def _answer_keys(answer: object) -> frozenset[str]:
    """The keys of all right answers."""
    each: list[Any] = cast("list[Any]", answer) if isinstance(answer, list) else [answer]
    try:
        found = [checked_correction(one) for one in each]
    except RequestError:
        found = []
    if not found or None in found:
        wanted = "a text, a message with content or tool_calls, or a list of them"
        raise _fault(f"answer is {shown(cast('object', answer))}, expected {wanted}")
    return frozenset(answer_key(one) for one in found if one)


def _fault(words: str) -> RequestError:
    return RequestError(words, field="learn_checks")
