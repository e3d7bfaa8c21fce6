"""Broken and hostile safetensors files: each check fails with its own error, in bounded memory and time."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import safetensors
from tests.support.processor_time import within

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.json_text import MAX_VALUES
from camelid.formats.safetensors import (
    MAX_HEADER,
    Safetensors,
    open_safetensors,
    read_safetensors,
)
from camelid.formats.source import drive

pytestmark = pytest.mark.faults


def file(header: Any, data: bytes = b"", n: int | None = None) -> bytes:
    """A file of this header (JSON text as bytes, or a value) with a declared length of `n`."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if n is None else n) + text + data


def parse(data: bytes, size: int | None = None) -> Safetensors:
    """Parses `data` as the start of a file of `size` bytes; all later bytes are zeros."""
    size = len(data) if size is None else size
    steps = read_safetensors(size, "m.safetensors")
    return drive(steps, lambda offset, length: data[offset : offset + length].ljust(length, b"\0"))


def tensor(
    shape: Any = (2,), begin: Any = 0, end: Any = 8, dtype: Any = "F32", **more: Any
) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def a(*args: Any, **options: Any) -> bytes:
    """A file of one tensor `a` and 8 bytes of data."""
    return file({"a": tensor(*args, **options)}, bytes(8))


def raw(shape: bytes = b"[2]", offsets: bytes = b"[0,8]", dtype: bytes = b'"F32"') -> bytes:
    """The same file, its fields as JSON text."""
    return file(b'{"a":{"dtype":%s,"shape":%s,"data_offsets":%s}}' % (dtype, shape, offsets), bytes(8))


def two(first: tuple[int, int], second: tuple[int, int], n: int) -> bytes:
    """Two int8 tensors at these offsets, and `n` bytes of data."""
    pairs = {"a": first, "b": second}
    return file(
        {name: tensor([end - begin], begin, end, "I8") for name, (begin, end) in pairs.items()}, bytes(n)
    )


GOOD = file(
    {
        "__metadata__": {"format": "pt", "note": "🦙"},
        "a": tensor([2, 1], 4, 12),
        "b": tensor([], 0, 4),
        "none": tensor([0, 3], 12, 12, "F16"),
        "c": tensor([3], 12, 15, "F8_E4M3"),
    },
    bytes(15),
)


def test_the_undamaged_file_is_valid() -> None:
    got = parse(GOOD)
    assert got.metadata == {"format": "pt", "note": "🦙"}
    assert {name: tensor.shape for name, tensor in got.tensors.items()} == {
        "a": (2, 1), "b": (), "none": (0, 3), "c": (3,),
    }  # fmt: skip
    assert len(safetensors.deserialize(GOOD)) == 4


HUGE = b"9" * 5000
TEXT = b'{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
CASES: dict[str, tuple[bytes, str]] = {  # name: (file, message)
    "empty": (b"", "the file has 0 bytes, too few"),
    "7 bytes": (bytes(7), "the file has 7 bytes, too few"),
    "no header": (bytes(8), "not a safetensors file: its header starts with b'', not b'{'"),
    "header of 1": (file(b"{", n=1), "not a safetensors file"),
    "header of 2^64": (file(b"{}", n=2**64 - 1), "a header of 18446744073709551615 bytes; at most 100000000"),
    "header over 100 MB": (file(b"{}", n=MAX_HEADER + 1), "a header of 100000001 bytes; at most 100000000"),
    "header past end": (file(b"{}", n=3), "a header of 3 bytes cannot fit in the 2 that remain"),
    "blank first": (file(b" {}"), "its header starts with b' ', not b'{'"),
    "a list": (file(b"[]"), r"its header starts with b'\[', not"),
    "gguf": (b"GGUF\3\0\0\0" + bytes(99), "this is a GGUF file, whatever its name"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "run `git lfs pull`"),
    "zip": (b"PK\x03\x04" + bytes(99), "ZIP or PyTorch archive"),
    "html": (b"<!DOCTYPE html><html>", "web page"),
    "not json": (file(b"{]"), "the header: not valid JSON: .* at line 1, column 2"),
    "two objects": (file(b"{}{}"), "the header: not valid JSON: Extra data"),
    "zeros behind": (file(b"{}\0\0"), "the header: not valid JSON: Extra data"),
    "not utf-8": (file(b'{"\xff":1}'), "the header: not valid UTF-8: byte 2 is 0xff"),
    "utf-16": (file("{}".encode("utf-16-le")), "the header: not valid JSON"),
    "lone surrogate": (file(b'{"__metadata__":{"a":"\\ud800"}}'), "a string contains a lone surrogate"),
    "surrogate in name": (file(b'{"\\udfff":1}'), "a string contains a lone surrogate"),
    "same name": (file(b'{"a":%s,"a":%s}' % (TEXT, TEXT), bytes(8)), "'a' occurs twice in one object"),
    "same name, escaped": (file(b'{"a":%s,"\\u0061":%s}' % (TEXT, TEXT), bytes(8)), "'a' occurs twice"),
    "same field": (file(b'{"a":{"dtype":"F32","dtype":"I8"}}'), "the key 'dtype' occurs twice"),
    "same metadata": (file(b'{"__metadata__":{"x":"1","x":"2"}}'), "the key 'x' occurs twice"),
    "two metadata": (file(b'{"__metadata__":{},"__metadata__":{}}'), "the key '__metadata__' occurs twice"),
    "metadata number": (file({"__metadata__": {"x": 1}}), "__metadata__: 'x' must be a string, found 1"),
    "metadata nested": (file({"__metadata__": {"x": {}}}), "'x' must be a string, found an object of 0"),
    "metadata list": (file({"__metadata__": []}), "__metadata__: an object is expected, found "),
    "deep": (file(b'{"a":' * 65 + b"1" + b"}" * 65), "its brackets nest deeper than 64"),
    "deeper": (file(b'{"a":' + b"[" * 100_000), "its brackets nest deeper than 64"),
    "deep in metadata": (file(b'{"__metadata__":{"x":' + b"[" * 3000 + b"]" * 3000 + b"}}"), "deeper"),
    "no name": (file({"": tensor()}, bytes(8)), "'': a tensor's name must be 1 to 255 printable"),
    "long name": (file({"n" * 256: tensor()}, bytes(8)), "a tensor's name must be 1 to"),
    "control in name": (file({"a\x1b[2J": tensor()}, bytes(8)), "printable characters"),
    "a number": (file({"a": 1}), "a: an object is expected, found 1"),
    "null": (file({"a": None}), "a: an object is expected, found None"),
    "no dtype": (file({"a": {"shape": [], "data_offsets": [0, 0]}}), "a: dtype is missing"),
    "no shape": (file({"a": {"dtype": "F32", "data_offsets": [0, 0]}}), "a: shape is missing"),
    "no offsets": (file({"a": {"dtype": "F32", "shape": []}}), "a: data_offsets is missing"),
    "unknown field": (a(strides=[1]), "a: unknown field 'strides'; known: data_offsets, dtype, shape"),
    "dtype number": (raw(dtype=b"0"), "a: dtype must be a string, found 0"),
    "dtype list": (raw(dtype=b'["F32"]'), r"a: dtype must be a string, found \['F32'\]"),
    "shape text": (raw(shape=b'"2"'), "a: shape must be a list of whole numbers below 2.*63, found '2'"),
    "shape null": (raw(shape=b"null"), "a: shape must be a list"),
    "shape object": (raw(shape=b"{}"), "a: shape must be a list"),
    "shape nested": (raw(shape=b"[[2]]"), r"found \[\[2\]\]"),
    "shape true": (raw(shape=b"[true,2]"), r"found \[True, 2\]"),
    "shape 2.0": (raw(shape=b"[2.0]"), r"found \[2.0\]"),
    "shape 2e0": (raw(shape=b"[2e0]"), r"found \[2.0\]"),
    "shape 1e999": (raw(shape=b"[1e999]"), "the number 1e999 is too large for a float"),
    "shape -1e999": (raw(shape=b"[-1e999]"), "the number -1e999 is too large"),
    "shape NaN": (raw(shape=b"[NaN]"), "NaN is not a JSON value"),
    "shape Infinity": (raw(shape=b"[-Infinity]"), "-Infinity is not a JSON value"),
    "shape -2": (raw(shape=b"[-2]"), r"found \[-2\]"),
    "shape 2^63": (raw(shape=b"[9223372036854775808]"), "whole numbers below 2"),
    "5000 digits": (raw(shape=b"[%s]" % HUGE), "a number of 5000 characters; at most 400"),
    "5000 digits of a float": (raw(shape=b"[1.%s]" % HUGE), "a number of 5002 characters"),
    "5000 digits of an exponent": (raw(shape=b"[1e%s]" % HUGE), "a number of 5002 characters"),
    "65 dims": (raw(shape=b"[%s2]" % (b"1," * 64)), "a: 65 dimensions; at most 64"),
    "values overflow": (raw(shape=b"[4294967296,4294967296]"), "a: shape .* overflows"),
    "overflow before 0": (raw(shape=b"[9223372036854775807,4,0]", offsets=b"[0,0]"), "a: shape .* overflows"),
    "product wraps": (raw(shape=b"[4611686018427387905,4]"), "a: shape .* overflows"),
    "offsets text": (raw(offsets=b'"08"'), "a: data_offsets must be .begin, end. with .*, found '08'"),
    "one offset": (raw(offsets=b"[8]"), r"found \[8\]"),
    "three offsets": (raw(offsets=b"[0,8,8]"), r"found \[0, 8, 8\]"),
    "offset -1": (raw(offsets=b"[-1,7]"), r"found \[-1, 7\]"),
    "offset -0": (raw(offsets=b"[-0,8]"), r"found \[-0.0, 8\]"),
    "offset true": (raw(offsets=b"[true,8]"), r"found \[True, 8\]"),
    "offset 0.0": (raw(offsets=b"[0.0,8]"), r"found \[0.0, 8\]"),
    "backwards": (raw(offsets=b"[8,0]"), r"found \[8, 0\]"),
    "offset 2^64": (raw(offsets=b"[0,18446744073709551616]"), r"found \[0, 18446744073709551616\]"),
    "too few bytes": (raw(offsets=b"[0,7]"), r"a: data_offsets \[0, 7\] span 7 bytes, but F32 of .* needs 8"),
    "too many bytes": (raw(shape=b"[1]"), r"span 8 bytes, but F32 of shape \[1\] needs 4"),
    "bytes for a 0": (raw(shape=b"[0]"), r"span 8 bytes, but F32 of shape \[0\] needs 0"),
    "bytes for a scalar": (raw(shape=b"[]"), r"span 8 bytes, but F32 of shape \[\] needs 4"),
    "half a byte": (file({"a": tensor([3], 0, 1, "F4")}, bytes(1)), "a: its 12 bits do not fill whole bytes"),
    "hole": (two((0, 4), (5, 8), 8), "b: its data_offsets leave a hole before it: they begin at 5, not 4"),
    "hole at the start": (two((1, 4), (4, 8), 8), "a: its data_offsets leave a hole before it: .* 1, not 0"),
    "overlap": (two((0, 4), (3, 8), 8), "b: its data_offsets overlap the tensor before it: .* 3, not 4"),
    "same bytes": (two((0, 4), (0, 4), 4), "b: its data_offsets overlap"),
    "one inside another": (two((0, 8), (2, 4), 8), "b: its data_offsets overlap"),
    "empty inside another": (two((0, 8), (2, 2), 8), "b: its data_offsets overlap"),
    "data cut": (a()[:-1], r"the tensors end at byte \d+, the file at \d+; was the download interrupted"),
    "no data": (raw()[:-8], "was the download interrupted"),
    "data behind": (a() + b"\0", r"the tensors end at byte \d+, the file at \d+$"),
    "data without tensors": (file(b"{}", b"\0"), "the tensors end at byte 10, the file at 11"),
}  # fmt: skip
# The package accepts these files, but the format's text forbids them, or an error could not print them.
ONLY_OURS = {
    "blank first", "same name", "same name, escaped", "same metadata", "no name", "long name",
    "control in name", "unknown field", "65 dims",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_check(name: str) -> None:
    data, message = CASES[name]
    with pytest.raises(ModelFormatError, match=message) as caught:
        parse(data)
    assert str(caught.value).startswith("m.safetensors: ")
    assert len(str(caught.value)) < 1000
    assert caught.value.facts["path"] == "m.safetensors"


@pytest.mark.parametrize("name", sorted(CASES.keys() - ONLY_OURS))
def test_the_package_refuses_it_too(name: str) -> None:
    """No check refuses a valid file: the format's own reader refuses these, too."""
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(CASES[name][0])


@pytest.mark.parametrize("name", sorted(ONLY_OURS))
def test_files_refused_by_camelid_alone(name: str) -> None:
    safetensors.deserialize(CASES[name][0])


@pytest.mark.parametrize("name", CASES)
def test_malformed_files_are_refused_on_disk_too(name: str, tmp_path: Path) -> None:
    data, message = CASES[name]
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelFormatError, match=message):
        open_safetensors(path)


def test_limits_are_inclusive() -> None:
    good = [
        file(b"{}"),
        file(b"{}  \n"),
        file({"n" * 255: tensor()}, bytes(8)),
        raw(shape=b"[%s2]" % (b"1," * 63)),
        file({"a": tensor([0, 2**63 - 1], 0, 0, "I8")}),
        file({"__metadata__": {"x" * 9999: "\0 anything 🦙"}}),
    ]
    for data in good:
        parse(data)
        safetensors.deserialize(data)


def test_unknown_dtypes_are_named() -> None:
    message = "^m.safetensors: a: unknown dtype 'Q4_0'; known: BOOL, .*U64"
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        parse(a(dtype="Q4_0"))
    assert caught.value.facts["tensor"] == "a"
    with pytest.raises(UnsupportedModelError, match="unknown dtype 'f32'"):
        parse(a(dtype="f32"))


@pytest.mark.parametrize("n", range(len(GOOD)))
def test_truncation_at_every_byte(n: int) -> None:
    with pytest.raises(ModelFormatError):
        parse(GOOD[:n])


def test_a_false_length_allocates_nothing() -> None:
    tracemalloc.start()
    with pytest.raises(ModelFormatError, match="a header of 1099511627776 bytes; at most"):
        parse(file(b"{", n=1 << 40), size=1 << 41)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


# Headers of a few MB, each built to be expensive: (text, message).
HEAVY: dict[str, tuple[bytes, str]] = {
    "quotes": (b'{"' + b'\\"' * 2_000_000, "not valid JSON: Unterminated string"),
    "backslashes": (b'{"' + b"\\" * 4_000_001, "not valid JSON"),
    "odd quotes": (b"{" + b'"' * 2_000_001, "not valid JSON"),
    "brackets": (b"{" + b"[" * 4_000_000, "its brackets nest deeper than 64"),
    "empty lists": (b'{"a":[' + b"[]," * (MAX_VALUES // 3) + b"[]]}", "more than 5242880 brackets"),
    "commas": (b'{"a":[' + b"0," * MAX_VALUES + b"0]}", "more than 5242880 brackets and commas"),
    "digits": (b'{"a":' + b"9" * 4_000_000 + b"}", "a number of 4000000 characters"),
    "same keys": (b"{" + b'"k":0,' * 400_000 + b'"k":0}', "the key 'k' occurs twice"),
    "last key twice": (
        b"{" + b"".join(b'"%d":0,' % i for i in range(200_000)) + b'"199999":0}',
        "the key '199999' occurs twice",
    ),
    "long dtype": (raw(dtype=b'"%s"' % (b"F" * 4_000_000))[8:-8], "a: unknown dtype 'FFFF"),
    "many dims": (raw(shape=b"[%s2]" % (b"1," * 1_000_000))[8:-8], "a: 1000001 dimensions; at most 64"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_headers_are_refused_in_linear_time(name: str) -> None:
    text, message = HEAVY[name]
    data = file(text, bytes(8))
    with (
        within(10),  # quadratic time would be minutes
        pytest.raises((ModelFormatError, UnsupportedModelError), match=message) as caught,
    ):
        parse(data)
    assert len(str(caught.value)) < 1000
