"""Small llamas: with a damaged header, or well-formed with implausible values."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeAlias

from tests.fuzz.mutate import GGUF_WORDS, NUMBERS, Make, damaged
from tests.support import crafted_gguf
from tests.support.gguf_files import write_tiny_llama

from camelid.errors import ModelFormatError
from camelid.formats.gguf import MetadataValue, open_gguf
from camelid.formats.gguf_values import encode_entry, infer_kind
from camelid.formats.quants import quant

Entry: TypeAlias = tuple[str, str, MetadataValue]  # key, kind, value
Shape: TypeAlias = tuple[str, str, tuple[int, ...]]  # name, type, shape

FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1e-45, 3e38, 0.5, 1.0)
TEXTS = ("", "llama", "gemma2", "gpt2", "none", "linear", "yarn", "longrope", "x" * 300, "\n\x1b[2J")
ONES = struct.pack("<f", 1.0)  # valid weights, and valid rope factors
TYPES = ("f32", "f16", "bf16", "q8_0", "q4_k", "i8", "iq2_xxs", "q8_1")


@dataclass(frozen=True, slots=True)
class Llama:
    """A small model in parts."""

    data: bytes
    head: int  # bytes before the weights
    entries: tuple[Entry, ...]
    tensors: tuple[Shape, ...]


@cache
def tiny() -> Llama:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        write_tiny_llama(
            path, seed=1, n_layers=1, hidden=32, n_heads=2, n_kv_heads=1, head_dim=16, ffn=32, vocab=32,
            with_tokenizer=False, rope_freqs=[1.0] * 8,
        )  # fmt: skip
        return parts_of(path)


def parts_of(path: Path) -> Llama:
    """The parts of a file."""
    got, data = open_gguf(path), path.read_bytes()
    entries = tuple((key, got.kinds[key], value) for key, value in got.metadata.items())
    tensors = tuple((tensor.name, tensor.type, tensor.shape) for tensor in got.tensors.values())
    return Llama(data, got.data_offset, entries, tensors)


@cache
def _bytes() -> Make:
    made = tiny()
    data, head = made.data, made.head
    return damaged([data[:head]], words=GGUF_WORDS, frame=lambda text: text + data[head:])


def llama_bytes(rng: Random) -> bytes:
    """A damaged header before intact weights."""
    return _bytes()(rng)


def llama_values(rng: Random) -> bytes:
    """A file within the rules of GGUF, with changed values, missing keys, other shapes and types."""
    return changed_values(rng, tiny())


def changed_values(rng: Random, made: Llama) -> bytes:
    """A small model's file with changed values, missing keys, other shapes and types."""
    entries, tensors = list(made.entries), list(made.tensors)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice((_other_value, _other_value, _other_value, _without))(rng, entries)
    if rng.random() < 0.3:
        _other_tensor(rng, tensors)
    return _file(entries, tensors)


def _without(rng: Random, entries: list[Entry]) -> None:
    del entries[rng.randrange(len(entries))]


def _other_value(rng: Random, entries: list[Entry]) -> None:
    at = rng.randrange(len(entries))
    key, kind, old = entries[at]
    same: tuple[MetadataValue, ...] = {int: NUMBERS, float: FLOATS, str: TEXTS}.get(type(old), (True, False))
    value: MetadataValue = rng.choice(same if rng.random() < 0.8 else (-1, 0.5, "x", True, [1], ["x"], [0.5]))
    if rng.random() < 0.1 and not isinstance(value, list):
        value = [value] * rng.choice((1, 2, 100))  # type: ignore[assignment]
    entries[at] = (key, kind if _fits(key, kind, value) else infer_kind(key, value), value)


def _fits(key: str, kind: str, value: MetadataValue) -> bool:
    try:
        return bool(list(encode_entry(key, kind, value)))
    except ModelFormatError:
        return False


def _other_tensor(rng: Random, tensors: list[Shape]) -> None:
    at = rng.randrange(len(tensors))
    name, kind, shape = tensors[at]
    size = 256 if len(shape) < 3 else 16
    changes = (
        (name, kind, shape[::-1]),
        (name, kind, (*shape, 1)),
        (name, kind, tuple(size for _ in shape)),
        (name, rng.choice(TYPES) if size == 256 else "f16", tuple(size for _ in shape)),
        (name, "f32", shape),
        (f"blk.{rng.choice((0, 1, -1, 999))}.{name.split('.')[-2]}.weight", kind, shape),
        ("x.weight", kind, shape),
    )
    tensors[at] = rng.choice(changes)


def _file(
    entries: Sequence[tuple[str, str, MetadataValue]], tensors: Sequence[tuple[str, str, tuple[int, ...]]]
) -> bytes:
    infos: list[bytes] = []
    offset = 0
    for name, kind, shape in tensors:
        row = quant(kind)
        infos.append(crafted_gguf.tensor(name.encode(), *reversed(shape), type_id=row.id, offset=offset))
        n_bytes = math.prod(shape) // row.block * row.block_bytes
        offset += n_bytes + -n_bytes % 32
    return crafted_gguf.file(
        [b"".join(encode_entry(*entry)) for entry in entries], infos, ONES * (offset // 4)
    )
