"""`/set`: request options under the names of the Python API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from camelid.cli.sampling_flags import bias
from camelid.errors import RequestError, shown
from camelid.requests.build import ENGINE_NAMES, checked_stops, engine_options
from camelid.requests.options import Options
from camelid.sampling.params import CHECKS

Check = Callable[[str, Any], object]
UNSET = "default"
NAMES = tuple(sorted(set(Options.__annotations__) - {"special"}))  # `special` applies to text prompts only
TEXTS = ("cache_salt", "grammar", "overflow", "regex", "speculate")  # values never parsed as JSON


def read_setting(name: str, text: str) -> object:
    """The value of an option, checked as far as possible before a request. Raises RequestError."""
    if name not in NAMES:
        raise RequestError(f"option {name!r} is unknown; known: {', '.join(NAMES)}", field=name)
    value = text if name in TEXTS else _value(text)
    if name == "logit_bias":
        value = [bias(word) for word in text.split()]
    if name in CHECKS:
        return CHECKS[name].read(name, value)
    if name in ENGINE_NAMES:
        engine_options({name: value})
    return OWN_CHECKS[name](name, value) if name in OWN_CHECKS else value


def _value(text: str) -> object:
    """The parsed JSON value, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _count(name: str, value: object) -> object:
    if type(value) is int and value > 0:
        return value
    raise RequestError(f"{name} is {shown(value)}, expected an integer above 0", field=name)


def _flag(name: str, value: object) -> object:
    if isinstance(value, bool):
        return value
    raise RequestError(f"{name} is {shown(value)}, expected true or false", field=name)


OWN_CHECKS: Mapping[str, Check] = {
    "max_tokens": _count,
    "ignore_eos": _flag,
    "stop": lambda name, value: checked_stops(value),
}
