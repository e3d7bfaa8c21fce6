"""DeepSeek-OCR's published directory and files: the tower beside the text model, and their odd keys."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.hf_models import load_case, write_hf
from tests.support.model.file_runs import load_hf

from camelid.errors import CamelidError, ModelFormatError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.formats.source import drive
from camelid.loading.convert import convert
from camelid.model.read import read_model
from camelid.model.spec import ModelSpec

CASE = load_case("deepseek_ocr")
# Keys that the published config.json leaves out.
ABSENT = ("attention_dropout", "hidden_act", "rms_norm_eps", "rope_theta", "routed_scaling_factor")
TOWER: dict[str, list[int]] = {
    "model.image_newline": [64],
    "model.view_seperator": [64],
    "model.projector.layers.weight": [64, 32],
    "model.sam_model.blocks.0.attn.rel_pos_h": [27, 16],
    "model.vision_model.pre_layrnorm.weight": [32],
    "model.vision_model.transformer.layers.0.mlp.fc1.weight": [64, 32],
    "model.qwen2_model.model.model.layers.0.self_attn.q_proj.weight": [32, 32],
}


def spec_of_file(path: Path, changes: dict[str, Any]) -> ModelSpec:
    header = open_gguf(path)
    kinds = dict.fromkeys(changes, "uint32")
    changed = replace(header, metadata=header.metadata | changes, kinds=header.kinds | kinds)
    return drive(read_model(changed), lambda *_: b"").spec


def test_the_published_directory_is_its_text_model(tmp_path: Path) -> None:
    facts = {name: value for name, value in CASE.config.items() if name not in ABSENT}
    sections = {"language_config": facts, "vision_config": {"width": {}}, "projector_config": {}}
    case = replace(CASE, config={**facts, **sections}, tensors={**CASE.tensors, **TOWER})
    spec = load_hf(write_hf(tmp_path / "hf", case)).model.spec
    (rope,), experts = spec.ropes.values(), spec.experts
    assert experts is not None
    assert (spec.norm_eps, rope.theta, rope.dim, rope.style) == (1e-6, 10000.0, 16, "neox")
    assert (experts.gate, experts.normalize, experts.scale, experts.shared_size) == (
        "softmax",
        False,
        1.0,
        64,
    )
    assert [(layer.mlp, layer.act) for layer in spec.layers] == [("glu", "silu"), *[("experts", "silu")] * 2]


def test_a_published_file_states_no_rotated_floats(tmp_path: Path) -> None:
    """Its converter copies qk_rope_head_dim, which is 0; whole heads are rotated."""
    convert(write_hf(tmp_path / "hf", CASE), tmp_path / "m.gguf")
    (rope,) = spec_of_file(tmp_path / "m.gguf", {"deepseek2-ocr.rope.dimension_count": 0}).ropes.values()
    assert rope.dim == 16


def test_other_rows_refuse_no_rotated_floats(tmp_path: Path) -> None:
    convert(write_hf(tmp_path / "hf", load_case("dots1")), tmp_path / "m.gguf")
    with pytest.raises(ModelFormatError, match="dimension_count is 0"):
        spec_of_file(tmp_path / "m.gguf", {"dots1.rope.dimension_count": 0})


def test_a_file_with_a_window_is_refused(tmp_path: Path) -> None:
    """Unlimited-OCR's window keeps the prompt's rows; 0 is no window."""
    convert(write_hf(tmp_path / "hf", CASE), tmp_path / "m.gguf")
    key = "deepseek2-ocr.attention.sliding_window"
    assert {layer.window for layer in spec_of_file(tmp_path / "m.gguf", {key: 0}).layers} == {0}
    with pytest.raises(UnsupportedModelError, match="sliding_window is 128"):
        spec_of_file(tmp_path / "m.gguf", {key: 128})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", ["DeepseekVLV2ForCausalLM"]),
        ("attention_bias", True),
        ("moe_layer_freq", 2),
        ("norm_topk_prob", True),
        ("scoring_func", "sigmoid"),
        ("sliding_window", 128),
        ("sliding_window_size", 128),
        ("topk_method", "noaux_tc"),
        ("use_mla", True),
    ],
)
def test_settings_of_other_models_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", CASE, config_changes={key: value})
    with pytest.raises(UnsupportedModelError, match=re.escape(f"{key} is {value!r}")):
        load_hf(folder)


def test_an_absent_use_mla_means_latent_attention(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", CASE)
    config = json.loads((folder / "config.json").read_text())
    del config["use_mla"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CamelidError, match="use_mla is True"):
        load_hf(folder)
