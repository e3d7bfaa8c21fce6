"""The table of tensor types against the gguf package and llama.cpp's block structs."""

from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.quants import GGUF_TYPES, QUANTS, RETIRED, quant, quant_by_id, row_bytes

# For types that the package lacks or has wrong, the C struct decides:
# block_q8_1 {half d, s; int8 qs[32]}, block_q1_0 {half d; uint8 qs[16]}, block_q2_0 {half d; uint8 qs[16]}.
FROM_C = {"q8_1": (32, 36), "q1_0": (128, 18), "q2_0": (64, 18)}
ORACLE = {kind.name.lower(): GGML_QUANT_SIZES[kind] for kind in GGMLQuantizationType} | FROM_C


def test_every_live_type_has_a_row() -> None:
    assert len(GGUF_TYPES) == 35
    assert ORACLE.keys() == GGUF_TYPES
    assert QUANTS.keys() - GGUF_TYPES == {"affine2", "affine3", "affine6", "affine8", "mxfp8"}


@pytest.mark.parametrize("name", ORACLE)
def test_sizes_match(name: str) -> None:
    assert (QUANTS[name].block, QUANTS[name].block_bytes) == ORACLE[name]


def test_ids_match() -> None:
    ids = {kind.name.lower(): int(kind) for kind in GGMLQuantizationType} | {"q2_0": 42}
    assert {name: QUANTS[name].id for name in GGUF_TYPES} == ids
    assert all(quant_by_id(QUANTS[name].id) is QUANTS[name] for name in GGUF_TYPES)


def test_live_and_retired_ids_fill_the_range() -> None:
    live = {QUANTS[name].id for name in GGUF_TYPES}
    assert live | RETIRED.keys() == set(range(43))
    assert not live & RETIRED.keys()


@pytest.mark.parametrize("type_id", sorted(RETIRED))
def test_retired_ids_are_named(type_id: int) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"id {type_id} \({RETIRED[type_id]}\) is retired"):
        quant_by_id(type_id)


def test_unknown_types_name_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'q9_9'; known: f32, .*q2_0") as caught:
        quant("q9_9")
    assert caught.value.facts["name"] == "q9_9"
    with pytest.raises(UnsupportedModelError, match=r"id 43; known: f32"):
        quant_by_id(43)
    with pytest.raises(UnsupportedModelError, match=r"id 64; known: f32"):  # our own id: no GGUF has it
        quant_by_id(QUANTS["affine2"].id)


def test_row_bytes() -> None:
    assert row_bytes("f32", 5) == 20
    assert row_bytes("q8_0", 64) == 68
    assert row_bytes("q4_k", 512) == 288
    with pytest.raises(ModelFormatError, match=r"row of 33 values cannot be q8_0: its blocks hold 32"):
        row_bytes("q8_0", 33)
