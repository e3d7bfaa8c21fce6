"""The inputs of a template as plain data: untrusted text without methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from camelid.text.templates.values import Bound, Budget, checked_depth, is_list, trusted

# Variables from the model's file, whose text is trusted: never taken from a request.
TOKEN_VARIABLES = frozenset({"bos_token", "eos_token", "pad_token", "unk_token"})
FUNCTION_VARIABLES = frozenset({"strftime_now"})
# The keys of a message's reasoning, as in transformers; the first key present counts.
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
SCALARS = (str, int, float, bool, type(None))


def admitted(name: str, value: object, budget: Budget) -> object:
    """The value as the template sees it: special tokens trusted, functions callable, other values plain."""
    if name in TOKEN_VARIABLES and isinstance(value, str):
        return trusted(value)
    if name in FUNCTION_VARIABLES and callable(value):
        return Bound(name, value)
    return plain(value, budget)


def conversation(messages: Iterable[object], budget: Budget) -> list[object]:
    """The messages as plain data, each message's reasoning under both keys that templates read."""
    return [with_reasoning(plain(message, budget)) for message in messages]


def with_reasoning(message: object) -> object:
    if not isinstance(message, dict):
        return message
    known = cast("dict[str, object]", message)
    found = next((known[key] for key in REASONING_KEYS if known.get(key) is not None), None)
    return known if found is None else {"thinking": found, **known, "reasoning_content": found}


def plain(value: object, budget: Budget, depth: int = 0) -> object:
    """The same value in exact JSON types; any other object becomes its type's name in angle brackets.

    Raises TemplateError for lists and dicts nested too deep. Each item is charged once per occurrence.
    """
    if isinstance(value, Mapping):
        checked_depth(depth)
        pairs = cast("Mapping[object, object]", value)
        budget.spend(len(pairs))
        return {scalar(key): plain(item, budget, depth + 1) for key, item in pairs.items()}
    if is_list(value):
        checked_depth(depth)
        budget.spend(len(value))
        items = [plain(item, budget, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return scalar(value)


def scalar(value: object) -> object:
    if type(value) in SCALARS:
        return value
    return next(
        (kind(value) for kind in (str, int, float) if isinstance(value, kind)), f"<{type(value).__name__}>"
    )
