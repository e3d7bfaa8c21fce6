"""Pixels of images as towers read them, beside those of transformers' image processors."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.vision_cases import ROWS
from tests.support.vision_models import image_of, load_vision, png_of

from camelid.images.decode import ImageFile
from camelid.images.patches import table_weights, windows_of
from camelid.loading.tower import Picture, picture
from camelid.model.spec import ModelSpec
from camelid.model.vision.spec import Resizing, TowerSpec

pytest.importorskip("PIL", reason="the extra vision is not installed")
FILE = Path(__file__).parents[1] / "golden" / "vision_pixels.json"
PIXELS: list[dict[str, Any]] = json.loads(FILE.read_text())
SEED = 5301
CLIP: dict[str, Any] = {
    "mean": (0.48145466, 0.4578275, 0.40821073),
    "std": (0.26862954, 0.26130258, 0.27577711),
}
TOWERS: dict[str, dict[str, Any]] = {
    "gemma3": {"resizing": Resizing(size=32), "n_positions": 64},
    "qwen2_5_vl": {"resizing": Resizing(factor=8, least=64, most=4096, resample="bicubic", **CLIP)},
}


def tower(case: str, **facts: Any) -> TowerSpec:
    layers: Any = ModelSpec.__new__(ModelSpec)
    return TowerSpec(
        projector="", layers=layers, patch_size=4, merge=2, out_size=64, **{**TOWERS[case], **facts}
    )


def made(case: str, size: list[int], **facts: Any) -> tuple[Picture, np.ndarray[Any, Any]]:
    """The picture, and its levels [patches, channels, pixels]."""
    spec = tower(case, **facts)
    got = picture(ImageFile(png_of(image_of(SEED, 0, size))), spec)
    values = np.frombuffer(got.inputs["pixels"], "f4").reshape(-1, 3, 16)
    mean, std = (np.array(v).reshape(1, 3, 1) for v in (spec.resizing.mean, spec.resizing.std))
    return got, (values * std + mean) * 255.0


@pytest.mark.parametrize("one", PIXELS, ids=lambda one: f"{one['case']}-{one['size']}")
def test_pixels_are_those_of_the_processor(one: dict[str, Any]) -> None:
    got, levels = made(one["case"], one["size"])
    want = np.frombuffer(base64.b64decode(one["levels"]), np.uint8)
    if one["grid"]:
        assert [1, got.grid.height, got.grid.width] == one["grid"]
        want = want.reshape(-1, 3, 16)
    else:
        want = of_patches(want.reshape(3, 32, 32))
    assert np.abs(levels - want).max() < 1e-3, "the levels are integers, so none differs"


def of_patches(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Channels x rows x columns in squares of 2 x 2 patches of 4 x 4 pixels."""
    cut = image.reshape(3, 4, 2, 4, 4, 2, 4)  # channels; squares, patches, pixels by row, then by column
    return cut.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3, 16)


def test_windows_have_their_squares_row_by_row() -> None:
    assert windows_of(3, 3, 2) == [
        [(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 2), (1, 2)], [(2, 0), (2, 1)], [(2, 2)],
    ]  # fmt: skip
    got, _ = made("qwen2_5_vl", [32, 32], window=4)
    assert list(got.windows) == [16] * 4
    assert list(got.order) == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]


def test_weights_of_a_table_are_bilinear() -> None:
    places = [(0, 0), (1, 1), (3, 4), (2, 3)]
    weights = np.frombuffer(table_weights(places, 4, 5, 3), "f4").reshape(4, 3, 3)
    assert np.allclose(weights.sum(axis=(1, 2)), 1.0)
    axis = np.arange(3)
    rows, cols = (weights * axis[:, None]).sum(axis=(1, 2)), (weights * axis).sum(axis=(1, 2))
    assert np.allclose(rows, [y * 2 / 3 for y, _ in places], atol=1e-6)
    assert np.allclose(cols, [x * 2 / 4 for _, x in places], atol=1e-6)


def test_the_goldens_name_their_processors() -> None:
    assert {row.processor["image_processor_type"] for row in ROWS} == {
        "Gemma3ImageProcessor", "Qwen2VLImageProcessor",
    }  # fmt: skip
    assert load_vision("qwen3_vl").processor["patch_size"] == 4
