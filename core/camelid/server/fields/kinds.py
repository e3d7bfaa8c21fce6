"""Kinds of values: each checks a JSON value and describes it as a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NoReturn, Protocol, cast

from camelid.errors import shown
from camelid.server.http.errors import ApiError

Schema = dict[str, Any]


class Kind(Protocol):
    """The type and range of a field."""

    def read(self, value: object, place: str) -> Any:
        """The value, converted. Raises ApiError 400 that names the place, the value and the range."""
        ...

    def schema(self) -> Schema:
        """The values as a JSON Schema."""
        ...


def refuse(place: str, value: object, want: str) -> NoReturn:
    raise ApiError(400, f"{place} is {shown(value)}, expected {want}", param=place)


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number within bounds."""

    least: float = -1e9
    most: float = 1e9

    def read(self, value: object, place: str) -> float:
        if type(value) in (int, float) and self.least <= cast("float", value) <= self.most:
            return cast("float", value)
        refuse(place, value, f"a number from {self.least:g} to {self.most:g}")

    def schema(self) -> Schema:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds; a whole float counts, since JavaScript has no integers."""

    least: int = 0
    most: int = 2**31 - 1

    def read(self, value: object, place: str) -> int:
        is_whole = type(value) is int or (type(value) is float and abs(value) < inf and value.is_integer())
        if is_whole and self.least <= cast("float", value) <= self.most:
            return int(cast("float", value))
        refuse(place, value, f"an integer from {self.least} to {self.most}")

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def read(self, value: object, place: str) -> bool:
        return value if isinstance(value, bool) else refuse(place, value, "true or false")

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most `most` characters."""

    most: int = 1 << 30
    least: int = 0

    def read(self, value: object, place: str) -> str:
        if isinstance(value, str) and self.least <= len(value) <= self.most:
            return value
        bound = f" of at most {self.most:,} characters" if self.most < 1 << 30 else ""
        refuse(place, value, f"a string{bound}" + (", not empty" if self.least else ""))

    def schema(self) -> Schema:
        return {"type": "string", "minLength": self.least, "maxLength": self.most}


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several values."""

    values: tuple[object, ...]

    def read(self, value: object, place: str) -> Any:
        if any(value == each and type(value) is type(each) for each in self.values):
            return value
        refuse(place, value, " or ".join(map(repr, self.values)))

    def schema(self) -> Schema:
        return {"enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one kind."""

    kind: Kind
    most: int = 100_000
    least: int = 0

    def read(self, value: object, place: str) -> list[Any]:
        if not isinstance(value, list):
            refuse(place, value, "a list")
        items = cast("list[object]", value)
        if not self.least <= len(items) <= self.most:
            raise ApiError(
                400, f"{place} has {len(items)} items, expected {self.least} to {self.most}", param=place
            )
        return [self.kind.read(item, f"{place}[{i}]") for i, item in enumerate(items)]

    def schema(self) -> Schema:
        return {
            "type": "array", "items": self.kind.schema(), "minItems": self.least, "maxItems": self.most
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Either:
    """A value of the first kind whose JSON type fits."""

    kinds: Mapping[type | tuple[type, ...], Kind]
    want: str

    def read(self, value: object, place: str) -> Any:
        for types, kind in self.kinds.items():
            if isinstance(value, types) and not (isinstance(value, bool) and types is not bool):
                return kind.read(value, place)
        refuse(place, value, self.want)

    def schema(self) -> Schema:
        return {"anyOf": [kind.schema() for kind in self.kinds.values()]}


def or_null(schema: Schema) -> Schema:
    """The schema of a field that may be left out: null counts as absent."""
    return {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object; `fields` are checked, and others refused if `fields` are given."""

    fields: Mapping[str, Kind] | None = None
    required: Sequence[str] = ()
    most: int = 100_000

    def read(self, value: object, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            refuse(place, value, "an object")
        found = cast("dict[str, object]", value)
        if len(found) > self.most:
            raise ApiError(400, f"{place} has {len(found)} entries, at most {self.most}", param=place)
        for name in self.required:
            if found.get(name) is None:
                raise ApiError(400, f"{place} has no {name!r}", param=place)
        if self.fields is None:
            return found
        return {name: self._read(name, item, place) for name, item in found.items() if item is not None}

    def _read(self, name: str, item: object, place: str) -> Any:
        assert self.fields is not None, "the object's fields are listed"
        if name not in self.fields:
            known = ", ".join(self.fields)
            raise ApiError(
                400,
                f"{place} has an unknown field {name!r:.80}; known: {known}",
                param=f"{place}.{name[:80]}",
            )
        return self.fields[name].read(item, f"{place}.{name}")

    def schema(self) -> Schema:
        if self.fields is None:
            return {"type": "object", "maxProperties": self.most}
        properties = {
            name: kind.schema() if name in self.required else or_null(kind.schema())
            for name, kind in self.fields.items()
        }
        return {
            "type": "object", "properties": properties, "required": list(self.required),
            "additionalProperties": {"type": "null"},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Json:
    """Any JSON value, which the request itself checks."""

    form: Schema

    def read(self, value: object, place: str) -> Any:  # noqa: ARG002 - the protocol's
        return value

    def schema(self) -> Schema:
        return self.form


@dataclass(frozen=True, slots=True)
class Converted:
    """A value of a kind, converted by a function."""

    kind: Kind
    convert: Callable[[Any], Any]

    def read(self, value: object, place: str) -> Any:
        return self.convert(self.kind.read(value, place))

    def schema(self) -> Schema:
        return self.kind.schema()


ANYTHING = Json({})
