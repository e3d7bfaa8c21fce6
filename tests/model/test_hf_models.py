"""The golden models: their files are complete, and their weights have the bits that transformers ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import deserialize
from tests.golden import cases
from tests.golden.cases import WRONG
from tests.golden.mutation import Mutation
from tests.support.hf_models import (
    ENCODER,
    ENCODES,
    FOLDER,
    GENERATES,
    RANKS,
    TRANSDUCES,
    HfCase,
    halves,
    load_case,
    load_cases,
    nmse,
    weights_crc32,
    weights_of,
    write_hf,
)

from camelid.formats.settings import Config
from camelid.model.archs import HF_ROWS, row_name

CASES = load_cases()
LARGEST_FILE = 55_000
# Rows whose golden models are those of tests/golden/vision, or of another row (test_gemma4.py).
SEEN_ELSEWHERE = {"gemma4", "qwen2_5_vl_text", "qwen3_vl_moe_text", "qwen3_vl_text"}


def test_every_row_has_a_file_and_every_architecture_a_row() -> None:
    assert {case.name: case.config for case in CASES} == {row.name: row.config for row in cases.CASES}
    assert {row_name(Config(case.config)) for case in CASES} == {*HF_ROWS} - SEEN_ELSEWHERE


@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_have_the_bits_that_transformers_ran(case: HfCase) -> None:
    assert weights_crc32(case) == case.weights_crc32


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden_file_is_complete_and_small(case: HfCase) -> None:
    assert (FOLDER / f"{case.name}.json").stat().st_size <= LARGEST_FILE
    vocab = case.config["vocab_size"]
    widths = (case.config.get(key, 0) for key in ("hidden_size", "d_model", "n_embd"))
    hidden_size = next((width for width in widths if width), 0)
    n_labels = len(case.config.get("id2label", ()))
    shapes = {
        GENERATES: [(len(ids), vocab) for ids in case.token_ids],
        ENCODES: [(len(ids), hidden_size) for ids in case.token_ids],
        ENCODER: [(len(ids), hidden_size) for ids in case.token_ids],
        TRANSDUCES: [(len(halves(ids)[1]), vocab) for ids in case.token_ids],
        RANKS: [(1, n_labels)] * len(case.token_ids),
    }
    pooled = [(1, hidden_size)] * len(case.token_ids)
    assert [run.shape for run in case.logits] == (pooled if case.pooling else shapes[case.head])
    assert all(0 <= token_id < vocab for ids in case.token_ids for token_id in ids)
    assert all(np.isfinite(run).all() and run.std() > 0.1 for run in case.logits)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matrices_have_whole_quant_blocks(case: HfCase) -> None:
    matrices = [shape for shape in case.tensors.values() if len(shape) == 2 and shape[0] > 1 and shape[1] > 8]
    assert matrices and all(shape[-1] % 32 == 0 for shape in matrices)


def read(path: Path) -> dict[str, NDArray[np.float32]]:
    """Tensors as read by the safetensors package."""
    tensors: list[tuple[str, Any]] = deserialize(path.read_bytes())
    return {name: widened(raw["dtype"], raw["data"]).reshape(raw["shape"]) for name, raw in tensors}


def widened(dtype: str, data: bytes) -> NDArray[np.float32]:
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_every_type_holds_the_same_weights(tmp_path: Path, dtype: str, n_shards: int) -> None:
    case = load_case("qwen2")
    folder = write_hf(tmp_path, case, dtype=dtype, n_shards=n_shards)
    files = sorted(folder.glob("*.safetensors"))
    got = [item for file in files for item in read(file).items()]
    want = weights_of(case)
    assert len(files) == n_shards and sorted(name for name, _ in got) == sorted(want)
    assert all(np.array_equal(value, want[name]) for name, value in got)


def test_the_index_locates_each_tensor(tmp_path: Path) -> None:
    case = load_case("mistral")
    index = json.loads((write_hf(tmp_path, case, n_shards=2) / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == case.tensors.keys()
    assert all(name in read(tmp_path / file) for name, file in index["weight_map"].items())
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in weights_of(case).values())


def test_config_states_the_type_and_accepts_changes(tmp_path: Path) -> None:
    old = write_hf(
        tmp_path / "old", load_case("mistral"), dtype="bf16", config_changes={"sliding_window": None}
    )
    new = write_hf(tmp_path / "new", load_case("qwen3_rope_parameters"), dtype="f16")
    assert json.loads((old / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert json.loads((old / "config.json").read_text())["sliding_window"] is None
    assert json.loads((new / "config.json").read_text())["dtype"] == "float16"


def test_mutations_have_unique_names() -> None:
    assert len({str(row) for row in WRONG}) == len(WRONG)
    named = {row_name(Config(load_case(row.case).config)) for row in WRONG}
    assert named == {*HF_ROWS} - SEEN_ELSEWHERE


@pytest.mark.parametrize("row", WRONG, ids=str)
def test_mutations_change_existing_facts(row: Mutation) -> None:
    case = load_case(row.case)
    assert row.config or row.neutral
    assert all(case.config.get(name) != value for name, value in row.config.items())
    assert all(any(name.endswith(ending) for name in case.tensors) for ending in row.neutral)


def test_neutral_norms_and_biases() -> None:
    gemma, llama = load_case("gemma3"), load_case("llama_bias")
    zeros = weights_of(gemma, neutral=("q_norm.weight",))["model.layers.0.self_attn.q_norm.weight"]
    ones = weights_of(llama, neutral=("input_layernorm.weight",))["model.layers.0.input_layernorm.weight"]
    none = weights_of(llama, neutral=("q_proj.bias",))["model.layers.0.self_attn.q_proj.bias"]
    assert not zeros.any() and not none.any() and (ones == 1).all()


def test_nmse_is_relative_to_the_spread_of_rows() -> None:
    rows = np.array([[1.0, 3.0], [11.0, 13.0]])  # distance 1 from each row's mean
    assert nmse([rows + 0.5], [rows]) == 0.25
    assert nmse([rows], [rows]) == 0.0
