"""One or several texts, each as text or as token ids: prompts of completions, inputs of embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from camelid.server.fields.kinds import Schema, refuse
from camelid.server.http.errors import ApiError

TextOrIds = str | list[int]
WANT = "text, token ids, or a list of either"
MAX_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Texts:
    """Text, token ids, a list of texts, or a list of lists of token ids; read as a list."""

    most: int

    def read(self, value: object, place: str) -> list[TextOrIds]:
        if isinstance(value, str) or is_ids(value):
            return [one_text(value)]
        items = cast("list[object]", value) if isinstance(value, list) else []
        if not items:
            refuse(place, cast("object", value), WANT)
        if len(items) > self.most:
            raise ApiError(400, f"{place} has {len(items)} items, expected 1 to {self.most}", param=place)
        for i, item in enumerate(items):
            if not (isinstance(item, str) or is_ids(item)):
                refuse(f"{place}[{i}]", item, "text or token ids")
        return [one_text(item) for item in items]

    def schema(self) -> Schema:
        ids: Schema = {
            "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": MAX_ID}, "minItems": 1
        }  # fmt: skip
        several: Schema = {
            "type": "array", "items": {"anyOf": [{"type": "string"}, ids]}, "minItems": 1,
            "maxItems": self.most,
        }  # fmt: skip
        return {"anyOf": [{"type": "string"}, ids, several]}


def is_ids(value: object) -> bool:
    """True for a list of token ids. Without a loop: a prompt may have a million."""
    types = set(map(type, cast("list[object]", value))) if isinstance(value, list) else ()
    if not types or not set(types) <= {int, float}:
        return False
    ids = cast("list[float]", value)
    if not (min(ids) >= 0 and max(ids) <= MAX_ID):
        return False
    return float not in types or all(map(float.is_integer, map(float, ids)))


def one_text(value: object) -> TextOrIds:
    """Checked text or ids; a whole float counts as an id, since JavaScript has no integers."""
    return value if isinstance(value, str) else list(map(int, cast("list[float]", value)))
