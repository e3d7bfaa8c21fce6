"""CogVLM on text: visual experts change no logits and stay in files; its two classes differ in constants."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.support.hf_models import HfCase, load_case, write_hf
from tests.support.model.file_runs import load_gguf, load_hf, reference_logits
from tests.support.model.runs import make_plan

from camelid.errors import TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.formats.hf_config import open_hf
from camelid.loading.convert import convert
from camelid.model.hf import read_settings
from camelid.model.hf_metadata import hf_metadata

CASES = [load_case(name) for name in ("cogvlm", "cogvlm2")]
VISUAL = (".vision_expert_query_key_value.", ".vision_expert_dense.", ".vision_mlp.")
NAMES = gguf.MODEL_TENSORS[gguf.MODEL_ARCH.COGVLM]


def of_text(case: HfCase) -> HfCase:
    """The case without the tensors for images."""
    words = (*VISUAL, "model.vision.")
    kept = {name: shape for name, shape in case.tensors.items() if not any(word in name for word in words)}
    return replace(case, tensors=kept)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tensors_for_images_change_no_logits(case: HfCase, tmp_path: Path) -> None:
    """A finetune of the text model alone may leave them out."""
    whole = load_hf(write_hf(tmp_path / "whole", case))
    text = load_hf(write_hf(tmp_path / "text", of_text(case)))
    assert len(whole.model.weights) == len(text.model.weights) + 2 * (7 + 3 * (case.name == "cogvlm2"))
    got, want = (reference_logits(loaded, case.token_ids) for loaded in (whole, text))
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    assert not [name for name in make_plan(whole.model, 4, context=16).weights() if "vis_" in name]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_converted_file_has_the_visual_experts_by_the_names_of_llama_cpp(
    case: HfCase, tmp_path: Path
) -> None:
    convert(write_hf(tmp_path / "hf", case), tmp_path / "m.gguf")
    stored = open_gguf(tmp_path / "m.gguf").tensors
    want = {gguf.TENSOR_NAMES[name].format(bid=i) for name in NAMES for i in range(2)}
    biases = {f"blk.{i}.vis_attn_qkv.bias" for i in range(2)} if case.name == "cogvlm2" else set[str]()
    assert {*stored} == {f"{name}.weight" for name in want} | biases
    assert load_gguf(tmp_path / "m.gguf").model.image_rows is None


@pytest.mark.parametrize("part", VISUAL)
def test_a_visual_expert_of_another_shape_is_refused(part: str, tmp_path: Path) -> None:
    case = CASES[0]
    name = next(name for name in case.tensors if part in name)
    rows, cols = case.tensors[name]
    folder = write_hf(tmp_path / "hf", replace(case, tensors={**case.tensors, name: [rows + 1, cols]}))
    with pytest.raises(TensorShapeError, match=r"blk\.0\.vis_|vis_attn_qkv"):
        load_hf(folder)


@pytest.mark.parametrize(
    ("case", "theta", "n_kv_heads"), [(CASES[0], 1e4, 4), (CASES[1], 5e5, 2)], ids=["cogvlm", "cogvlm2"]
)
def test_published_directories_state_neither_model_type_nor_theta(
    case: HfCase, theta: float, n_kv_heads: int, tmp_path: Path
) -> None:
    folder = write_hf(tmp_path / "hf", case)
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    (folder / "config.json").write_text(json.dumps(config))
    metadata = hf_metadata(read_settings(open_hf(folder)), name="m")
    assert metadata["cogvlm.rope.freq_base"] == theta
    assert metadata["cogvlm.attention.head_count_kv"] == n_kv_heads
    assert load_hf(folder).model.spec.arch == "cogvlm"


def test_a_tensor_without_a_rule_is_named_without_a_model_type(tmp_path: Path) -> None:
    """CogAgent's layers have a further attention to the image."""
    case = CASES[0]
    more = {"model.layers.0.cross_attn.dense.weight": [64, 64]}
    folder = write_hf(
        tmp_path / "hf", replace(case, tensors={**case.tensors, **more}), config_changes={"model_type": None}
    )
    with pytest.raises(TensorShapeError, match=r"cross_attn\.dense.*no rule of model_type 'cogvlm'"):
        load_hf(folder)


@pytest.mark.parametrize("key", ["rope_theta", "rope_scaling"])
def test_settings_that_no_published_class_reads_are_refused(key: str, tmp_path: Path) -> None:
    value = {"rope_theta": 500000.0, "rope_scaling": {"factor": 2.0, "type": "linear"}}[key]
    folder = write_hf(tmp_path / "hf", CASES[0], config_changes={key: value})
    with pytest.raises(UnsupportedModelError, match=f"{key} is "):
        load_hf(folder)
