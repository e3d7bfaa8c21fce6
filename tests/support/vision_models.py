"""Tiny models with vision towers, and their rows and logits as computed by transformers (golden/vision/)."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden.mutation import Mutation
from tests.support.hf_models import HfCase, Json, write_hf

FOLDER = Path(__file__).parents[1] / "golden" / "vision"
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionCase:
    """One golden model. `images` are heights and widths; `token_ids` have a placeholder per row of an image.

    `rows` are the towers' outputs, one array [rows, cols] per image, `logits` those of all tokens [T, V].
    """

    model: HfCase
    placeholder: int
    images: list[list[int]]
    processor: Json
    token_ids: list[int]
    rows: list[F32]
    logits: F32

    def __str__(self) -> str:
        return self.model.name

    def pixels(self, i: int) -> NDArray[np.uint8]:
        """Image `i` [height, width, channels]."""
        return image_of(self.model.seed, i, self.images[i])

    def png(self, i: int) -> bytes:
        return png_of(self.pixels(i))


def image_of(seed: int, i: int, size: list[int]) -> NDArray[np.uint8]:
    """A smooth gradient with noise: patches differ, and so do rows, columns and channels."""
    height, width = size
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    noise = np.frombuffer(zlib.compress(b"%d/%d" % (seed, i)) * (height * width * 3), np.uint8)
    smooth = 7 * y * (c + 1) + 5 * x * (3 - c) + 31 * c
    return ((smooth + noise[: height * width * 3].reshape(height, width, 3) // 2) % 256).astype(np.uint8)


def png_of(pixels: NDArray[np.uint8]) -> bytes:
    """The pixels [height, width, 3] as a PNG file (RFC 2083), without a library."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def load_vision(name: str) -> VisionCase:
    raw: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    rows = [_unpacked(text, n) for text, n in zip(raw["rows"], raw["n_rows"], strict=True)]
    model = HfCase(
        name=name,
        config=raw["config"],
        seed=raw["seed"],
        tensors=raw["tensors"],
        token_ids=[],
        logits=[],
        weights_crc32=raw["weights_crc32"],
    )
    return VisionCase(
        model=model,
        placeholder=raw["placeholder"],
        images=raw["images"],
        processor=raw["processor"],
        token_ids=raw["token_ids"],
        rows=rows,
        logits=_unpacked(raw["logits"], len(raw["token_ids"])),
    )


def write_vision(folder: Path, case: VisionCase, wrong: Mutation | None = None) -> Path:
    """Writes the model's directory with the settings of its image processor, perhaps with a wrong fact."""
    changes, neutral = (wrong.config, wrong.neutral) if wrong else ({}, ())
    write_hf(folder, case.model, config_changes=changes, neutral=neutral)
    (folder / "preprocessor_config.json").write_text(json.dumps(case.processor))
    return folder


def load_visions() -> list[VisionCase]:
    return [load_vision(path.stem) for path in sorted(FOLDER.glob("*.json"))]


def _unpacked(text: str, n_rows: int) -> F32:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(n_rows, -1)
