"""Gemma 4's published directories, whose text model is beside towers, and layers of default settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.hf_models import HfCase, load_case, nmse, weights_of, write_hf, write_safetensors
from tests.support.model.file_runs import load_hf, reference_logits

from camelid.errors import TensorShapeError, UnsupportedModelError
from camelid.formats.hf_config import open_hf
from camelid.model.hf import read_settings
from camelid.model.hf_metadata import hf_metadata

TOWERS = ("vision_tower.patch_embedder.input_proj", "audio_tower.output_proj", "embed_vision.projection")


def published(folder: Path, case: HfCase, **facts: Any) -> Path:
    """The case as a directory of the class for texts, images and sounds."""
    write_hf(folder, case)
    config = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "dtype": "float32"}
    sections = {"text_config": {**case.config, **facts}, "vision_config": {"head_dim": 8}}
    (folder / "config.json").write_text(json.dumps(config | sections))
    weights = {n.replace("model.", "model.language_model.", 1): v for n, v in weights_of(case).items()}
    towers = {f"model.{name}.weight": np.ones((8, 8), np.float32) for name in TOWERS}
    write_safetensors(folder / "model.safetensors", weights | towers)
    return folder


@pytest.mark.parametrize("name", ["gemma4", "gemma4_moe"])
def test_a_published_directory_is_its_text_model(name: str, tmp_path: Path) -> None:
    case = load_case(name)
    loaded = load_hf(published(tmp_path / "m", case))
    got = [reference_logits(loaded, [ids], context=len(ids))[0] for ids in case.token_ids]
    assert nmse(got, case.logits) <= 1e-10


def test_a_setting_of_the_text_model_is_read_before_one_outside(tmp_path: Path) -> None:
    case = load_case("gemma4")
    folder = published(tmp_path / "m", case, use_bidirectional_attention="all")
    with pytest.raises(UnsupportedModelError, match="use_bidirectional_attention is 'all'"):
        load_hf(folder)


def test_head_sizes_of_single_layers_are_refused_by_name(tmp_path: Path) -> None:
    config = {"per_layer_config": {"1": {"head_dim": 32}}}
    with pytest.raises(UnsupportedModelError, match="per_layer_config"):
        load_hf(write_hf(tmp_path / "m", load_case("gemma4"), config_changes=config))


@pytest.mark.parametrize(
    ("facts", "tensor"),
    [
        ({"global_head_dim": 16}, "blk.1.attn_q"),
        ({"head_dim": 32}, "blk.0.attn_q"),
        ({"use_double_wide_mlp": False}, "blk.3.ffn_gate"),
    ],
)
def test_sizes_of_other_layers_do_not_fit_the_tensors(
    facts: dict[str, Any], tensor: str, tmp_path: Path
) -> None:
    with pytest.raises(TensorShapeError, match=tensor):
        load_hf(write_hf(tmp_path / "m", load_case("gemma4"), config_changes=facts))


def test_full_layers_without_values_of_their_own_need_the_setting(tmp_path: Path) -> None:
    facts = {"attention_k_eq_v": False}  # KV heads of full layers are then those of the others
    with pytest.raises(TensorShapeError, match=r"blk\.1\.attn_k"):
        load_hf(write_hf(tmp_path / "m", load_case("gemma4_moe"), config_changes=facts))


def test_gemma_4s_layers_by_default(tmp_path: Path) -> None:
    """Five layers with a window, one without; the last has none. Heads without a window are wider."""
    folder = write_hf(tmp_path / "m", load_case("gemma4"), config_changes={"num_hidden_layers": 8})
    config = json.loads((folder / "config.json").read_text())
    for key in ("layer_types", "global_head_dim", "head_dim", "rope_parameters"):
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    metadata = hf_metadata(read_settings(open_hf(folder)), name="m")
    pattern = [True] * 5 + [False, True, False]
    assert metadata["gemma4.attention.sliding_window_pattern"] == pattern
    assert [metadata[f"gemma4.attention.key_length{end}"] for end in ("", "_swa")] == [512, 256]
    assert [metadata[f"gemma4.rope.dimension_count{end}"] for end in ("", "_swa")] == [512, 256]
    assert [metadata[f"gemma4.rope.freq_base{end}"] for end in ("", "_swa")] == [1e6, 1e4]
    assert metadata["gemma4.feed_forward_length"] == [96] * 6 + [192] * 2
