"""Objects whose `type` selects their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from camelid.server.fields.kinds import Object, OneOf, Schema, refuse
from camelid.server.http.errors import ApiError


@dataclass(frozen=True, slots=True)
class Typed:
    """An object of one of several types; `default` is the type of an object that names none.

    `media` are types that a model of another kind would take: 501.
    """

    kinds: Mapping[str, Object]
    default: str = ""
    media: tuple[str, ...] = ()

    def read(self, value: object, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            refuse(place, value, "an object")
        fields = cast("dict[str, object]", value)
        name = fields.get("type") or self.default
        kind = self.kinds.get(name) if isinstance(name, str) else None
        if kind:
            return {"type": name, **kind.read({**fields, "type": name}, place)}
        if name in self.media:
            raise ApiError(
                501, f"{place}: {name} is not supported by this model", param=place, code="no_media"
            )
        known = ", ".join(self.kinds)
        raise ApiError(
            400, f"{place} has the type {str(name)!r:.80}, which is not supported; known: {known}",
            param=place, code="unsupported_type",
        )  # fmt: skip

    def schema(self) -> Schema:
        return {"anyOf": [kind.schema() for kind in self.kinds.values()]}


def typed(kinds: Mapping[str, Object], *, default: str = "", media: tuple[str, ...] = ()) -> Typed:
    """Objects by type; each kind gets the field `type`."""
    with_type = {
        name: Object(
            {"type": OneOf((name,)), **(kind.fields or {})},
            (*kind.required, *(() if name == default else ("type",))),
            kind.most,
        )
        for name, kind in kinds.items()
    }
    return Typed(with_type, default, media)
