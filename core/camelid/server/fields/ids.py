"""Lists of token ids, checked without a loop: a prompt may have a million."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from camelid.server.fields.kinds import ListOf, Schema
from camelid.server.http.errors import ApiError

MAX_ID = 2**31 - 1
MAX_IDS = 1 << 20  # of one list: the longest contexts


@dataclass(frozen=True, slots=True)
class IdsOr:
    """A list of token ids, or a shorter list of another kind."""

    other: ListOf

    def read(self, value: object, place: str) -> list[Any]:
        return read_ids(value, place) if is_ids(value) else self.other.read(value, place)

    def schema(self) -> Schema:
        return {"anyOf": [ids_schema(), self.other.schema()]}


def is_ids(value: object) -> bool:
    """True for a list of token ids; a whole float counts as an id, since JavaScript has no integers."""
    types = set(map(type, cast("list[object]", value))) if isinstance(value, list) else ()
    if not types or not set(types) <= {int, float}:
        return False
    ids = cast("list[float]", value)
    if not (min(ids) >= 0 and max(ids) <= MAX_ID):
        return False
    return float not in types or all(map(float.is_integer, map(float, ids)))


def read_ids(value: object, place: str) -> list[int]:
    """Checked ids as integers. Raises ApiError 400 for more than MAX_IDS."""
    ids = cast("list[float]", value)
    if len(ids) > MAX_IDS:
        raise ApiError(400, f"{place} has {len(ids):,} token ids, at most {MAX_IDS:,}", param=place)
    return list(map(int, ids))


def ids_schema() -> Schema:
    """A list of token ids as a JSON Schema."""
    return {
        "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": MAX_ID}, "minItems": 1,
        "maxItems": MAX_IDS,
    }  # fmt: skip
