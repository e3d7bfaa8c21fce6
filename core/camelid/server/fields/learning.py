"""The fields of feedback and learning."""

from __future__ import annotations

from camelid.server.fields.kinds import Either, Integer, Object, OneOf, Text
from camelid.server.fields.table import Field, Table

CORRECTION = Either({str: Text(1 << 20), dict: Object()}, "the right answer as text or as a message")
FEEDBACK = Table.of(
    Field("completion_id", Text(200), is_required=True),
    Field("rating", OneOf((1, -1)), is_required=True),
    Field("correction", CORRECTION),
    Field("model", Text(512)),
)
USE = Table.of(Field("version", Text(80), is_required=True), Field("model", Text(512)))
UNDO = Table.of(Field("model", Text(512)))
FORGET = Table.of(Field("item", Integer(1, 2**53), is_required=True), Field("model", Text(512)))
