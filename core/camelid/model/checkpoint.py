"""A model's file or directory in GGUF's terms: metadata, and weights as byte ranges by name."""

from __future__ import annotations

import base64
import struct
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import Gguf
from camelid.plan.weights import INLINE, Part, Weight

MAX_NUMBERS = 1 << 16  # bound of a tensor of RoPE factors, one factor per rotated pair


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Metadata in `header`, and weights by full GGUF name in `tensors`.

    For a directory's conversion to GGUF: `no_tokenizer` is the reason why GGUF cannot express its tokenizer,
    `losses` are the features lost in the metadata's tokenizer, one sentence each.
    """

    header: Gguf
    tensors: Mapping[str, Weight]
    no_tokenizer: UnsupportedModelError | None = None
    losses: tuple[str, ...] = ()


def checkpoint_of_gguf(gguf: Gguf, *, source: str = "model") -> Checkpoint:
    """The checkpoint of one parsed file; `source` is the key of its bytes in a backend's sources."""
    tensors = {
        t.name: Weight(name=t.name, type=t.type, shape=t.shape, parts=(Part(source, t.offset, t.n_bytes),))
        for t in gguf.tensors.values()
    }
    return Checkpoint(gguf, tensors)


def read_f32(weight: Weight) -> Generator[tuple[int, int], bytes, tuple[float, ...]]:
    """The numbers of an f32 vector, read at model load.

    The generator yields the tensor's (offset, n_bytes) and receives its bytes. Raises TensorShapeError for
    another type or shape, ModelFormatError for too few bytes.
    """
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
        raise ModelFormatError(
            f"{weight.name}: found {len(raw)} bytes, expected {weight.n_bytes}; the file is truncated"
        )
    return struct.unpack(f"<{len(raw) // 4}f", raw)
