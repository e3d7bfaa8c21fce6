"""Defaults of absent keys: those of transformers 5 in config.json, those of llama.cpp in GGUF."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.golden.definitions import DEFINITIONS
from tests.support.hf_models import load_case, nmse, weights_of, write_hf
from tests.support.model.file_runs import load_gguf, load_hf, reference_logits

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.formats.hf_config import open_hf
from camelid.formats.source import drive
from camelid.loading.convert import convert
from camelid.model.hf import read_settings
from camelid.model.hf_metadata import hf_metadata
from camelid.model.read import read_model

# (model, absent key of config.json, GGUF key, value): AutoConfig.for_model(model), transformers 5.23
ROWS: list[tuple[str, str, str, Any]] = [
    ("llama_linear", "num_key_value_heads", "attention.head_count_kv", 4),  # defaults to the number of heads
    ("llama31", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6),
    ("mistral", "num_key_value_heads", "attention.head_count_kv", 8),
    ("mistral", "sliding_window", "attention.sliding_window", 4096),
    ("mixtral", "num_key_value_heads", "attention.head_count_kv", 8),
    ("mixtral", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5),
    ("mixtral", "rope_theta", "rope.freq_base", 1e6),
    ("qwen2", "num_key_value_heads", "attention.head_count_kv", 32),
    ("qwen3", "head_dim", "attention.key_length", 128),
    ("qwen3_moe", "norm_topk_prob", "expert_weights_norm", False),
    ("qwen3_moe", "num_key_value_heads", "attention.head_count_kv", 4),
    ("gemma2", "attn_logit_softcapping", "attn_logit_softcapping", 50.0),
    ("gemma2", "final_logit_softcapping", "final_logit_softcapping", 30.0),
    ("gemma2", "query_pre_attn_scalar", "attention.scale", 1 / 16),
    ("gemma2", "head_dim", "attention.key_length", 256),
    ("gemma2", "sliding_window", "attention.sliding_window", 4096),
    ("gemma3", "rope_theta", "rope.freq_base", 1e6),
    ("gemma3", "head_dim", "attention.key_length", 256),
    ("phi3_short", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5),
    ("olmo2", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5),
    ("olmo3", "sliding_window", "attention.sliding_window", 4096),
    ("granite", "attention_multiplier", "attention.scale", 1.0),
    ("smollm3", "rope_theta", "rope.freq_base", 2e6),
    ("smollm3", "num_key_value_heads", "attention.head_count_kv", 4),
    ("stablelm", "partial_rotary_factor", "rope.dimension_count", 4),  # a quarter of 16
    ("stablelm", "num_key_value_heads", "attention.head_count_kv", 32),
    ("mamba", "time_step_rank", "ssm.time_step_rank", 4),  # a sixteenth of the width
    ("mamba", "state_size", "ssm.state_size", 16),
    ("mamba2", "n_groups", "ssm.group_count", 8),
    ("jamba", "mamba_dt_rank", "ssm.time_step_rank", 4),
    ("lfm2", "rope_theta", "rope.freq_base", 1e6),
    ("lfm2_old", "block_multiple_of", "feed_forward_length", 256),
    ("starcoder2", "num_key_value_heads", "attention.head_count_kv", 2),
    ("hy_v3", "head_dim", "attention.key_length", 128),
    ("hy_v3", "moe_intermediate_size", "expert_shared_feed_forward_length", 3072),  # two experts of 1536
    ("hy_v3", "num_key_value_heads", "attention.head_count_kv", 8),
    ("hy_v3", "rope_parameters", "rope.freq_base", 11158840.0),
    ("hy_v3", "router_scaling_factor", "expert_weights_scale", 2.826),
]


@pytest.mark.parametrize(("name", "absent", "key", "value"), ROWS, ids=[f"{r[0]}-{r[1]}" for r in ROWS])
def test_an_absent_key_of_config_json(name: str, absent: str, key: str, value: Any, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", load_case(name))
    config = json.loads((folder / "config.json").read_text())
    del config[absent]
    (folder / "config.json").write_text(json.dumps(config))
    settings = read_settings(open_hf(folder))
    assert hf_metadata(settings, name="m")[f"{settings.row.arch}.{key}"] == value


def test_windows_begin_at_qwen2s_stated_layer(tmp_path: Path) -> None:
    """The default is layer 28."""
    changes = {"use_sliding_window": True, "max_window_layers": 1}
    folder = write_hf(tmp_path / "m", load_case("qwen2"), config_changes=changes)
    assert [layer.window for layer in load_hf(folder).model.spec.layers] == [0, 8]
    config = json.loads((folder / "config.json").read_text())
    del config["max_window_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    assert [layer.window for layer in load_hf(folder).model.spec.layers] == [0, 0]


def test_an_early_gemma2_file_has_softcaps_and_a_window(tmp_path: Path) -> None:
    convert(write_hf(tmp_path / "hf", load_case("gemma2")), tmp_path / "m.gguf")
    absent = ("attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window")
    names = {f"gemma2.{name}" for name in absent}
    header = open_gguf(tmp_path / "m.gguf")
    assert names < header.metadata.keys()
    old = replace(header, metadata={k: v for k, v in header.metadata.items() if k not in names})
    spec = drive(read_model(old), lambda *_: b"").spec
    assert (spec.attention_softcap, spec.logit_softcap) == (50.0, 30.0)
    assert [layer.window for layer in spec.layers] == [4096, 0, 4096]


def test_features_disabled_in_gemma2_stay_disabled_after_conversion(tmp_path: Path) -> None:
    off = {"attn_logit_softcapping": None, "final_logit_softcapping": None, "sliding_window": None}
    convert(write_hf(tmp_path / "hf", load_case("gemma2"), config_changes=off), tmp_path / "m.gguf")
    spec = load_gguf(tmp_path / "m.gguf").model.spec
    assert (spec.attention_softcap, spec.logit_softcap) == (0.0, 0.0)
    assert {layer.window for layer in spec.layers} == {0}


def test_stablelms_second_norm_overrides_the_parallel_flag(tmp_path: Path) -> None:
    """GGUF files state parallel by default; a layer's second norm decides."""
    convert(write_hf(tmp_path / "hf", load_case("stablelm")), tmp_path / "m.gguf")
    header, key = open_gguf(tmp_path / "m.gguf"), "stablelm.use_parallel_residual"
    stated = replace(header, metadata={**header.metadata, key: True}, kinds={**header.kinds, key: "bool"})
    assert drive(read_model(stated), lambda *_: b"").spec.layers[0].residual == "sequential"
    without = {name: t for name, t in header.tensors.items() if "ffn_norm" not in name}
    spec = drive(read_model(replace(stated, tensors=without)), lambda *_: b"").spec
    assert spec.layers[0].residual == "parallel"


def test_magnitudes_by_log_multiplier(tmp_path: Path) -> None:
    """llama.cpp's converter states mscale_all_dim for Ministral 3, ours the factor of cos and sin."""
    convert(write_hf(tmp_path / "hf", load_case("ministral3")), tmp_path / "m.gguf")
    header, stated = open_gguf(tmp_path / "m.gguf"), "mistral3.rope.scaling.attn_factor"
    metadata = {key: value for key, value in header.metadata.items() if key != stated}
    multiplier = "mistral3.rope.scaling.yarn_log_multiplier"
    other = replace(
        header, metadata={**metadata, multiplier: 1.0}, kinds={**header.kinds, multiplier: "float32"}
    )
    for each in (header, other):
        ropes = drive(read_model(each), lambda *_: b"").spec.ropes
        assert [rope.scaling and rope.scaling.magnitude for rope in ropes.values()] == pytest.approx(
            [1.0, 1.0]
        )


GROK_KEYS = (
    "attention.output_scale", "attn_logit_softcapping", "embedding_scale", "logit_scale",
    "router_logit_softcapping", "final_logit_softcapping",
)  # fmt: skip


def test_grok_files_without_scales_have_those_of_the_published_model(tmp_path: Path) -> None:
    convert(write_hf(tmp_path / "hf", load_case("grok")), tmp_path / "m.gguf")
    header = open_gguf(tmp_path / "m.gguf")
    names = {f"grok.{name}" for name in GROK_KEYS}
    assert names < header.metadata.keys()
    old = replace(header, metadata={k: v for k, v in header.metadata.items() if k not in names})
    spec = drive(read_model(old), lambda *_: b"").spec
    assert (spec.attention_scale, spec.attention_softcap, spec.embedding_scale) == (16**-0.5, 30.0, 8.0)
    assert (spec.logit_scale, spec.logit_softcap) == (3**-0.5, 0.0)
    assert spec.experts and spec.experts.softcap == 0.0


def test_grok_2_is_refused(tmp_path: Path) -> None:
    convert(write_hf(tmp_path / "hf", load_case("grok")), tmp_path / "m.gguf")
    header, key = open_gguf(tmp_path / "m.gguf"), "grok.attention.temperature_length"
    later = replace(header, metadata={**header.metadata, key: 1024}, kinds={**header.kinds, key: "uint32"})
    with pytest.raises(UnsupportedModelError, match=r"temperature_length is 1024"):
        drive(read_model(later), lambda *_: b"")


def test_refacts_files_name_the_epsilon_of_layer_norms_that_of_rms_norms(tmp_path: Path) -> None:
    convert(write_hf(tmp_path / "hf", load_case("refact")), tmp_path / "m.gguf")
    header, end = open_gguf(tmp_path / "m.gguf"), "epsilon"
    ours, theirs = (f"refact.attention.layer_norm_{kind}{end}" for kind in ("", "rms_"))
    metadata = {key: value for key, value in header.metadata.items() if key != ours}
    other = replace(header, metadata={**metadata, theirs: 0.25}, kinds={**header.kinds, theirs: "float32"})
    spec = drive(read_model(other), lambda *_: b"").spec
    assert (spec.norm_kind, spec.norm_eps) == ("layer", 0.25)


def test_a_temperature_length_within_a_table_row_is_refused(tmp_path: Path) -> None:
    case = load_case("ministral3")
    rope = case.config["rope_parameters"] | {"original_max_position_embeddings": 100}
    folder = write_hf(tmp_path / "hf", case, config_changes={"rope_parameters": rope})
    with pytest.raises(UnsupportedModelError, match="temperature_length is 100, expected a multiple of 256"):
        load_hf(folder)


def test_baichuan_2_is_refused(tmp_path: Path) -> None:
    """It norms the rows of its output matrix; its vocabulary tells it from the first Baichuan."""
    for changes in ({"vocab_size": 125696}, {"z_loss_weight": 0}):
        folder = write_hf(tmp_path / "m", load_case("baichuan"), config_changes=changes)
        with pytest.raises(UnsupportedModelError, match=r"vocab_size is 125696|z_loss_weight is 0"):
            load_hf(folder)


@pytest.mark.parametrize("shared", [2, 4, 8])
def test_plamos_key_heads_follow_from_their_sharing(shared: int, tmp_path: Path) -> None:
    """The published num_key_value_heads is that of the queries."""
    folder = write_hf(tmp_path / "m", load_case("plamo"), config_changes={"n_shared_head": shared})
    metadata = hf_metadata(read_settings(open_hf(folder)), name="m")
    assert metadata["plamo.attention.head_count_kv"] == 8 // shared


def test_plamos_unequal_sharing_is_refused(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", load_case("plamo"), config_changes={"n_shared_head": 3})
    with pytest.raises(UnsupportedModelError, match=r"n_shared_head is 3.* 8 query heads share 3 key heads"):
        load_hf(folder)


def test_plamo2_files_of_llama_cpp_state_heads_by_layer_and_no_groups(tmp_path: Path) -> None:
    convert(write_hf(tmp_path / "hf", load_case("plamo2")), tmp_path / "m.gguf")
    header = open_gguf(tmp_path / "m.gguf")
    stated = {"plamo2.attention.head_count": [0, 0, 4, 0], "plamo2.ssm.group_count": 0}
    other = drive(read_model(replace(header, metadata=header.metadata | stated)), lambda *_: b"").spec
    assert other == drive(read_model(header), lambda *_: b"").spec
    assert {"blk.0.ssm_dt_norm", "blk.0.post_attention_norm", "blk.2.attn_q_norm.weight"} <= {*header.tensors}


def test_minicpm_files_without_scales_have_those_of_the_published_model(tmp_path: Path) -> None:
    convert(write_hf(tmp_path / "hf", load_case("minicpm")), tmp_path / "m.gguf")
    header = open_gguf(tmp_path / "m.gguf")
    names = {f"minicpm.{name}_scale" for name in ("embedding", "residual", "logit")}
    assert names < header.metadata.keys()
    old = replace(header, metadata={k: v for k, v in header.metadata.items() if k not in names})
    spec = drive(read_model(old), lambda *_: b"").spec
    assert (spec.embedding_scale, spec.residual_scale, spec.logit_scale) == (12.0, 1.4 / 2**0.5, 256 / 64)


@pytest.mark.parametrize(
    ("name", "model_type", "arch"),
    [
        ("bailing_moe_v2", "bailing_moe", "bailingmoe2"),
        ("jina_bert", "bert", "jina-bert-v2"),
        ("nomic_bert_moe", "nomic_bert", "nomic-bert-moe"),
        ("xlm_roberta_flash", "xlm-roberta", "bert"),
    ],
)
def test_a_class_with_the_model_type_of_another(
    name: str, model_type: str, arch: str, tmp_path: Path
) -> None:
    """Ling 2, Jina's models and Nomic Embed 2 are published with the model_type of other models."""
    folder = write_hf(tmp_path / "m", load_case(name), config_changes={"model_type": model_type})
    assert load_hf(folder).model.spec.arch == arch


def test_llama_cpps_files_of_nomics_experts_have_no_bias_of_the_sum(tmp_path: Path) -> None:
    case, bias = load_case("nomic_bert_moe"), "mlp.experts.bias"
    kept = {name: shape for name, shape in case.tensors.items() if not name.endswith(bias)}
    convert(write_hf(tmp_path / "hf", replace(case, tensors=kept)), tmp_path / "m.gguf")
    oracle = DEFINITIONS[case.model_type](case.config, weights_of(case, neutral=[bias]))
    want = [oracle.outputs(ids, case.token_types(ids)) for ids in case.token_ids]
    assert nmse(reference_logits(load_gguf(tmp_path / "m.gguf"), case.token_ids), want) <= 1e-10


def test_a_table_of_distances_is_bounded(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", load_case("bloom"), config_changes={"seq_length": 1 << 23})
    with pytest.raises(ModelFormatError, match="ALiBi's context_length times n_heads must be at most"):
        load_hf(folder)


def test_a_sequential_falcon_needs_its_second_norm(tmp_path: Path) -> None:
    """Without the check, the MLP would read the stream without a norm."""
    folder = write_hf(tmp_path / "hf", load_case("falcon"), config_changes={"parallel_attn": False})
    with pytest.raises(TensorShapeError, match=r"ffn_norm\.weight: found nothing"):
        load_hf(folder)


def test_dbrx_without_a_number_of_experts_is_refused(tmp_path: Path) -> None:
    case = load_case("dbrx")
    ffn = {key: value for key, value in case.config["ffn_config"].items() if key != "moe_num_experts"}
    folder = write_hf(tmp_path / "hf", case, config_changes={"ffn_config": ffn})
    with pytest.raises(TensorShapeError, match="ffn"):
        load_hf(folder)


def test_an_older_hy3_states_the_width_of_its_experts_by_another_key(tmp_path: Path) -> None:
    case = load_case("hy_v3")
    folder = write_hf(tmp_path / "hf", case, dtype="bf16")
    config = json.loads((folder / "config.json").read_text())
    del config["moe_intermediate_size"]
    (folder / "config.json").write_text(json.dumps(config | {"expert_hidden_dim": 32}))
    experts = load_hf(folder).model.spec.experts
    assert experts is not None
    assert (experts.ffn_size, experts.shared_size) == (32, 64)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention_bias", True),
        ("mlp_bias", True),
        ("moe_router_use_sigmoid", False),
        ("qk_norm", False),
        ("route_norm", False),
    ],
)
def test_settings_that_no_published_hy3_has_are_refused(key: str, value: bool, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", load_case("hy_v3"), config_changes={key: value})
    with pytest.raises(UnsupportedModelError, match=f"{key} is {value}"):
        load_hf(folder)


def test_hy3s_layer_of_multi_token_prediction_is_not_a_layer_of_the_model(tmp_path: Path) -> None:
    """Published directories store it after the last layer, with the tensors of a layer and its own."""
    case = load_case("hy_v3")
    layer = {n: s for n, s in case.tensors.items() if ".layers.2." in n}
    more = {n.replace(".layers.2.", ".layers.3."): s for n, s in layer.items()}
    own = {"model.layers.3.eh_proj.weight": [64, 128], "model.layers.3.final_layernorm.weight": [64]}
    folder = write_hf(tmp_path / "hf", replace(case, tensors={**case.tensors, **more, **own}))
    assert len(load_hf(folder).model.spec.layers) == 3
