"""Broken and hostile GGUF files: each check fails with its own error, in bounded memory and time."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import tracemalloc
from pathlib import Path

import pytest
from tests.support.crafted_gguf import (
    ARRAY,
    BOOL,
    GOOD,
    I8,
    INT32,
    Q8_0,
    STRING,
    UINT8,
    UINT32,
    UINT64,
    array,
    entry,
    file,
    parse,
    tensor,
    text,
    u32,
    u64,
)

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.gguf import LOOKALIKES, fetch_gguf, open_gguf

pytestmark = pytest.mark.faults

TWO_FLOATS = [tensor(b"a", 2), tensor(b"b", 2, offset=32)]


def test_the_undamaged_file_is_valid() -> None:
    got = parse(GOOD)
    assert got.metadata["x.words"] == ["", "one", "två"]
    assert got.tensors["b"].shape == (2, 32)
    assert got.tensors["b"].offset + got.tensors["b"].n_bytes == len(GOOD)


def tail(start: bytes) -> bytes:
    return start + bytes(99)


def k(type_id: int, value: bytes) -> bytes:
    """A file with the single metadata entry `k`."""
    return file([entry(b"k", type_id, value)], [])


def alignment(type_id: int, value: bytes) -> bytes:
    return file([entry(b"general.alignment", type_id, value)], [])


def key(name: bytes) -> bytes:
    return file([entry(name, UINT8, b"\0")], [])


def t(*tensors: bytes) -> bytes:
    """A file of these tensors and 99 bytes of data."""
    return file([], list(tensors), bytes(99))


NO_ROOM = "cannot fit in the"
CASES: dict[str, tuple[bytes, str]] = {  # name: (file, message)
    "empty": (b"", "the file is empty"),
    "not gguf": (tail(b"\x7fELF"), r"not a GGUF file: it starts with b'\\x7fELF', not b'GGUF'"),
    "half a magic": (b"GG", r"not a GGUF file: it starts with b'GG'"),
    "safetensors": (tail(u64(200) + b'{"a":'), "looks like safetensors"),
    "zip": (tail(b"PK\x03\x04"), "ZIP or PyTorch archive"),
    "gzip": (tail(b"\x1f\x8b\x08"), "gzip file: unpack it"),
    "html": (tail(b"\n<!DOCTYPE html><html>"), "web page"),
    "bare html": (tail(b"<HTML><head>"), "web page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "run `git lfs pull`"),
    "ggml": (tail(b"lmgg"), "GGML, the format before GGUF"),
    "ggjt": (tail(b"tjgg"), "GGJT, a format before GGUF"),
    "swapped magic": (tail(b"FUGG"), "big-endian GGUF"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian GGUF file"),
    "version 0": (file([], [], version=0), "a big-endian GGUF file"),
    "short header": (
        file([], [])[:20],
        "the file ends after 20 bytes, inside its header; was the download interrupted",
    ),
    "many entries": (b"GGUF" + u32(3) + u64(0, 3) + bytes(41), f"3 metadata entries {NO_ROOM} 41"),
    "many tensors": (b"GGUF" + u32(3) + u64(2, 0) + bytes(57), f"2 tensors {NO_ROOM} 65"),
    "2^64 entries": (
        file([], [], n_entries=2**64 - 1),
        "18446744073709551615 metadata entries; at most 65536",
    ),
    "2^64 tensors": (file([], [], n_tensors=2**64 - 1), "18446744073709551615 tensors; at most 262144"),
    "-1 entries in 32 bits": (file([], [], n_entries=2**32 - 1), "4294967295 metadata entries; at most"),
    "no count": (b"GGUF" + u32(3) + u64(0), "ends after 16 bytes, inside its header"),
    "no version": (b"GGUF\3\0", "ends after 6 bytes, inside its header"),
    "key cut": (file([u64(40) + bytes(14)], [], n_entries=1)[:46], "ends after 46 bytes, inside its header"),
    "key of 2^64": (file([u64(2**64 - 1) + bytes(9)], []), "a metadata key of 18446744073709551615 bytes"),
    "value cut": (file([text(b"k" * 20) + u32(UINT64)], [])[:56], "ends after 56 bytes, inside its header"),
    "empty key": (key(b""), "a metadata key of 0 bytes; it must have 1 to 65535"),
    "long key": (key(b"k" * 65536), "a metadata key of 65536 bytes"),
    "key not utf-8": (key(b"\xff"), r"a metadata key is not valid UTF-8: b'\\xff'"),
    "control in key": (key(b"\x1b[2J"), "a metadata key contains control characters"),
    "same key": (file([entry(b"k", UINT8, b"\1")] * 2, []), "the metadata key 'k' occurs twice"),
    "unknown type": (k(13, b"\1"), "k: unknown metadata type 13"),
    "unknown item type": (k(ARRAY, array(13, 0)), "k: unknown metadata type 13"),
    "nested array": (k(ARRAY, array(ARRAY, 1)), "k: arrays inside arrays"),
    "bool 2": (k(BOOL, b"\2"), "k: a bool must be 0 or 1, found 2"),
    "bool array": (k(ARRAY, array(BOOL, 3, b"\0\1\3")), "must be 0 or 1, found 3"),
    "string past end": (k(STRING, u64(100)), f"k: a string of 100 bytes {NO_ROOM}"),
    "string in array": (k(ARRAY, array(STRING, 1, u64(99))), f"k: a string of 99 bytes {NO_ROOM}"),
    "array past end": (k(ARRAY, array(UINT64, 9)), f"k: an array of 9 items {NO_ROOM}"),
    "strings past end": (k(ARRAY, array(STRING, 9)), f"k: an array of 9 items {NO_ROOM}"),
    "alignment type": (alignment(INT32, u32(32)), "must be uint32, found int32"),
    "alignment list": (alignment(ARRAY, array(UINT32, 1, u32(32))), r"found array\[uint32\]"),
    "array type cut": (file([text(b"k") + u32(ARRAY)], [])[:38], "ends after 38 bytes, inside its header"),
    "type 2^32": (k(2**32 - 1, b"\1"), "k: unknown metadata type 4294967295"),
    "item type 2^32": (k(ARRAY, array(2**32 - 1, 1)), "k: unknown metadata type 4294967295"),
    "product of items wraps": (k(ARRAY, array(UINT64, 2**61 + 1)), "an array of 2305843009213693953 items"),
    "alignment uint64": (alignment(UINT64, u64(32)), "must be uint32, found uint64"),
    "alignment text": (alignment(STRING, text(b"32")), "must be uint32, found string"),
    "alignment 2^31": (
        file([entry(b"general.alignment", UINT32, u32(2**31))], [tensor(b"a", 1)]),
        "a: its data",
    ),
    "inconsistent alignment": (
        file([entry(b"general.alignment", UINT32, u32(64))], TWO_FLOATS, bytes(99)),
        "b: its offset 32 is not aligned to 64",
    ),
    "alignment 0": (alignment(UINT32, u32(0)), "power of two, found 0"),
    "alignment 48": (alignment(UINT32, u32(48)), "power of two, found 48"),
    "long name": (t(tensor(b"n" * 64, 1)), "a tensor name of 64 bytes; it must have 1 to 63"),
    "no name": (t(tensor(b"", 1)), "a tensor name of 0 bytes"),
    "name not utf-8": (t(tensor(b"\xc3(", 1)), "a tensor name is not valid UTF-8"),
    "control in name": (t(tensor(b"a\nb", 1)), "a tensor name contains control characters"),
    "same name": (t(tensor(b"a", 2), tensor(b"a", 2, offset=32)), "the tensor 'a' occurs twice"),
    "0 dims": (t(tensor(b"a", n_dims=0)), "a: 0 dimensions; 1 to 4"),
    "5 dims": (t(tensor(b"a", 1, 1, 1, 1, 1)), "a: 5 dimensions; 1 to 4"),
    "name cut": (file([], [u64(40) + bytes(25)])[:60], "ends after 60 bytes, inside its header"),
    "dims cut": (file([], [text(b"a" * 20) + u32(4)])[:64], "ends after 64 bytes, inside its header"),
    "info cut": (t(tensor(b"a" * 20, 1, 1))[:70], "ends after 70 bytes, inside its header"),
    "2^32 dims": (t(tensor(b"a", 1, n_dims=2**32 - 1)), "a: 4294967295 dimensions"),
    "dim 0": (t(tensor(b"a", 2, 0)), r"a: shape \(0, 2\) has a dimension of 0"),
    "values overflow": (t(tensor(b"a", 2**32, 2**32)), "overflows: 18446744073709551616 values"),
    "negative dim": (t(tensor(b"a", 2**64 - 1)), "overflows: 18446744073709551615 values"),
    "bytes overflow": (t(tensor(b"a", 2**61)), "overflows: 9223372036854775808 bytes"),
    # CVE-2025-53630 and CVE-2026-27940: sums and products that wrap around 2^64 to a small number.
    "product wraps to 0": (t(tensor(b"a", 2**32, 2**32, 2**32, 2**32)), "a: shape .* overflows"),
    "product wraps to 4": (t(tensor(b"a", 2**62 + 1, 4)), "a: shape .* overflows"),
    "bytes wrap": (t(tensor(b"a", 2**62)), "overflows: 18446744073709551616 bytes"),
    "padding wraps": (t(tensor(b"a", 2**63 - 1, type_id=I8)), "a: its data ends at byte 92233720368547758"),
    "sum wraps": (
        t(tensor(b"a", 2**62, type_id=I8), tensor(b"b", 2**62, type_id=I8, offset=2**62)),
        "a: its data ends at byte 4611686018427388000",
    ),
    "overflow behind a 0": (t(tensor(b"a", 0, 2**63, 2)), "has a dimension of 0"),
    "half a block": (t(tensor(b"a", 33, type_id=Q8_0)), "rows of 33 values do not divide into q8_0 blocks"),
    "blocks over rows": (t(tensor(b"a", 16, 2, type_id=Q8_0)), "rows of 16 values do not divide into q8_0"),
    "unaligned": (t(tensor(b"a", 2), tensor(b"b", 2, offset=8)), "b: its offset 8 is not aligned to 32"),
    "overlap": (t(tensor(b"a", 9), tensor(b"b", 2, offset=32)), "b: its offset is 32, .* ends at 64"),
    "hole": (t(tensor(b"a", 2), tensor(b"b", 2, offset=64)), "b: its offset is 64, .* ends at 32"),
    "late start": (t(tensor(b"a", 2, offset=32)), "a: its offset is 32, .* ends at 0"),
    "offset 2^64": (t(tensor(b"a", 2, offset=2**64 - 32)), "a: its offset is 18446744073709551584"),
    "data cut": (file([], TWO_FLOATS, bytes(39)), "b: its data ends at byte 136, the file at 135"),
    "no data": (t(tensor(b"a", 2**40)), "a: its data ends at byte 4398046511"),
    "overlap by wrapping": (
        t(tensor(b"a", 8), tensor(b"b", 2**62, offset=2**64 - 32)),
        "b: (shape .* overflows|its offset)",
    ),
    "same offset": (t(tensor(b"a", 2), tensor(b"b", 2)), "b: its offset is 0, .* ends at 32"),
    "backwards": (t(tensor(b"a", 2, offset=32), tensor(b"b", 2)), "a: its offset is 32, .* ends at 0"),
    "data begins past the end": (
        file([], [tensor(b"a", 1)])[:-1],
        "a: its data ends at byte 68, the file at 63",
    ),
}
# In a file with a declared size of 1 TiB, so that the check "past the end" passes.
CASES_OF_1_TIB: dict[str, tuple[bytes, str]] = {
    "long string": (k(STRING, u64(2**24 + 1)), "k: a string of 16777217 bytes; at most 16777216"),
    "2^64 string": (k(STRING, u64(2**64 - 1)), "k: a string of 18446744073709551615 bytes; at most"),
    "array over 1 Gi": (k(ARRAY, array(UINT8, 2**30 + 1)), "k: an array of 1073741825 items; at most"),
    "2^30 dims": (t(tensor(b"a", 1, n_dims=2**30)), "a: 1073741824 dimensions; 1 to 4"),
    "a tensor of 2 TiB": (t(tensor(b"a", 2**39)), "a: its data ends at byte 2199023255616"),
    "2^64 array": (k(ARRAY, array(UINT64, 2**64 - 1)), "items; at most 4194304"),
    "huge array": (k(ARRAY, array(UINT64, 2**22 + 1)), "an array of 4194305 items; at most 4194304"),
    "items of two arrays": (
        file([entry(b"j", ARRAY, array(UINT8, 9, bytes(9))), entry(b"k", ARRAY, array(UINT8, 2**22))], []),
        "k: an array of 4194304 items; at most 4194304 are allowed in all arrays",
    ),
    "2^16 entries": (file([], [], n_entries=2**16 + 1), "65537 metadata entries; at most 65536"),
    "2^18 tensors": (file([], [], n_tensors=2**18 + 1), "262145 tensors; at most 262144"),
    "huge key": (file([u64(2**29)], []), "a metadata key of 536870912 bytes"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_check(name: str) -> None:
    data, message = CASES[name]
    with pytest.raises(ModelFormatError, match=message) as caught:
        parse(data)
    assert str(caught.value).startswith("m.gguf: ")
    assert len(str(caught.value)) < 1000
    assert caught.value.facts["path"] == "m.gguf"
    assert isinstance(caught.value.facts["offset"], int)


@pytest.mark.parametrize("name", [name for name, (data, _) in CASES.items() if data[:8] == b"GGUF\3\0\0\0"])
def test_version_2_has_the_same_checks(name: str) -> None:
    data, message = CASES[name]
    with pytest.raises(ModelFormatError, match=message):
        parse(b"GGUF\2" + data[5:])


@pytest.mark.parametrize("name", CASES)
def test_local_and_remote_files_have_the_same_checks(name: str, tmp_path: Path) -> None:
    data, message = CASES[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(data)

    async def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    with pytest.raises(ModelFormatError, match=message):
        open_gguf(path)
    with pytest.raises(ModelFormatError, match=message):
        asyncio.run(fetch_gguf(read, len(data)))


def test_limits_are_inclusive() -> None:
    tight = entry(b"general.alignment", UINT32, u32(1))
    names = [bytes([letter]) for letter in range(48, 108)]
    tensors = [tensor(name, 1, type_id=I8, offset=i) for i, name in enumerate(names)]
    good = [
        b"GGUF" + u32(3) + u64(60, 1) + tight + b"".join(tensors) + bytes(60),  # 34 bytes a tensor
        file([], [tensor(b"n" * 63, 1)], bytes(4)),
        file([entry(b"k" * 65535, UINT8, b"\0")], []),
        file([], [tensor(b"a", 1, 1, 1, 1)], bytes(4)),
        file([tight], []),
        file([], TWO_FLOATS, bytes(40)),
        file([entry(b"k", UINT8, b"\0")], [])[:38],  # 24 bytes and the smallest entry
        file([entry(b"k", STRING, text(b"v"))], [])[:46],
        file([entry(b"k", ARRAY, array(UINT64, 0))], [])[:49],
    ]
    for data in good:
        parse(data)


@pytest.mark.parametrize(("version", "advice"), [(1, "convert the model again"), (4, "a newer Camelid may")])
def test_other_versions_are_refused_by_name(version: int, advice: str) -> None:
    message = f"^m.gguf: GGUF version {version} is not supported, only 2 and 3; {advice}"
    with pytest.raises(UnsupportedModelError, match=message):
        parse(file([], [], version=version))


@pytest.mark.parametrize(("type_id", "message"), [(4, "q4_2. is retired"), (99, "id 99; known: f32")])
def test_retired_and_unknown_types_are_refused(type_id: int, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"^m.gguf: blk.0: .*{message}") as caught:
        parse(t(tensor(b"blk.0", 2, type_id=type_id)))
    assert caught.value.facts["tensor"] == "blk.0"


@pytest.mark.parametrize("n", range(len(GOOD)))
def test_truncation_at_every_byte(n: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(GOOD[:n])
    with pytest.raises(ModelFormatError):
        open_gguf(path)


def outcome(data: bytes) -> str:
    try:
        parse(data)
    except (ModelFormatError, UnsupportedModelError) as error:
        assert len(str(error)) < 1000
        return type(error).__name__
    return "success"


def damaged(rng: random.Random) -> bytes:
    """One to eight bytes replaced by unusual values, sometimes truncated, mostly in the header."""
    data = bytearray(GOOD)
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)


def test_flipped_bytes_raise_clear_errors_in_bounded_memory() -> None:
    rng = random.Random(20)
    tracemalloc.start()
    seen = {outcome(damaged(rng)) for _ in range(2000)}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == {"success", "ModelFormatError", "UnsupportedModelError"}
    assert peak < 1 << 20


@pytest.mark.parametrize("name", CASES_OF_1_TIB)
def test_false_lengths_allocate_nothing(name: str) -> None:
    data, message = CASES_OF_1_TIB[name]
    tracemalloc.start()
    with pytest.raises(ModelFormatError, match=message):
        parse(data, 1 << 40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_header_over_its_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = k(STRING, u64(100) + bytes(100))
    monkeypatch.setattr("camelid.formats.source.MAX_HEADER_BYTES", 145)  # the end of the entry
    parse(data + bytes(9))
    monkeypatch.setattr("camelid.formats.source.MAX_HEADER_BYTES", 144)
    with pytest.raises(ModelFormatError, match="the header is larger than 144 bytes"):
        parse(data + bytes(9))


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"nowhere.gguf: there is no such file"):
        open_gguf(tmp_path / "nowhere.gguf")
    with pytest.raises(ModelFormatError, match=r"the file cannot be read: .*directory"):
        open_gguf(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="not on this platform: no named pipes")
def test_a_pipe_is_refused_before_it_blocks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFormatError, match="this is a pipe"):
        open_gguf(tmp_path / "pipe")


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_read_of_the_wrong_length_is_an_error(extra: int) -> None:
    async def read(offset: int, length: int) -> bytes:
        return GOOD[offset : offset + length + extra].ljust(length + extra, b"\0")

    with pytest.raises(ModelFormatError, match=rf"a read of {len(GOOD)} bytes at 0 gave {len(GOOD) + extra}"):
        asyncio.run(fetch_gguf(read, len(GOOD)))


@pytest.mark.parametrize(("magic", "hint"), LOOKALIKES)
def test_every_hint_occurs(magic: bytes, hint: str) -> None:
    with pytest.raises(ModelFormatError) as caught:
        parse(tail(magic))
    assert hint in str(caught.value)
