"""Hybrids: mixers and feed-forward blocks by layer, as metadata and config.json state them; refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.hf_models import load_case, weights_of, write_hf, write_safetensors
from tests.support.model.file_runs import load_hf

from camelid.errors import CamelidError
from camelid.formats.gguf import Gguf, open_gguf
from camelid.formats.source import drive
from camelid.loading.convert import convert
from camelid.model.arch import Model
from camelid.model.archs import ARCHS
from camelid.model.checkpoint import checkpoint_of_gguf
from camelid.model.read import read_model
from camelid.model.spec import DeltaSpec, ModelSpec, SsmSpec
from camelid.model.spec_reader import read_spec


def header_of(name: str, folder: Path, **changes: Any) -> Gguf:
    """The golden model's GGUF, with other metadata: `__` stands for the dots of a key."""
    convert(write_hf(folder / "hf", load_case(name)), folder / "m.gguf")
    header = open_gguf(folder / "m.gguf")
    arch = header.metadata["general.architecture"]
    metadata = {f"{arch}.{key.replace('__', '.')}": value for key, value in changes.items()}
    kinds = {key: header.kinds.get(key, "any") for key in (*header.kinds, *metadata)}
    return replace(header, metadata={**header.metadata, **metadata}, kinds=kinds)


def read(header: Gguf) -> Model:
    return drive(read_model(header), lambda *_: b"")


def spec_of(header: Gguf) -> ModelSpec:
    """The spec alone, whatever tensors there are."""
    name = str(header.metadata["general.architecture"])
    return read_spec(checkpoint_of_gguf(header), name, ARCHS[name], {})


def test_layers_without_key_value_heads_scan(tmp_path: Path) -> None:
    spec = spec_of(header_of("granitemoehybrid", tmp_path))
    assert [layer.mixer for layer in spec.layers] == ["mamba2", "attention", "mamba2"]
    assert [layer.state_group for layer in spec.layers] == ["recurrent", "kv", "recurrent"]
    assert {layer.rope for layer in spec.layers} == {""} and spec.n_kv_heads == 2
    assert spec.ssm == SsmSpec(n_heads=8, head_dim=16, n_groups=2, state_size=16, conv_width=4)
    assert spec.experts is not None and spec.experts.shared_size == 64


def test_a_dense_model_has_no_experts_and_rotates(tmp_path: Path) -> None:
    spec = spec_of(header_of("granitemoehybrid_dense", tmp_path))
    assert {layer.mlp for layer in spec.layers} == {"glu"} and spec.experts is None
    assert [layer.rope for layer in spec.layers] == ["", "", "rope"]
    assert spec.ffn_size == load_case("granitemoehybrid_dense").config["shared_intermediate_size"]


def test_attention_comes_at_an_interval(tmp_path: Path) -> None:
    header = header_of("qwen3_next", tmp_path)
    spec = spec_of(header)
    assert [layer.mixer for layer in spec.layers] == ["delta", "delta", "attention"]
    assert spec.delta == DeltaSpec(n_heads=4, value_dim=32, n_key_heads=2, key_dim=32, conv_width=4)
    others = {k: v for k, v in header.metadata.items() if not k.endswith("full_attention_interval")}
    silent = spec_of(replace(header, metadata=others))  # as llama.cpp: every fourth layer
    assert {layer.mixer for layer in silent.layers} == {"delta"}


def test_the_first_layers_may_be_dense(tmp_path: Path) -> None:
    spec = spec_of(header_of("mixtral", tmp_path, leading_dense_block_count=1))
    assert [layer.mlp for layer in spec.layers] == ["glu", "experts"]


def test_leading_dimensions_of_1_may_be_missing(tmp_path: Path) -> None:
    """ggml drops them where it writes a file anew."""
    for name, tensor in (("granitemoehybrid_dense", "ssm_norm"), ("qwen3_next", "ffn_gate_inp_shexp")):
        header, full = header_of(name, tmp_path / name), f"blk.0.{tensor}"
        short = replace(header.tensors[f"{full}.weight"], shape=header.tensors[f"{full}.weight"].shape[1:])
        rewritten = replace(header, tensors={**header.tensors, short.name: short})
        assert read(rewritten).weights[full].shape == (1, *short.shape)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("attention__head_count_kv", [0, 2], "has 2 items for 3 layers"),
        ("attention__head_count_kv", [1, 2, 0], r"is \[1, 2\] in the layers that have it"),
        ("attention__head_count_kv", [0, -2, 0], "holds -2 to 0"),
        ("ssm__time_step_rank", 7, "is 7, expected a multiple of 2 groups"),
        ("ssm__inner_size", 100, "is 100, expected a multiple of 8 heads"),
        ("ssm__conv_kernel", 1, "is 1, expected 2 to"),
        ("ssm__group_count", 4, r"ssm_in\.weight: found"),
        ("expert_shared_feed_forward_length", 0, "no rule of architecture"),
    ],
)
def test_impossible_sizes_are_named(key: str, value: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(CamelidError, match=problem):
        read(header_of("granitemoehybrid", tmp_path, **{key: value}))


def test_key_heads_must_divide_value_heads(tmp_path: Path) -> None:
    with pytest.raises(CamelidError, match="a multiple of 3 key heads"):
        read(header_of("qwen3_next", tmp_path, ssm__group_count=3))


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        ("granitemoehybrid", {"layer_types": ["mamba", "sliding", "mamba"]}, "layer_types is 'sliding'"),
        ("granitemoehybrid", {"layer_types": ["mamba", "attention"]}, "layer_types is '2 items'"),
        (
            "qwen3_next",
            {"layer_types": ["full_attention"] + ["linear_attention"] * 2},
            "layer_types is 'irregular'",
        ),
        ("qwen3_next", {"linear_num_key_heads": 3}, "a multiple of 3 key heads"),
        ("qwen3_next", {"linear_key_head_dim": 24}, r"attn_qkv\.weight: found"),
    ],
)
def test_what_config_json_cannot_mean(
    name: str, changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(CamelidError, match=problem):
        load_hf(write_hf(tmp_path, load_case(name), config_changes=changes))


@pytest.mark.parametrize("name", ["falcon_h1", "qwen3_5"])
def test_weights_that_mlx_lm_changed_are_refused(name: str, tmp_path: Path) -> None:
    """Its convolutions are [channels, width, 1]; gains and factors are then in the weights already."""
    case = load_case(name)
    weights = {n: np.swapaxes(w, 1, 2) if w.ndim == 3 else w for n, w in weights_of(case).items()}
    folder = write_hf(tmp_path, case)
    write_safetensors(folder / "model.safetensors", weights)
    with pytest.raises(CamelidError, match=f"{case.model_type} of mlx-lm"):
        load_hf(folder)


def test_an_interval_is_read_from_layer_types(tmp_path: Path) -> None:
    """As transformers 5 writes it."""
    types = ["linear_attention", "linear_attention", "full_attention"]
    changes = {"layer_types": types, "full_attention_interval": None}
    spec = load_hf(write_hf(tmp_path, load_case("qwen3_next"), config_changes=changes)).model.spec
    assert [layer.mixer for layer in spec.layers] == ["delta", "delta", "attention"]
