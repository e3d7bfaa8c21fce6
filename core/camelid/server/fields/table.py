"""Tables of fields: each field of an API is honoured, refused by name, or unknown; none is ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from camelid.server.fields.kinds import Kind
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError


@dataclass(frozen=True, slots=True)
class Field:
    """An honoured field. `option` is the request option that receives the value.

    Without an option the endpoint reads the value itself, by the field's name. `note` is the reason why the
    value changes nothing, of which the reply warns.
    """

    name: str
    kind: Kind
    option: str = ""
    is_required: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A field of the API that this server does not honour; only `allowed` values pass, without effect."""

    name: str
    reason: str
    allowed: tuple[object, ...] = ()
    status: int = 400

    def check(self, value: object) -> None:
        """Raises ApiError for a value that asks for the feature."""
        if not any(value == each and type(value) is type(each) for each in self.allowed):
            raise ApiError(self.status, f"{self.name} is not supported: {self.reason}", param=self.name)


@dataclass(slots=True)
class Values:
    """The values of one request: `options` for the Python API, `own` for the endpoint."""

    options: dict[str, Any] = field(default_factory=dict[str, Any])
    own: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Table:
    """The fields of one endpoint."""

    fields: Mapping[str, Field]
    refused: Mapping[str, Refused]

    @classmethod
    def of(cls, *rows: Field | Refused | Sequence[Field | Refused]) -> Table:
        """A table of rows and lists of rows; a later row replaces an earlier one of its name."""
        flat = [each for row in rows for each in ([row] if isinstance(row, Field | Refused) else row)]
        by_name = {row.name: row for row in flat}
        return cls(
            {name: row for name, row in by_name.items() if isinstance(row, Field)},
            {name: row for name, row in by_name.items() if isinstance(row, Refused)},
        )

    def read(self, body: Mapping[str, Any], call: Call) -> Values:
        """The checked values of a body; null counts as absent. Those of a long body were read with it.

        Raises ApiError 400 for a value out of range, a missing field, and under --strict an unknown field;
        else an unknown field becomes a warning.
        """
        if call.checked and call.checked[0] is self:
            return call.checked[1]
        values = Values()
        for name, value in body.items():
            if value is None:
                continue
            row = self.fields.get(name)
            if row:
                target, key = values.options if row.option else values.own, row.option or name
                read = row.kind.read(value, name)
                if target.get(key, read) != read:
                    raise ApiError(
                        400, f"{name!r} and another field of its meaning differ; leave one out", param=name
                    )
                target[key] = read
                if row.note:
                    call.warnings.append(f"the field '{name}' has no effect: {row.note}")
            elif name in self.refused:
                self.refused[name].check(value)
            else:
                call.unknown(name)
        for row in self.fields.values():
            if row.is_required and body.get(row.name) is None:
                raise ApiError(400, f"the field {row.name!r} is missing", param=row.name)
        return values
