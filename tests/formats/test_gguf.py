"""The GGUF parser on well-formed files, written and read for comparison by the gguf package."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama

from camelid.errors import ModelFormatError
from camelid.formats.gguf import Gguf, GgufTensor, fetch_gguf, open_gguf, read_gguf
from camelid.formats.quants import QUANTS
from camelid.formats.source import Ask, Source

VOCABS = ["bert-bge", "llama-spm", "deepseek-coder", "falcon", "gpt-2"]
EXTREMES: dict[str, list[int | float | bool]] = {
    "uint8": [0, 255],
    "int8": [-128, 127],
    "uint16": [0, 65535],
    "int16": [-32768, 32767],
    "uint32": [0, 2**32 - 1],
    "int32": [-(2**31), 2**31 - 1],
    "float32": [1e-5, -math.inf],
    "bool": [True, False],
    "uint64": [0, 2**64 - 1],
    "int64": [-(2**63), 2**63 - 1],
    "float64": [math.pi, 5e-324],
}


def write(path: Path, fill: Callable[[gguf.GGUFWriter], object]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def oracle_metadata(fields: Iterable[Any]) -> dict[str, Any]:
    return {field.name: field.contents() for field in fields if not field.name.startswith("GGUF.")}


def asks_of(data: bytes) -> tuple[Gguf, list[tuple[int, int]]]:
    """Parses `data` and records each requested range."""
    steps, asks = read_gguf(len(data)), []
    try:
        ask = next(steps)
        while True:
            asks.append(ask)
            ask = steps.send(data[ask[0] : sum(ask)])
    except StopIteration as stop:
        return stop.value, asks


@pytest.mark.parametrize("name", EXTREMES)
def test_every_number_type(name: str, tmp_path: Path) -> None:
    kind = gguf.GGUFValueType[name.upper()]

    def fill(writer: gguf.GGUFWriter) -> None:
        for i, value in enumerate(EXTREMES[name]):
            writer.add_key_value(f"x.{i}", value, kind)
        writer.add_key_value("x.all", EXTREMES[name] * 3, gguf.GGUFValueType.ARRAY, sub_type=kind)

    path = write(tmp_path / "a.gguf", fill)
    got = open_gguf(path)
    assert got.metadata == oracle_metadata(gguf.GGUFReader(path).fields.values())
    assert got.kinds["x.0"] == name
    assert got.kinds["x.all"] == f"array[{name}]"
    assert {type(got.metadata["x.0"])} == {type(EXTREMES[name][0])}


def test_strings_and_empty_arrays(tmp_path: Path) -> None:
    words = ["", "plain", "smörgås 🦙", "nul\0inside", " " * 300]

    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_string("x.text", "Grüße\n🦙")
        writer.add_array("x.words", words)

    got = open_gguf(write(tmp_path / "a.gguf", fill))
    assert got.metadata == {"general.architecture": "llama", "x.text": "Grüße\n🦙", "x.words": words}


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_tensors_of_every_shape_and_type(alignment: int | None, tmp_path: Path) -> None:
    names = [
        kind for kind in gguf.GGMLQuantizationType if kind.name != "Q8_1"
    ]  # the package miscalculates its size

    def fill(writer: gguf.GGUFWriter) -> None:
        if alignment:
            writer.add_custom_alignment(alignment)
        for i, kind in enumerate(names):
            row = QUANTS[kind.name.lower()].block_bytes * (1 + i % 2)
            raw = np.full((1, 2, 3, row)[3 - i % 4 :], i, dtype=np.uint8)
            writer.add_tensor(f"t{i}", raw, raw_dtype=kind)

    path = write(tmp_path / "a.gguf", fill)
    got, data = open_gguf(path), path.read_bytes()
    want = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert got.alignment == (alignment or 32)
    assert list(got.tensors) == list(want)
    for i, tensor in enumerate(got.tensors.values()):
        reference = want[tensor.name]
        assert (tensor.offset, tensor.n_bytes) == (reference.data_offset, reference.n_bytes)
        assert tensor.shape == tuple(reversed(reference.shape.tolist()))
        assert tensor.type == reference.tensor_type.name.lower()
        assert set(data[tensor.offset : tensor.offset + tensor.n_bytes]) == {i}


def test_version_2_reads_like_version_3(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    write_tiny_llama(path, seed=1)
    new = open_gguf(path)
    data = bytearray(path.read_bytes())
    data[4] = 2
    path.write_bytes(data)
    old = open_gguf(path)
    assert (old.version, new.version) == (2, 3)
    assert (old.metadata, old.tensors) == (new.metadata, new.tensors)


def test_a_tiny_llama_holds_the_weights_it_returned(tmp_path: Path) -> None:
    weights = write_tiny_llama(tmp_path / "a.gguf", seed=3, type="f32", tied=False, rope_freqs=[1.0] * 32)
    got = open_gguf(tmp_path / "a.gguf")
    data = (tmp_path / "a.gguf").read_bytes()
    assert got.tensors.keys() == weights.keys()
    for name, tensor in got.tensors.items():
        values = np.frombuffer(data, "<f4", math.prod(tensor.shape), tensor.offset).reshape(tensor.shape)
        np.testing.assert_array_equal(values, weights[name])
    assert got.tensors["blk.1.attn_k.weight"].shape == (128, 256)


@pytest.mark.slow  # seconds in the gguf package's reader
@pytest.mark.conformance
@pytest.mark.parametrize("name", share_of(VOCABS, 2))
def test_real_vocabularies(name: str, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / f"data/vocab/{name}.gguf"
    got = open_gguf(path)
    # The package makes a million views of its file, each slow on a memmap.
    monkeypatch.setattr(np, "memmap", lambda path, mode: np.fromfile(path, np.uint8))
    fields = gguf.GGUFReader(path).fields.values()
    assert got.tensors == {}
    assert got.metadata == oracle_metadata(fields)
    types = {field.name: field.types[0].name.lower() for field in fields}
    assert {key: kind.split("[")[0] for key, kind in got.kinds.items()} == {
        key: types[key] for key in got.kinds
    }


def header_of_strings(n: int, tmp_path: Path) -> bytes:
    tokens = [f"token{i:06}" for i in range(n)]
    return write(
        tmp_path / "a.gguf", lambda writer: writer.add_array("tokenizer.ggml.tokens", tokens)
    ).read_bytes()


def test_reads_are_few_in_order_and_inside_the_file(tmp_path: Path) -> None:
    header = header_of_strings(150_000, tmp_path)
    data = header + bytes(10 << 20)  # stands in for weights
    got, asks = asks_of(data)
    assert len(got.get("tokenizer.ggml.tokens", list[str])) == 150_000
    assert [offset for offset, _ in asks] == [sum(length for _, length in asks[:i]) for i in range(len(asks))]
    assert [length for _, length in asks[:6]] == [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 1 << 20]
    assert sum(length for _, length in asks) <= len(header) + (1 << 20)
    assert sum(asks_of(header)[1][-1]) == len(header)


def test_one_long_string_is_one_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", lambda writer: writer.add_string("x", "y" * (5 << 20)))
    data = path.read_bytes()
    got, asks = asks_of(data + bytes(10 << 20))  # stands in for weights
    assert got.metadata["x"] == "y" * (5 << 20)
    end = 24 + 45 + 21 + (5 << 20)  # counts, general.architecture, x and its text
    assert [sum(ask) for ask in asks] == [64 << 10, end]


def test_strings_take_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    need = Source.need

    def counted(self: Source, n: int) -> Ask[None]:
        nonlocal calls
        calls += 1
        return need(self, n)

    monkeypatch.setattr(Source, "need", counted)
    _, asks = asks_of(header_of_strings(150_000, tmp_path))
    assert calls < 30 + 2 * len(asks)  # a generator per string: 150,000 generators, ten times slower


def test_fetch_equals_open(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    write_tiny_llama(path, seed=2)
    data = path.read_bytes()

    async def read(offset: int, length: int) -> bytes:
        await asyncio.sleep(0)
        return data[offset : offset + length]

    assert asyncio.run(fetch_gguf(read, len(data), str(path))) == open_gguf(path)


def test_invalid_utf8_survives_in_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", lambda writer: writer.add_array("x", ["ab", "cd"]))
    path.write_bytes(path.read_bytes().replace(b"ab", b"\xff\xc3"))
    words = open_gguf(path).get("x", list[str])
    assert [word.encode("utf-8", "surrogateescape") for word in words] == [b"\xff\xc3", b"cd"]


def header(**metadata: Any) -> Gguf:
    kinds = dict.fromkeys(metadata, "some kind")
    return Gguf(3, 32, metadata, kinds, {"t": GgufTensor("t", "f32", (1,), 0, 4)}, 0, 4, "m.gguf")


VALUES: dict[str, Any] = {
    "i": 7,
    "f": 0.5,
    "b": True,
    "s": "x",
    "li": [1],
    "lf": [0.5],
    "lb": [True],
    "ls": ["x"],
}
KINDS: dict[str, Any] = {
    "i": int, "f": float, "b": bool, "s": str,
    "li": list[int], "lf": list[float], "lb": list[bool], "ls": list[str],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", VALUES)
def test_get_checks_the_type(key: str, kind: str) -> None:
    source = header(**VALUES)
    if key == kind:
        assert source.get(key, KINDS[kind]) == VALUES[key]
        return
    with pytest.raises(
        ModelFormatError, match=rf"^m.gguf: {key} is .*\(some kind\), but .* is expected"
    ) as caught:
        source.get(key, KINDS[kind])
    assert caught.value.facts["key"] == key


def test_get_of_absent_keys() -> None:
    source = header(empty=[])
    assert source.get("x", int, 3) == 3
    assert source.get("x", int, None) is None
    assert source.get("empty", list[str]) == source.get("empty", list[int]) == []
    with pytest.raises(ModelFormatError, match=r"^m.gguf: the key x \(list\[str\]\) is missing"):
        source.get("x", list[str])


def test_get_refuses_a_wrong_type_even_with_a_default() -> None:
    with pytest.raises(ModelFormatError, match=r"i is 7 \(some kind\), but str is expected"):
        header(i=7).get("i", str, "fallback")
