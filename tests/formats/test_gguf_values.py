"""Inferred kinds of metadata values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from camelid.errors import ModelFormatError
from camelid.formats.gguf_writer import infer_kinds

HUGE = 10**5000  # Python refuses to print it
KIND_ROWS: list[tuple[Any, str]] = [
    (0, "uint32"),
    (2**32 - 1, "uint32"),
    (2**32, "uint64"),
    (-1, "int32"),
    (-(2**31) - 1, "int64"),
    (0.5, "float32"),
    (True, "bool"),
    ("x", "string"),
    ([1, 2**32], "array[uint64]"),
    ([1, -1], "array[int32]"),
    ([-1, 2**32], "array[int64]"),
    ([0.5, 1.0], "array[float32]"),
    ([True], "array[bool]"),
    (["x"], "array[string]"),
]


@pytest.mark.parametrize(("item", "kind"), KIND_ROWS)
def test_kinds_are_inferred(item: Any, kind: str) -> None:
    assert infer_kinds({"k": item, "j": 1}, {"j": "uint8"}) == {"k": kind, "j": "uint8"}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ([], "k: an empty list has no kind of its own"),
        ([1, 0.5], "not float, int"),
        ([1, True], "not bool, int"),
        ([[1]], "not list"),
        (None, "not NoneType"),
        (b"x", "not bytes"),
        (np.float32(1), "not float32"),
        (2**64, "no integer type fits both 18446744073709551616"),
        ([-1, 2**64 - 1], "no integer type fits both -1 and"),
        ([HUGE], "an integer of 16610 bits"),
    ],
)
def test_values_without_a_kind_are_refused(item: Any, message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        infer_kinds({"k": item})
