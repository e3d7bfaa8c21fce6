"""Lists of token ids, checked without a loop: a prompt may have a million."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from camelid.server.fields.kinds import ListOf, Schema
from camelid.server.http.errors import ApiError

MAX_ID = 2**31 - 1
MAX_IDS = 1 << 20  # of one list: the longest contexts
MAX_FLOATS = 1 << 16  # of a list with whole floats, which take longer


@dataclass(frozen=True, slots=True)
class IdsOr:
    """A list of token ids, or a shorter list of another kind."""

    other: ListOf

    def read(self, value: object, place: str) -> list[Any]:
        if is_ids(value):
            return read_ids(value, place)
        items = cast("list[object]", value) if isinstance(value, list) else []
        if len(items) > self.other.most:
            raise ApiError(
                400, f"{place} has {len(items):,} items, at most {self.other.most:,} unless all are token "
                f"ids from 0 to {MAX_ID}", param=place,
            )  # fmt: skip
        return self.other.read(cast("object", value), place)

    def schema(self) -> Schema:
        return {"anyOf": [ids_schema(), self.other.schema()]}


def is_ids(value: object) -> bool:
    """True for a list of token ids; a whole float counts as an id, since JavaScript has no integers."""
    types = set(map(type, cast("list[object]", value))) if isinstance(value, list) else ()
    ids = cast("list[float]", value)
    if not types or not set(types) <= {int, float} or (float in types and len(ids) > MAX_FLOATS):
        return False
    if not (min(ids) >= 0 and max(ids) <= MAX_ID):
        return False
    return float not in types or all(map(float.is_integer, map(float, ids)))


def read_ids(value: object, place: str) -> list[int]:
    """Checked ids as integers. Raises ApiError 400 for more than MAX_IDS."""
    ids = cast("list[float]", value)
    if len(ids) > MAX_IDS:
        raise ApiError(400, f"{place} has {len(ids):,} token ids, at most {MAX_IDS:,}", param=place)
    return list(map(int, ids)) if float in set(map(type, ids)) else cast("list[int]", ids)


def ids_schema() -> Schema:
    """A list of token ids as a JSON Schema."""
    return {
        "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": MAX_ID}, "minItems": 1,
        "maxItems": MAX_IDS,
    }  # fmt: skip
