"""Checked reading of a tokenizer.json: every value has its type, every step has a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, TypeAlias, TypeVar, cast

from camelid.errors import ModelFormatError, UnsupportedModelError

Json: TypeAlias = Mapping[str, object]
T = TypeVar("T")

SPACE = "▁"  # SentencePiece's mark for a space
SHOWN = 300  # characters of the file that an error repeats


def steps(tokenizer: Json, key: str, members: str) -> list[tuple[str, Json]]:
    """(type, step) of a normalizer, pre-tokenizer or post-processor in order; sequences are flattened."""
    found: list[tuple[str, Json]] = []
    waiting = [tokenizer.get(key)]
    while waiting:  # iterative, since a file may nest to any depth
        value = waiting.pop()
        if value is None:
            continue
        step = mapping(value, key)
        kind = typed(step.get("type"), str, f"{key}.type")
        if kind == "Sequence":
            waiting += reversed(array(step.get(members), f"{key}.{members}"))
        else:
            found.append((kind, step))
    return found


def row(table: Mapping[str, T], kind: str, what: str) -> T:
    """The row of a step's kind. Raises UnsupportedModelError with the known kinds."""
    if kind in table:
        return table[kind]
    raise UnsupportedModelError(
        f"the tokenizer's {what} {kind[:40]!r} is not supported; known: {', '.join(sorted(table))}",
        kind="tokenizer",
        name=kind,
        known=sorted(table),
    )


def refuse(
    what: str, why: str, step: Json, way_out: str = "give a GGUF file of this model instead"
) -> NoReturn:
    """Raises UnsupportedModelError with the step's fields, one level deep."""
    flat = ((k, value) for k, value in step.items() if isinstance(value, str | bool) and k.isprintable())
    parts = ", ".join(f"{key} {value!r}" for key, value in flat)[:SHOWN]
    raise UnsupportedModelError(
        f"the tokenizer's {what} {why}: {parts}; {way_out}", kind="tokenizer", name=what
    )


def mapping(value: object, key: str) -> Json:
    """`value` if it is a JSON object. Raises ModelFormatError."""
    return cast(Json, typed(value, Mapping, key))


def array(value: object, key: str) -> list[object]:
    """`value` if it is a JSON array. Raises ModelFormatError."""
    return cast("list[object]", typed(value, list, key))


def typed(value: object, kind: type[T], key: str) -> T:
    """`value` if it is of type `kind`; a bool is not an int. Raises ModelFormatError."""
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise ModelFormatError(
        f"tokenizer: {key[:SHOWN]} is {type(value).__name__}, expected {kind.__name__}",
        key=key,
        got=type(value).__name__,
        want=kind.__name__,
    )


def flag(step: Json, key: str, *, default: bool = False) -> bool:
    """A bool of the step; the default for null and for a missing key."""
    value = step.get(key)
    return default if value is None else typed(value, bool, key)


def text(step: Json, key: str, default: str | None = None) -> str:
    """A valid Unicode string of the step; the default for null and for a missing key.

    Raises ModelFormatError.
    """
    value = step.get(key)
    return unicode(default if value is None else value, key)


def count(step: Json, key: str, default: int, most: int) -> int:
    """An integer of the step, 0 to `most`. Raises ModelFormatError."""
    value = step.get(key, default)
    if type(value) is int and 0 <= value <= most:
        return value
    raise ModelFormatError(f"tokenizer: {key} is {shown(value)}, expected 0 to {most}", key=key)


def unicode(value: object, key: str = "a token") -> str:
    """`value` if it is a string that UTF-8 can encode. Raises ModelFormatError."""
    found = typed(value, str, key)
    try:
        found.encode()
    except UnicodeEncodeError:
        raise ModelFormatError(f"tokenizer: {key} {shown(found)} is not Unicode text", token=found) from None
    return found


def shown(value: object) -> str:
    """A short repr of a string or number; other values by type only, since they may be of any size."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None or isinstance(value, bool | float):
        return repr(value)
    small = isinstance(value, int) and abs(value) < 1 << 64
    return repr(value) if small else f"a value of type {type(value).__name__}"
