"""quantize --format mlx: every family's names, values and logits; refusals, and what a failure leaves."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.mlx_cases import COMMITTED, MlxCase
from tests.support.exhaustive import every
from tests.support.hf_models import (
    GENERATES,
    TRANSDUCES,
    HfCase,
    Weights,
    load_case,
    load_cases,
    nmse,
    weights_of,
    write_hf,
    write_safetensors,
)
from tests.support.mlx_dirs import FOLDER, logits_of, source_of
from tests.support.mlx_oracle import as_published, dequantized, raw_tensors
from tests.support.model.file_runs import load_hf

from camelid.errors import CamelidError, ModelFormatError, RequestError, UnsupportedModelError
from camelid.formats.hf_config import open_hf
from camelid.formats.mlx_quant import fold_planes, read_quantization
from camelid.formats.settings import Config
from camelid.loading import convert_mlx as converting
from camelid.loading.convert_mlx import MLX_TYPES, convert_mlx
from camelid.model.archs import HF_ROWS, row_name

CASES = load_cases()
TYPES = list(MLX_TYPES)
BF16 = 2.0**-8  # half a unit in the last place of 1
# Squared error of bell-shaped weights by type, relative to their squares.
ERRORS = {
    "q2": 0.3, "q3": 0.07, "q4": 0.015, "q5": 0.004, "q6": 0.001, "q8": 0.0001, "mxfp4": 0.03, "mxfp8": 0.002,
    "nvfp4": 0.06,
}  # fmt: skip
# model_type -> why mlx-lm's form is not written, beside the models that make no logits.
REFUSED = {
    "falcon_h1": "other values",  # multipliers are folded into matrices
    "qwen3_5_text": "other values",  # norm gains are 1 + weight, under the prefix language_model.
    "qwen3_5_moe_text": "other values",
    "llama4_text": "another name",  # as gpt_oss, without interleaving
    "plamo2": "another name",  # gains of heads have no ending
    "rwkv6": "another name",  # as rwkv7
    "rwkv6qwen2": "another name",
    "rwkv_hybrid": "another name",
    "rwkv7": "another name",  # x_r to x_g are vectors without an ending
    "dbrx": "another name",  # stacks of experts have no ending
    "gemma4_moe": "another name",  # experts.gate_up_proj is two tensors
    "gpt_oss": "another name",  # interleaved rows of experts.gate_up_proj are two tensors
}


def refusal_of(case: HfCase) -> str:
    """Words of the error for a case that is not written, else none."""
    if case.head == TRANSDUCES:
        return "not those with an encoder"
    no_logits = case.head != GENERATES or case.pooling
    return (
        "not embedding or ranking models"
        if no_logits
        else REFUSED.get(case.model_type) or REFUSED.get(case.name, "")
    )


WRITTEN = [case for case in CASES if not refusal_of(case)]


def group_of(to: str) -> int | None:
    return 32 if to.startswith("q") else None  # widths of the models are 64 and 96


def made(case: HfCase, folder: Path, to: str, **options: Any) -> Path:
    """The directory of a case, quantized."""
    source, dtype = folder / "hf", options.pop("dtype", "bf16")
    write_hf(source, case, dtype=dtype)
    convert_mlx(source, folder / "out", to=to, group_size=group_of(to), **options)
    return folder / "out"


def values_of(case: HfCase, out: Path) -> Weights:
    """Tensors of the directory, by the names of the published tensors."""
    prefix = "" if any(name.startswith("wte") for name in case.tensors) else "transformer."
    found = as_published(case.model_type, dequantized(out))
    if case.model_type != "gpt2":
        root = HF_ROWS[case.model_type].outer["token_embd"].split(".")[0] + "."
        is_bare = not any(name.startswith(root) for name in case.tensors)
        return {name.removeprefix(root if is_bare else ""): value for name, value in found.items()}
    return {prefix + name.removeprefix("model."): value for name, value in found.items()}


def test_blocks_whose_columns_move_are_loaded_as_f32(tmp_path: Path) -> None:
    """A block's scale is that of its stored columns, so that other columns in a block would round again."""
    weights = load_hf(made(load_case("plamo"), tmp_path, "q4")).model.weights
    assert [weights[f"blk.0.attn_{name}"].type for name in ("q", "output")] == ["q4_1", "f32"]


@pytest.mark.parametrize(
    ("case", "to"),
    every(
        8,
        [(case, to) for i, case in enumerate(WRITTEN) for to in dict.fromkeys(("q4", TYPES[i % len(TYPES)]))],
    ),
    ids=str,
)
def test_values_and_logits_are_those_of_the_planes(case: HfCase, to: str, tmp_path: Path) -> None:
    """A published directory of the dequantized values has the same logits, and nearly the source's values."""
    out = made(case, tmp_path, to)
    before, after = weights_of(case), values_of(case, out)
    masks = {name for name in before if name.endswith("attn.bias") and before[name].ndim == 4}
    unused = (".mtp_layers.", "model.vision.")  # predict further tokens; a tower that Camelid lacks
    further = {name for name in before if any(word in name for word in unused)}
    assert after.keys() == before.keys() - masks - further
    for name, value in after.items():
        assert value.shape == before[name].shape, name
        error = np.abs(value - before[name])
        if value.ndim == 1:  # stored as floats; mlx-lm stores some gains as 1 + weight
            assert (error <= BF16 * (1.0 + np.abs(before[name]))).all(), name
        else:
            assert np.square(error).sum() < ERRORS[to] * np.square(before[name]).sum(), name
    plain = write_hf(tmp_path / "plain", case)
    write_safetensors(plain / "model.safetensors", after)
    ids = [ids[:16] for ids in case.token_ids]
    assert nmse(logits_of(out, ids), logits_of(plain, ids)) <= 1e-10


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    directory = open_hf(folder)
    return {
        n: t.shape for n, t in fold_planes(directory.tensors, read_quantization(directory.settings)).items()
    }


@pytest.mark.parametrize("row", COMMITTED, ids=lambda row: row.name)
def test_names_and_shapes_are_those_of_mlx_lm(row: MlxCase, tmp_path: Path) -> None:
    out = made(source_of(row), tmp_path, "q4")
    assert shapes(out) == shapes(FOLDER / row.name)


@pytest.mark.parametrize("arch", ["ernie4_5_moe", "granitemoe", "lfm2_moe", "mixtral", "qwen3_moe"])
def test_experts_are_stacked(arch: str, tmp_path: Path) -> None:
    """mlx-lm stacks the floats of experts when it loads them, and leaves their scales behind."""
    names = raw_tensors(made(load_case(arch), tmp_path, "q4"))
    projections = {name.split(".")[-2] for name in names if ".switch_mlp." in name}
    assert projections == {"gate_proj", "up_proj", "down_proj"}
    assert not [name for name in names if ".experts." in name or "input_linear" in name]


@pytest.mark.parametrize("name", [row.name for row in COMMITTED if row.dtype != "f32"])
def test_a_quantized_directory_is_quantized_again(name: str, tmp_path: Path) -> None:
    written = convert_mlx(FOLDER / name, tmp_path / "out", to="q8", group_size=32)
    assert any("the source is quantized: more is lost" in note for note in written.notes)
    before, after = dequantized_golden(name), dequantized(tmp_path / "out")
    assert before.keys() == after.keys()
    for key, value in after.items():
        assert np.square(value - before[key]).sum() < 1e-4 * np.square(before[key]).sum(), key


def dequantized_golden(name: str) -> Weights:
    return dequantized(FOLDER / name)


# ---- What is quantized


def stated(out: Path) -> dict[str, Any]:
    config = json.loads((out / "config.json").read_text())
    assert config["quantization"] == config["quantization_config"]
    return config["quantization"]


@pytest.mark.parametrize(
    ("arch", "to", "pure", "others"),
    [
        ("llama31", "q4", False, {"lm_head": {"group_size": 32, "bits": 8}}),
        ("qwen2", "q6", False, {"model.embed_tokens": {"group_size": 32, "bits": 8}}),  # tied
        ("llama31", "q4", True, {}),
        ("llama31", "q8", False, {}),
        ("llama31", "mxfp4", False, {}),
    ],
)
def test_the_output_matrix_keeps_8_bits_unless_pure(
    arch: str, to: str, pure: bool, others: dict[str, Any], tmp_path: Path
) -> None:
    groups = MLX_TYPES[to]
    want = {"group_size": group_of(to) or groups.size, "bits": groups.bits, "mode": groups.mode}
    assert stated(made(load_case(arch), tmp_path, to, pure=pure)) == want | others


def test_routers_positions_and_convolutions_stay_floats(tmp_path: Path) -> None:
    stay = {
        "mixtral": "block_sparse_moe.gate.weight",
        "qwen3_next": "mlp.shared_expert_gate.weight",
        "qwen3_moe": "mlp.gate.weight",
        "granitemoehybrid": "router.layer.weight",
        "gpt2": "wpe.weight",
    }
    for arch, ending in stay.items():
        tensors = raw_tensors(made(load_case(arch), tmp_path / arch, "q4", pure=True))
        kept = {name: tensors[name][0] for name in tensors if name.endswith((ending, "conv1d.weight"))}
        assert kept and set(kept.values()) == {"BF16"}, arch
        assert all(len(shape) == 1 for n, (_, shape, _) in tensors.items() if n.endswith("norm.weight"))


@pytest.mark.parametrize(("dtype", "stored"), [("f16", "float16"), ("bf16", "bfloat16"), ("f32", "bfloat16")])
def test_scales_have_the_sources_dtype_of_16_bits(dtype: str, stored: str, tmp_path: Path) -> None:
    source = write_hf(tmp_path / "hf", load_case("llama31"), dtype=dtype)
    written = convert_mlx(source, tmp_path / "out", to="q4")
    want = {"float16": "F16", "bfloat16": "BF16"}[stored]
    assert {t[0] for t in raw_tensors(written.path).values()} == {"U32", want}
    config = json.loads((written.path / "config.json").read_text())
    assert {config[key] for key in ("dtype", "torch_dtype") if key in config} == {stored}
    assert any("the source has f32" in note for note in written.notes) == (dtype == "f32")


def test_matrices_that_groups_do_not_divide_stay_floats_with_a_note(tmp_path: Path) -> None:
    written = convert_mlx(
        write_hf(tmp_path / "hf", load_case("llama31"), dtype="bf16"), tmp_path / "o", to="q4"
    )
    assert written.types == {"q4": 13, "q8": 1, "bf16": 7}
    assert "2 matrices stay bf16, as groups of 64 do not divide their rows" in written.notes[0]


@pytest.mark.parametrize(("name", "is_opened"), [("falcon", False), ("qwen2", True)])
def test_a_model_type_that_mlx_lm_does_not_open_has_a_note(
    name: str, is_opened: bool, tmp_path: Path
) -> None:
    written = convert_mlx(write_hf(tmp_path / "hf", load_case(name)), tmp_path / "out", to="q4")
    assert any("mlx-lm 0.32 has no model type" in note for note in written.notes) != is_opened


def test_a_tied_output_matrix_is_left_out_with_a_note(tmp_path: Path) -> None:
    case = load_case("qwen2")
    twin = {**weights_of(case), "lm_head.weight": weights_of(case)["model.embed_tokens.weight"]}
    folder = write_hf(tmp_path / "hf", case)
    write_safetensors(folder / "model.safetensors", twin, dtype="bf16")
    written = convert_mlx(folder, tmp_path / "out", to="q4")
    assert not [name for name in raw_tensors(written.path) if name.startswith("lm_head")]
    assert any("lm_head is left out" in note for note in written.notes)


def test_other_files_are_copied_and_weights_are_not(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", load_case("llama31"), dtype="bf16", n_shards=3)
    extra = {"tokenizer_config.json": "{}", "chat_template.jinja": "{{ 1 }}", "LICENSE": "free"}
    for name, text in {**extra, "pytorch_model.bin": "x", "m.gguf": "x"}.items():
        (folder / name).write_text(text)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool.jinja").write_text("{{ 2 }}")
    out = convert_mlx(folder, tmp_path / "out", to="q4").path
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    made_here = {"config.json", "generation_config.json", "model.safetensors"}
    assert found == {*extra, *made_here, "additional_chat_templates/tool.jinja"}
    assert all((out / name).read_text() == text for name, text in extra.items())


# ---- Refusals and failures


@pytest.mark.parametrize("case", [case for case in CASES if refusal_of(case)], ids=str)
def test_families_that_mlx_lm_stores_otherwise_are_refused(case: HfCase, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{refusal_of(case)}.*; write a GGUF") as caught:
        made(case, tmp_path, "q4")
    assert caught.value.facts["name"] == row_name(Config(case.config, "config.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


@pytest.mark.parametrize(
    ("target", "to", "size", "words"),
    [
        ("hf", "q4", None, "the target is the source"),
        ("full", "q4", None, "full is not empty; give the name of a new directory"),
        ("full/file", "q4", None, "file is a file"),
        ("out", "q4_0", None, "MLX has no type 'q4_0'; known: q2, q3"),
        ("out", "q4", 48, "no groups of 48 values; known: 32, 64, 128"),
        ("out", "nvfp4", 16, "groups of nvfp4 always have 16 values; leave out the group size"),
    ],
)
def test_invalid_targets_and_types_are_refused(
    target: str, to: str, size: int | None, words: str, tmp_path: Path
) -> None:
    source = write_hf(tmp_path / "hf", load_case("llama31"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    with pytest.raises(RequestError, match=words):
        convert_mlx(source, tmp_path / target, to=to, group_size=size)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "hf"]


def test_a_gguf_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"cria.gguf: .* config\.json; quantize the published directory"):
        convert_mlx("cria", tmp_path / "out", to="q4")
    with pytest.raises(ModelFormatError, match="none: there is no such file"):
        convert_mlx(tmp_path / "none", tmp_path / "out", to="q4")


def with_nan(folder: Path) -> None:
    weights = weights_of(load_case("llama31"))
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name] = np.where(np.arange(64) == 7, np.nan, weights[name]).astype(np.float32)
    write_safetensors(folder / "model.safetensors", weights)


def stop(name: str, done: int, total: int) -> None:
    if done > total // 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("edit", "progress", "error"),
    [(with_nan, None, ModelFormatError), (lambda _: None, stop, KeyboardInterrupt)],
)
def test_a_failure_leaves_nothing(
    edit: Callable[[Path], None], progress: Any, error: type[BaseException], tmp_path: Path
) -> None:
    source = write_hf(tmp_path / "hf", load_case("llama31"))
    edit(source)
    with pytest.raises(error) as caught:
        convert_mlx(source, tmp_path / "out", to="q4", group_size=32, progress=progress)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]
    if isinstance(caught.value, CamelidError):
        assert "blk.1.ffn_up.weight: a value is nan" in caught.value.message


def test_an_empty_directory_is_a_valid_target(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    out = made(load_case("llama31"), tmp_path, "q4")
    assert "model.safetensors" in {path.name for path in out.iterdir()}


def test_memory_is_bounded_by_a_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedding of 4 MB, in tiles of 64 KB."""
    case = load_case("qwen2")
    rows, name = 16384, "model.embed_tokens.weight"
    case = replace(case, config=case.config | {"vocab_size": rows}, tensors=case.tensors | {name: [rows, 64]})
    source = write_hf(tmp_path / "hf", case, dtype="bf16")
    monkeypatch.setattr(converting, "TILE_VALUES", 1 << 14)
    convert_mlx(source, tmp_path / "warm", to="q4")
    tracemalloc.start()
    convert_mlx(source, tmp_path / "out", to="q4")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
