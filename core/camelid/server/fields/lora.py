"""The fields of adapters: llama.cpp's lists of scales, and vLLM's names and paths."""

from __future__ import annotations

from camelid.server.fields.kinds import Flag, Integer, ListOf, Number, Object, Text
from camelid.server.fields.table import Field, Table

MOST_LORA = 1024  # adapters of one request
MOST_SCALE = 1e6
SCALES = ListOf(
    Object({"id": Integer(), "scale": Number(-MOST_SCALE, MOST_SCALE)}, ("id", "scale")), MOST_LORA
)
LORA = Field("lora", SCALES, "lora")  # those that it does not list do not act
LOAD = Table.of(
    Field("model", Text(512)),
    Field("lora_name", Text(256, 1), is_required=True),
    Field("lora_path", Text(4096, 1), is_required=True),
    Field("load_inplace", Flag()),
)
UNLOAD = Table.of(Field("model", Text(512)), Field("lora_name", Text(256, 1), is_required=True))
