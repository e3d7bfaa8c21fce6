"""A body as a JSON object, within bounds that keep the parser short."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, NoReturn, cast

from camelid.server.http.errors import ApiError

MAX_DEPTH = 200  # nesting
MAX_DIGITS = 300  # of a whole number: more have no float, and take quadratic time
# Python's parser lets other threads run only where it calls the functions below, for a number or an object.
# So a body has no more lists and strings than are read in 0.1 s.
MAX_CONTAINERS = MAX_STRINGS = 1 << 16
MAX_VALUES = 1 << 20


def json_list(body: bytes) -> list[Any]:
    """The body as a JSON list. Raises ApiError 400."""
    value = _parsed(body or b"[]")
    if not isinstance(value, list):
        raise _invalid("the body is not a JSON list")
    items = cast("list[Any]", value)
    _check_tree(items, has_surrogates=b"\\ud" in body.lower())
    return items


def json_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty object. Raises ApiError 400."""
    value = _parsed(body or b"{}")
    if not isinstance(value, dict):
        raise _invalid("the body is not a JSON object")
    fields = cast("dict[str, Any]", value)
    _check_tree(fields, has_surrogates=b"\\ud" in body.lower())
    return fields


def _parsed(body: bytes) -> object:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _invalid(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    _check_counts(body)
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole, object_hook=_same
        )
    except RecursionError:
        raise _invalid("the body's JSON is nested too deep") from None
    except ValueError as error:
        raise _invalid(f"the body is not valid JSON: {error}") from None


def _invalid(message: str) -> ApiError:
    return ApiError(400, message, code="invalid_json")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:40]} is beyond the largest number")
    return value


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text[:20]}... has more than {MAX_DIGITS} digits")
    return int(text)


def _same(fields: dict[str, Any]) -> dict[str, Any]:
    return fields


def _check_counts(body: bytes) -> None:
    """Raises ApiError for too many strings, lists and objects, or values."""
    if _is_short([body], body.count(b'"')):
        return
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # each quote left begins or ends a string
    n_quotes = bare.count(b'"')
    if n_quotes > 2 * MAX_STRINGS or not _is_short(bare.split(b'"')[::2], n_quotes):
        raise _invalid(
            f"the body has more than {MAX_STRINGS:,} strings, {MAX_CONTAINERS:,} lists and objects, or "
            f"{MAX_VALUES:,} values in all; send several requests"
        )


def _is_short(parts: Sequence[bytes], n_quotes: int) -> bool:
    """True if the parts of a body have few brackets and commas, and the body few quotes."""
    return (
        n_quotes <= 2 * MAX_STRINGS
        and sum(part.count(b"[") + part.count(b"{") for part in parts) <= MAX_CONTAINERS
        and sum(part.count(b",") for part in parts) < MAX_VALUES
    )


def _check_tree(value: dict[str, Any] | list[Any], *, has_surrogates: bool) -> None:
    """Raises ApiError for a nesting beyond MAX_DEPTH, which recursive readers of schemas do not survive.

    Half a surrogate pair is no text, and raises, too.
    """
    level: list[object] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise _invalid(f"the body's JSON is nested deeper than {MAX_DEPTH}")
        if has_surrogates:
            _check_texts(level)
        level = [child for item in level for child in _children(item) if _is_container(child)]


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list)


def _children(item: object) -> Iterable[object]:
    if isinstance(item, dict):
        return cast("dict[str, object]", item).values()
    return cast("list[object]", item)


def _check_texts(level: Iterable[object]) -> None:
    texts = (text for item in level for text in _texts(item))
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise _invalid(
            "the body has half of a surrogate pair (\\ud800 to \\udfff), which is no text"
        ) from None


def _texts(item: object) -> Iterable[str]:
    texts = [child for child in _children(item) if isinstance(child, str)]
    return [*cast("dict[str, object]", item), *texts] if isinstance(item, dict) else texts
