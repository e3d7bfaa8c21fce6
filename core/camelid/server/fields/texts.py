"""One or several texts, each as text or as token ids: prompts of completions, inputs of embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from camelid.server.fields.ids import ids_schema, is_ids, read_ids
from camelid.server.fields.kinds import Schema, refuse
from camelid.server.http.errors import ApiError

TextOrIds = str | list[int]
WANT = "text, token ids, or a list of either"


@dataclass(frozen=True, slots=True)
class Texts:
    """Text, token ids, a list of texts, or a list of lists of token ids; read as a list."""

    most: int

    def read(self, value: object, place: str) -> list[TextOrIds]:
        if isinstance(value, str) or is_ids(value):
            return [one_text(value, place)]
        items = cast("list[object]", value) if isinstance(value, list) else []
        if not items:
            refuse(place, cast("object", value), WANT)
        if len(items) > self.most:
            raise ApiError(400, f"{place} has {len(items)} items, expected 1 to {self.most}", param=place)
        for i, item in enumerate(items):
            if not (isinstance(item, str) or is_ids(item)):
                refuse(f"{place}[{i}]", item, "text or token ids")
        return [one_text(item, f"{place}[{i}]") for i, item in enumerate(items)]

    def schema(self) -> Schema:
        ids = ids_schema()
        several: Schema = {
            "type": "array", "items": {"anyOf": [{"type": "string"}, ids]}, "minItems": 1,
            "maxItems": self.most,
        }  # fmt: skip
        return {"anyOf": [{"type": "string"}, ids, several]}


def one_text(value: object, place: str) -> TextOrIds:
    """Checked text or ids. Raises ApiError 400 for too many ids."""
    return value if isinstance(value, str) else read_ids(value, place)
