"""Files written by Camelid: the gguf package reads them, and rewriting changes no byte."""

from __future__ import annotations

import math
import re
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.support.gguf_files import write_tiny_llama

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.gguf import Gguf, GgufTensor, MetadataValue, open_gguf
from camelid.formats.gguf_writer import Chunks, TensorOut, infer_kinds, write_gguf
from camelid.formats.quants import GGUF_TYPES, QUANTS

METADATA: dict[str, MetadataValue] = {
    "general.architecture": "llama",
    "x.text": "Grüße\n🦙\0",
    "x.bytes": b"\xff\xc3".decode("utf-8", "surrogateescape"),
    "x.words": ["", "one", "två"],
    "x.none": [],
    "x.flag": True,
    "x.flags": [True, False],
    "x.u8": 255,
    "x.i8": -128,
    "x.u16": 65535,
    "x.i16": -32768,
    "x.u32": 2**32 - 1,
    "x.i32": -(2**31),
    "x.u64": 2**64 - 1,
    "x.i64": -(2**63),
    "x.f32": -math.inf,
    "x.f64": 5e-324,
    "x.f32s": [0.5] * 20_000,  # more than one chunk
    "x.i64s": list(range(-9000, 9000)),
}
KINDS = {
    "general.architecture": "string", "x.text": "string", "x.bytes": "string", "x.words": "array[string]",
    "x.none": "array[uint16]", "x.flag": "bool", "x.flags": "array[bool]", "x.u8": "uint8", "x.i8": "int8",
    "x.u16": "uint16", "x.i16": "int16", "x.u32": "uint32", "x.i32": "int32", "x.u64": "uint64",
    "x.i64": "int64", "x.f32": "float32", "x.f64": "float64", "x.f32s": "array[float32]",
    "x.i64s": "array[int64]",
}  # fmt: skip


def pieces(data: bytes, size: int = 1000) -> Chunks:
    return lambda: (memoryview(data)[i : i + size] for i in range(0, len(data), size))


def from_file(tensor: GgufTensor, path: Path) -> TensorOut:
    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(tensor.offset)
            yield file.read(tensor.n_bytes)

    return TensorOut(tensor.name, tensor.type, tensor.shape, chunks)


def rewrite(source: Path, target: Path, **changes: Any) -> Gguf:
    """Reads a file and writes it again."""
    got = open_gguf(source)
    tensors = [from_file(tensor, source) for tensor in got.tensors.values()]
    options: dict[str, Any] = {"version": got.version, "alignment": got.alignment, **changes}
    write_gguf(target, metadata=got.metadata, kinds=got.kinds, tensors=tensors, **options)
    return got


def tensors_of_every_type(rng: np.random.Generator) -> dict[str, tuple[TensorOut, bytes]]:
    """A tensor of each type, of one to four dimensions, of sizes that no alignment divides."""
    made: dict[str, tuple[TensorOut, bytes]] = {}
    for i, row in enumerate(row for row in QUANTS.values() if row.name in GGUF_TYPES):
        shape = (2, 1, 3, row.block * (1 + i % 3))[3 - i % 4 :]
        data = rng.bytes(math.prod(shape) // row.block * row.block_bytes)
        made[f"t.{row.name}"] = (TensorOut(f"t.{row.name}", row.name, shape, pieces(data)), data)
    return made


@pytest.mark.conformance
@pytest.mark.parametrize("alignment", [None, 1, 8, 64, 4096])
def test_the_gguf_package_reads_written_files(alignment: int | None, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    # The package miscalculates q8_1, lacks q2_0, and fails for empty arrays and invalid UTF-8.
    made = tensors_of_every_type(np.random.default_rng(1))
    made = {name: made[name] for name in made if name not in {"t.q8_1", "t.q2_0"}}
    metadata = {key: value for key, value in METADATA.items() if key not in {"x.none", "x.bytes"}}
    kinds = {key: KINDS[key] for key in metadata}
    tensors = [tensor for tensor, _ in made.values()]
    write_gguf(path, metadata=metadata, kinds=kinds, tensors=tensors, alignment=alignment)
    reader = gguf.GGUFReader(path)
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    stored = {"general.alignment": alignment} if alignment else {}
    assert {key: field.contents() for key, field in fields.items()} == metadata | stored
    for key, kind in kinds.items():
        assert "array".join(part.name.lower() for part in fields[key].types[:2]) == re.sub(
            r"array\[(.*)\]", r"arrayarray\1", kind
        )
    assert [tensor.name for tensor in reader.tensors] == list(made)
    for tensor in reader.tensors:
        want, data = made[tensor.name]
        assert tensor.tensor_type.name.lower() == want.type
        assert tuple(reversed(tensor.shape.tolist())) == want.shape
        assert tensor.data.tobytes() == data
        assert tensor.data_offset % (alignment or 32) == 0


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [1, 32, 128])
def test_written_files_are_read_back(version: int, alignment: int, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    made = tensors_of_every_type(np.random.default_rng(2))
    tensors = [tensor for tensor, _ in made.values()]
    options: dict[str, Any] = {"alignment": alignment, "version": version}
    write_gguf(path, metadata=METADATA, kinds=KINDS, tensors=tensors, **options)
    got, data = open_gguf(path), path.read_bytes()
    extra = {} if alignment == 32 else {"general.alignment": alignment}
    assert got.metadata == METADATA | extra
    assert got.kinds == KINDS | dict.fromkeys(extra, "uint32")
    assert (got.version, got.alignment, got.file_size % alignment) == (version, alignment, 0)
    assert list(got.tensors) == list(made)
    for name, tensor in got.tensors.items():
        assert (tensor.type, tensor.shape) == (made[name][0].type, made[name][0].shape)
        assert data[tensor.offset : tensor.offset + tensor.n_bytes] == made[name][1]
    rewrite(path, tmp_path / "b.gguf")
    assert (tmp_path / "b.gguf").read_bytes() == data


@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "f16", "f32"])
def test_a_file_of_the_package_is_rewritten_byte_for_byte(kind: str, tmp_path: Path) -> None:
    source, target = tmp_path / "a.gguf", tmp_path / "b.gguf"
    write_tiny_llama(source, seed=4, type=kind, tied=False, rope_freqs=[0.5] * 32)
    rewrite(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_cria_is_rewritten_byte_for_byte(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "core/camelid/data/cria.gguf"
    rewrite(source, tmp_path / "b.gguf")
    assert (tmp_path / "b.gguf").read_bytes() == source.read_bytes()


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["bert-bge", "gpt-2", "llama-spm"])
def test_real_vocabularies_are_rewritten_except_padding(name: str, shared: Path, tmp_path: Path) -> None:
    source = shared / f"data/vocab/{name}.gguf"
    rewrite(source, tmp_path / "b.gguf")
    data = source.read_bytes()
    assert (tmp_path / "b.gguf").read_bytes() == data + bytes(-len(data) % 32)


def test_a_file_can_be_rewritten_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    write_tiny_llama(path, seed=5)
    before = path.read_bytes()
    rewrite(path, path)
    assert path.read_bytes() == before
    rewrite(path, path, version=2)
    assert path.read_bytes() == before[:4] + b"\2" + before[5:]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.gguf"]


def one(**changes: Any) -> TensorOut:
    return replace(TensorOut("t", "f32", (2, 3), pieces(bytes(24))), **changes)


def attempt(path: Path, *tensors: TensorOut, metadata: Any = None, kinds: Any = None, **options: Any) -> None:
    values = metadata or {}
    write_gguf(path, metadata=values, kinds=kinds or infer_kinds(values), tensors=tensors, **options)


def value(kind: str, item: Any) -> dict[str, Any]:
    return {"metadata": {"k": item}, "kinds": {"k": kind}}


def chunks_of(*sizes: int) -> Chunks:
    return lambda: (bytes(size) for size in sizes)


HUGE = 10**5000  # Python refuses to print it
BAD: dict[str, tuple[list[TensorOut], dict[str, Any], str]] = {  # name: (tensors, options, message)
    "same name": ([one(), one()], {}, "the tensor 't' occurs twice"),
    "no name": ([one(name="")], {}, "a tensor name of 0 bytes; it must have 1 to 63"),
    "long name": ([one(name="å" * 32)], {}, "a tensor name of 64 bytes"),
    "control in name": ([one(name="a\nb")], {}, "a tensor name contains control characters"),
    "surrogate in name": ([one(name="\udcff")], {}, "a tensor name contains .* lone surrogates"),
    "0 dims": ([one(shape=())], {}, "t: 0 dimensions; 1 to 4"),
    "5 dims": ([one(shape=(1,) * 5)], {}, "t: 5 dimensions; 1 to 4"),
    "dim 0": ([one(shape=(2, 0))], {}, r"t: shape \(2, 0\) must have whole numbers from 1"),
    "negative dim": ([one(shape=(-2, -3))], {}, r"t: shape \(-2, -3\) must have whole numbers"),
    "fraction": ([one(shape=(2.0, 3))], {}, "must have whole numbers"),
    "half a block": ([one(type="q8_0", shape=(33,))], {}, "rows of 33 values do not divide into q8_0"),
    "values overflow": ([one(shape=(2**32, 2**31))], {}, "overflows: 9223372036854775808 values"),
    "bytes overflow": ([one(shape=(2**61,))], {}, "t: shape .* overflows"),
    "sum overflow": ([one(shape=(2**60,)), one(name="u", shape=(2**60,))], {}, "the tensors need"),
    "too few bytes": (
        [one(chunks=chunks_of(23))],
        {},
        "chunks have 23 bytes, but f32 of shape .* needs 24",
    ),
    "too many bytes": ([one(chunks=chunks_of(24, 1))], {}, "its chunks have more than 24 bytes"),
    "alignment 0": ([], {"alignment": 0}, "a power of two below 2.*32, found 0"),
    "alignment 48": ([], {"alignment": 48}, "a power of two below 2.*32, found 48"),
    "alignment 2^32": ([], {"alignment": 2**32}, "a power of two below 2.*32, found 4294967296"),
    "two alignments": (
        [],
        {"metadata": {"general.alignment": 64}, "alignment": 32},
        "alignment 32 was requested, but general.alignment is 64",
    ),
    "alignment kind": (
        [],
        {"metadata": {"general.alignment": 64}, "kinds": {"general.alignment": "uint64"}},
        "general.alignment must be uint32, found 64 as uint64",
    ),
    "empty key": ([], {"metadata": {"": 1}}, "a metadata key of 0 bytes"),
    "long key": ([], {"metadata": {"k" * 65536: 1}}, "a metadata key of 65536 bytes"),
    "control in key": ([], {"metadata": {"\x1b": 1}}, "a metadata key contains control characters"),
    "many entries": (
        [],
        {"metadata": dict.fromkeys(map(str, range(65537)), 1)},
        "65537 metadata entries; at most",
    ),
    "no kind": ([], {"metadata": {"k": 1}, "kinds": {"j": "bool"}}, ": no (kind|value) is given"),
    "kind without value": ([], {"kinds": {"k": "bool"}}, "k: no value is given"),
    "unknown kind": ([], value("uint128", 1), "k: unknown kind 'uint128'; known: uint8, .*string, and array"),
    "nested kind": ([], value("array[array[bool]]", []), r"k: unknown kind 'array\[array\[bool\]\]'"),
    "scalar as list": ([], value("array[uint8]", 1), r"k: 1 is not a list, but its kind is array\[uint8\]"),
    "list as scalar": ([], value("uint8", [1]), r"k: \[1\] is list, but uint8 stores int"),
    "bool as int": ([], value("uint8", True), "k: True is bool, but uint8 stores int"),
    "int as bool": ([], value("bool", 1), "k: 1 is int, but bool stores bool"),
    "int as float": ([], value("float32", 1), "k: 1 is int, but float32 stores float"),
    "none": ([], value("string", None), "k: None is NoneType, but string stores str"),
    "mixed": ([], value("array[uint8]", [1, "x"]), "k: 'x' is str, but uint8 stores int"),
    "256 as uint8": ([], value("uint8", 256), "k: 256 does not fit uint8"),
    "-1 as uint64": ([], value("uint64", -1), "k: -1 does not fit uint64"),
    "in a list": ([], value("array[int8]", [1, -129]), "k: -129 does not fit int8"),
    "huge int": ([], value("uint64", HUGE), "k: an integer of 16610 bits does not fit uint64"),
    "huge float": ([], value("float32", 1e39), r"k: 1e\+39 does not fit float32"),
    "lone surrogate": ([], value("string", "ab\ud800"), "contains a lone surrogate that encodes no byte"),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", BAD)
def test_each_rule_is_checked_before_a_file_is_created(name: str, tmp_path: Path) -> None:
    tensors, options, message = BAD[name]
    with pytest.raises(ModelFormatError, match=message) as caught:
        attempt(tmp_path / "a.gguf", *tensors, **options)
    assert str(caught.value).startswith(f"{tmp_path}/a.gguf: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.faults
@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("gguf_writer.MAX_HEADER_BYTES", "the header is larger than 100 bytes"),
        ("gguf_values.MAX_STRING_BYTES", "k: a string of 101 bytes; at most 100 are allowed"),
    ],
)
def test_limits_of_gibibytes(
    limit: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(f"camelid.formats.{limit}", 100)
    with pytest.raises(ModelFormatError, match=message):
        attempt(tmp_path / "a.gguf", **value("string", "x" * 101))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.faults
def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="t: unknown tensor type 'Q8_0'; known: f32"):
        attempt(tmp_path / "a.gguf", one(type="Q8_0"))
    with pytest.raises(UnsupportedModelError, match="GGUF version 1 is not written, only 2 and 3"):
        attempt(tmp_path / "a.gguf", version=1)
    assert list(tmp_path.iterdir()) == []


def test_progress_and_memory(tmp_path: Path) -> None:
    """64 MiB of tensors in chunks of 1 MiB need less than 4 MiB of memory."""
    chunk = bytes(1 << 20)
    tensors = [TensorOut(f"t{i}", "f32", (1 << 22,), lambda: (chunk for _ in range(16))) for i in range(4)]
    seen: list[tuple[str, int, int]] = []
    tracemalloc.start()
    attempt(tmp_path / "a.gguf", *tensors, progress=lambda *told: seen.append(told))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert seen[0] == ("t0", 1 << 20, 64 << 20)
    assert seen[-1] == ("t3", 64 << 20, 64 << 20)
    assert len(seen) == 64


@pytest.fixture
def small_files() -> Iterator[None]:
    """The system refuses files over 1 MiB, as for a quota or a full disk."""
    resource = pytest.importorskip("resource", reason="not on this platform: no limit on a file's size")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.faults
def test_a_full_disk_is_one_error_and_leaves_no_file(small_files: None, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"the old file")
    big = TensorOut("t", "f32", (1 << 20,), pieces(bytes(4 << 20), 1 << 16))
    message = "a.gguf: cannot be written: File too large; its tensors need 4194304 bytes, and no partial file"
    with pytest.raises(ModelFormatError, match=message) as caught:
        attempt(path, big)
    assert str(caught.value).count("a.gguf") == 1
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("a.gguf", b"the old file")]


@pytest.mark.faults
def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").symlink_to("/dev/null")
    with pytest.raises(ModelFormatError, match="exists and is not a regular file"):
        attempt(tmp_path / "model.gguf", one())
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.gguf"]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/such/a.gguf", "cannot be written: No such file"),
        ("file/a.gguf", "cannot be written: Not a directory"),
        ("folder", "it exists and is not a regular file"),
        ("n" * 300, "cannot be written: File name too long"),
    ],
)
def test_unwritable_paths_are_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelFormatError, match=message):
        attempt(tmp_path / name, one())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def cut_short() -> Iterator[bytes]:
    yield bytes(8)
    raise KeyboardInterrupt


@pytest.mark.faults
@pytest.mark.parametrize(("chunks", "error"), [(cut_short, KeyboardInterrupt), (lambda: [None], TypeError)])
def test_an_interrupted_write_raises_and_leaves_no_file(
    chunks: Callable[[], Any], error: type[BaseException], tmp_path: Path
) -> None:
    with pytest.raises(error):
        attempt(tmp_path / "a.gguf", one(chunks=chunks))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.faults
def test_an_unreadable_source_is_not_reported_as_unwritable(tmp_path: Path) -> None:
    missing = from_file(GgufTensor("t", "f32", (2, 3), 0, 24), tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        attempt(tmp_path / "a.gguf", missing)
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    attempt(tmp_path / "a.gguf", one())
    assert (tmp_path / "a.gguf").stat().st_mode == (tmp_path / "usual").stat().st_mode
