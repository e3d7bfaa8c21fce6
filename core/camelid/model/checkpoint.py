"""A model's file or directory as GGUF would say it: metadata, and weights by name, none of them read yet."""

from __future__ import annotations

import base64
import struct
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import Gguf
from camelid.plan.weights import INLINE, Part, Weight

MAX_NUMBERS = 1 << 16  # of a tensor that is a fact: one a pair of floats that are rotated
Ask = Generator[tuple[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`header` holds the metadata and its strict getters; `tensors` are weights by full GGUF name.

    `no_tokenizer` says why the metadata has no tokenizer although there is one; `losses` are what it cannot
    say of the one it has, one sentence each. Both are for who writes a GGUF file.
    """

    header: Gguf
    tensors: Mapping[str, Weight]
    no_tokenizer: UnsupportedModelError | None = None
    losses: tuple[str, ...] = ()


def checkpoint_of_gguf(gguf: Gguf, *, source: str = "model") -> Checkpoint:
    """The checkpoint of one parsed file, whose bytes a backend will find under `source`."""
    tensors = {
        t.name: Weight(name=t.name, type=t.type, shape=t.shape, parts=(Part(source, t.offset, t.n_bytes),))
        for t in gguf.tensors.values()
    }
    return Checkpoint(gguf, tensors)


def read_f32(weight: Weight) -> Generator[tuple[int, int], bytes, tuple[float, ...]]:
    """The numbers of a tensor that is a fact rather than a weight; asks for its bytes."""
    if weight.type != "f32":
        raise TensorShapeError(
            f"{weight.name}: type {weight.type}, expected f32; convert the file again",
            name=weight.name,
            got=weight.type,
            want="f32",
        )
    if weight.shape[0] > MAX_NUMBERS or len(weight.shape) > 1:
        raise TensorShapeError(
            f"{weight.name}: shape {weight.shape}, expected a vector of at most {MAX_NUMBERS} numbers",
            name=weight.name,
            got=weight.shape,
        )
    part = weight.parts[0]
    raw = base64.b64decode(part.data) if part.source == INLINE else (yield part.offset, part.n_bytes)
    if len(raw) != weight.n_bytes:
        raise ModelFormatError(f"{weight.name}: {len(raw)} bytes of {weight.n_bytes} could be read")
    return struct.unpack(f"<{len(raw) // 4}f", raw)
