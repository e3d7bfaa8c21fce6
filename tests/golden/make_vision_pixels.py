"""Makes vision_pixels.json: the pixels of resized images by transformers' image processors.

`--write` replaces the file; else the script compares. Values are stored as levels of 0 to 255 in a PNG-free
form: base64 of bytes, in the order of patches of the processor (Qwen), or of channels, rows, columns (Gemma).
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.golden.vision_cases import ROWS
from tests.support.vision_models import image_of
from transformers.models.gemma3 import Gemma3ImageProcessor
from transformers.models.qwen2_vl import Qwen2VLImageProcessor

FILE = Path(__file__).parent / "vision_pixels.json"
SEED = 5301
SIZES = ([20, 47], [64, 33], [7, 9], [32, 32])
PROCESSORS = {"gemma3": Gemma3ImageProcessor, "qwen2_5_vl": Qwen2VLImageProcessor}


def levels(case: str, size: list[int]) -> dict[str, Any]:
    """The levels of one image, and the grid of a processor that keeps the sides' ratio."""
    settings = {**next(row.processor for row in ROWS if row.name == case)}
    settings.pop("image_processor_type")
    processor = PROCESSORS[case](**settings)
    made = processor(images=[image_of(SEED, 0, size)], return_tensors="np")
    values = np.asarray(made["pixel_values"], "f8").reshape(-1)
    mean, std = (np.asarray(getattr(processor, name), "f8") for name in ("image_mean", "image_std"))
    if case == "gemma3":
        values = values.reshape(3, -1)
    else:  # patches x channels x frames x pixels
        patch = settings["patch_size"]
        values = values.reshape(-1, 3, 2, patch * patch)
        assert np.array_equal(values[:, :, 0], values[:, :, 1])
        values = values[:, :, 0]
    shape = (3, 1) if case == "gemma3" else (1, 3, 1)
    levels = np.rint((values * std.reshape(shape) + mean.reshape(shape)) * 255.0)
    grid = np.asarray(made.get("image_grid_thw", [[]])).reshape(-1).tolist()
    return {"case": case, "size": size, "grid": grid, "levels": packed(levels)}


def packed(values: Any) -> str:
    return base64.b64encode(values.astype(np.uint8).tobytes()).decode()


def main() -> int:
    made = [levels(case, size) for case in PROCESSORS for size in SIZES]
    if "--write" in sys.argv:
        FILE.write_text("[\n" + ",\n".join(map(json.dumps, made)) + "\n]\n")
    kept = json.loads(FILE.read_text())
    equal = made == kept
    print(f"vision_pixels: {len(made)} images, {'equal' if equal else 'DIFFERENT'}")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
