"""KV cache types: a table row per value of the option `kv_type`."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.errors import RequestError
from camelid.formats.quants import quant
from camelid.plan.plan import StateSpec


@dataclass(frozen=True, slots=True)
class KvType:
    """Element types of keys and values for one value of `kv_type`.

    `kv`: full-attention layers; `window`: sliding-window layers, whose rows are all recent; `static`:
    cross-attention. `tail`: a second copy of the most recent rows, "" for none; the store of type `kv`
    contains every row.
    """

    kv: str
    window: str
    static: str
    tail: str = ""


KV_TYPES: dict[str, KvType] = {
    "f32": KvType("f32", "f32", "f32"),
    "f16": KvType("f16", "f16", "f16"),
    "q8_0": KvType("q8_0", "q8_0", "f32"),
    "q4_0": KvType("q4_0", "q4_0", "f32"),
    "two-tier": KvType("q8_0", "f16", "f32", tail="f16"),
    "two-tier-q4_0": KvType("q4_0", "f16", "f32", tail="f16"),
}


def kv_row(kv_type: str) -> KvType:
    """The table row of an option value. Raises RequestError for an unknown value."""
    row = KV_TYPES.get(str(kv_type))  # str(), since a caller may pass an unhashable value
    if row is None:
        raise RequestError(f"kv_type is {kv_type!r}, expected one of {', '.join(KV_TYPES)}", field="kv_type")
    return row


def check_columns(state: StateSpec, kv_type: str) -> StateSpec:
    """Returns the state. Raises RequestError if its columns are no multiple of its type's block size."""
    block = quant(state.kv_type).block
    for name, cols in state.tensors:
        if cols % block:
            raise RequestError(
                f"kv_type is {kv_type!r}, but blocks of {block} do not fill rows of {cols} values "
                f"(this model's {name}); use f16",
                field="kv_type",
            )
    return state
