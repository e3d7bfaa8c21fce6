"""Makes vision/*.json with transformers: rows of towers and logits of tiny random models with images.

As make_archs.py: `--write` replaces the files, further arguments select cases by name prefix. The pixels come
from transformers' own image processor at the tower's size.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from tests.golden.mutation import Mutation
from tests.golden.vision_cases import ROWS, WRONG, VisionRow
from tests.support.hf_models import HfCase, nmse, weights_crc32, write_hf
from tests.support.vision_models import FOLDER, image_of, load_vision
from transformers import AutoConfig, AutoModelForImageTextToText, logging
from transformers.models.gemma3 import Gemma3ImageProcessor
from transformers.models.qwen2_vl import Qwen2VLImageProcessor

ALLOWED = 1e-11  # NMSE between machines
LEAST = 1e-7  # of a wrong fact
PROCESSORS = {"Gemma3ImageProcessor": Gemma3ImageProcessor, "Qwen2VLImageProcessor": Qwen2VLImageProcessor}
Arrays = list[np.ndarray[Any, Any]]


def saved_shapes(row: VisionRow) -> dict[str, list[int]]:
    """Tensors that save_pretrained writes for this config, in order of names."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(row.config))
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder))
        model.save_pretrained(folder)
        with safe_open(Path(folder) / "model.safetensors", "np") as file:
            return {name: list(file.get_slice(name).get_shape()) for name in sorted(file.keys())}


def model_of(folder: Path) -> Any:
    options = {
        "dtype": torch.float64, "attn_implementation": "eager", "experts_implementation": "eager",
    }  # fmt: skip
    return AutoModelForImageTextToText.from_pretrained(folder, **options).eval()


def inputs_of(row: VisionRow, config: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The processor's inputs of the prompt, and the placeholder's id."""
    images = [image_of(row.seed, i, size) for i, size in enumerate(row.images)]
    settings = {k: v for k, v in row.processor.items() if k != "image_processor_type"}
    processor = PROCESSORS[row.processor["image_processor_type"]](**settings)
    tensors = dict(processor(images=images, return_tensors="pt"))
    placeholder = config["image_token_index"] if "image_token_index" in config else config["image_token_id"]
    grids = tensors.get("image_grid_thw")
    merge = config["vision_config"].get("spatial_merge_size", 1)
    fixed = [config.get("mm_tokens_per_image", 0)] * len(images)
    counts = iter(fixed if grids is None else [int(g.prod()) // merge**2 for g in grids])
    ids = [i for t in row.prompt for i in ([placeholder] * next(counts) if t == "image" else [t])]
    tensors["input_ids"] = torch.tensor([ids])
    types = "token_type_ids" if grids is None else "mm_token_type_ids"
    tensors[types] = (tensors["input_ids"] == placeholder).long()
    tensors["pixel_values"] = tensors["pixel_values"].double()
    tensors.pop("num_crops", None)
    return tensors, placeholder


def run(row: VisionRow, case: HfCase, mutation: Mutation | None = None) -> tuple[Arrays, Any, list[int]]:
    """Rows of each image, logits [T, V], token ids."""
    changes = mutation.config if mutation else None
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        write_hf(folder, case, config_changes=changes, neutral=mutation.neutral if mutation else ())
        model = model_of(Path(folder))
        inputs, _ = inputs_of(row, row.config)
        rows = rows_of(model, inputs)
        logits = model(**inputs, use_cache=False).logits[0].double().numpy()
    assert np.isfinite(logits).all()
    return rows, logits, inputs["input_ids"][0].tolist()


def rows_of(model: Any, inputs: dict[str, Any]) -> Arrays:
    """The tower's rows of each image."""
    grids = {"image_grid_thw": inputs["image_grid_thw"]} if "image_grid_thw" in inputs else {}
    found = model.model.get_image_features(inputs["pixel_values"], **grids)
    rows = list(getattr(found, "pooler_output", found))
    taps = getattr(found, "deepstack_features", None) or []
    return [
        torch.cat([own, *(tap[i] for tap in taps)], dim=-1).double().numpy() for i, own in enumerate(rows)
    ]


def packed(values: Any) -> str:
    return base64.b64encode(np.asarray(values).astype("<f4").tobytes()).decode()


def golden(row: VisionRow) -> tuple[HfCase, dict[str, Any]]:
    tensors = saved_shapes(row)
    case = HfCase(
        name=row.name, config=row.config, seed=row.seed, tensors=tensors, token_ids=[], logits=[],
        weights_crc32=0,
    )  # fmt: skip
    object.__setattr__(case, "weights_crc32", weights_crc32(case))
    rows, logits, token_ids = run(row, case)
    _, placeholder = inputs_of(row, row.config)
    return case, {
        "config": row.config, "seed": row.seed, "weights_crc32": case.weights_crc32, "tensors": tensors,
        "placeholder": placeholder, "images": row.images, "processor": row.processor, "token_ids": token_ids,
        "n_rows": [len(each) for each in rows], "rows": [packed(each) for each in rows],
        "logits": packed(logits),
    }  # fmt: skip


def shows(row: VisionRow, case: HfCase) -> bool:
    """The committed file is equal, and each wrong fact moves its logits."""
    kept = load_vision(row.name)
    rows, logits, _ = run(row, case)
    errors = nmse([logits.astype(np.float32)], [kept.logits]), nmse(rows, kept.rows)
    print(f"{row.name}: NMSE {errors[0]:.1e} and {errors[1]:.1e} to the committed file")
    good = max(errors) < ALLOWED
    for wrong in (each for each in WRONG if each.case == row.name):
        error = nmse([run(row, case, wrong)[1]], [logits])
        print(f"  {error:8.1e}  {wrong}{'' if error > LEAST else '   NOT ENGAGED'}")
        good = good and error > LEAST
    return good


def main() -> int:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    chosen = tuple(word for word in sys.argv[1:] if not word.startswith("--")) or ("",)
    good = True
    for row in (row for row in ROWS if row.name.startswith(chosen)):
        case, facts = golden(row)
        if "--write" in sys.argv:
            FOLDER.mkdir(exist_ok=True)
            lines = ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in facts.items())
            (FOLDER / f"{row.name}.json").write_text("{\n" + lines + "\n}\n")
        good = shows(row, case) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
