"""Precompiled character maps for tests: made from strings, or read from a SentencePiece model."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from typing import cast

from sentencepiece import SentencePieceTrainer

VALUE, LEAF, WIDE = 1 << 31, 1 << 8, 1 << 9


def compiled(pairs: Mapping[str, str]) -> bytes:
    """The map in SentencePiece's format. Each node owns a block of 256 units."""
    children: list[dict[int, int]] = [{}]
    values: dict[int, int] = {}
    blob = b""
    for key, replacement in pairs.items():
        node = 0
        for byte in key.encode():
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
            node = children[node][byte]
        values[node] = len(blob)
        blob += replacement.encode() + b"\0"
    return packed(units_of(children, values), blob)


def units_of(children: list[dict[int, int]], values: Mapping[int, int]) -> list[int]:
    """The units of a node; its base is its block: children lie in the block, the value at its start."""
    units = [0] * 256 * (len(children) + 1)
    place = {0: 0}
    for node, branches in enumerate(children):
        base = 256 * (node + 1)
        units[place[node]] |= (place[node] ^ base) << 10
        for byte, child in branches.items():
            place[child] = base + byte
            units[base + byte] = byte
        if node in values:
            units[place[node]] |= LEAF
            units[base] = VALUE | values[node]
    return units


def packed(units: list[int], blob: bytes) -> bytes:
    return struct.pack(f"<{len(units) + 1}I", 4 * len(units), *units) + blob


def fields(data: bytes) -> Iterator[tuple[int, object]]:
    """Number and value of each field of a protobuf message, the format of a .model file."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value: object
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = ({1: 8, 5: 4}[tag & 7], at) if tag & 7 in {1, 5} else varint(data, at)
            value, at = data[at : at + size], at + size
        yield tag >> 3, value


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def charsmap_of(model: bytes) -> bytes:
    """The map in a .model file; empty for the normalizer "identity"."""
    spec = next(cast("bytes", value) for number, value in fields(model) if number == 3)
    return cast("bytes", dict(fields(spec)).get(2, b""))


def published(name: str) -> bytes:
    """The map that SentencePiece gives models for a rule such as "nmt_nfkc"."""
    file = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["a b"]), model_writer=file, model_type="char", vocab_size=6, minloglevel=2,
        normalization_rule_name=name, num_threads=1,
    )  # fmt: skip
    return charsmap_of(file.getvalue())
