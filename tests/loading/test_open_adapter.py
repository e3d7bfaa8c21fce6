"""Adapters of PEFT, llama.cpp and mlx-lm, opened for models: their logits, and equal terms in all formats."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.adapter_files import (
    AdapterCase,
    adapter_cases,
    delta,
    last_rows,
    load_adapter_case,
    merged,
    numbers,
    write_case,
    write_peft,
)
from tests.support.hf_models import nmse, write_hf, write_safetensors

from camelid.errors import CamelidError, ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.loading.adapters.open import open_adapter
from camelid.loading.convert import convert
from camelid.loading.model_file import ModelFile, open_model
from camelid.model.adapter import Adapter
from camelid.model.adapters import places

CASES = adapter_cases()
MAX_NMSE = 1e-10
NO_GGUF = ("falcon_h1",)  # its rows are scaled by settings that a GGUF does not state


def opened(path: Path) -> ModelFile:
    return asyncio.run(open_model(path))


def base_of(case: AdapterCase, folder: Path) -> ModelFile:
    return opened(write_hf(folder / "base", case.model))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_logits_equal_those_of_peft(case: AdapterCase, tmp_path: Path) -> None:
    file = base_of(case, tmp_path)
    adapter = open_adapter(write_case(tmp_path / "adapter", case), file)
    error = nmse(last_rows(merged(file, adapter), case.model), case.logits)
    print(f"{case}: NMSE {error:.1e}, {len(adapter.terms)} weights")
    assert error <= MAX_NMSE


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("llama_patterns", lambda m: m.setitem(places.MOVES, "permute_rows", lambda v, _: v)),
        ("falcon", lambda m: m.setattr(places, "_spans", lambda numbers, _: ((0, len(numbers)),))),
        ("gpt_oss", lambda m: m.setitem(places.ROW_FOLDS, "odd", places.ROW_FOLDS["even"])),
        ("qwen3_5", lambda m: m.setattr(places, "COLUMN_FOLDS", ())),
        ("deepseek_v2", lambda m: m.setattr(places, "K_FOLD", "v_of_kv_b")),
        ("falcon_h1", lambda m: m.setattr(places, "_runs", lambda _: ())),
    ],
)
def test_a_planted_error_changes_the_logits(
    name: str, broken: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = load_adapter_case(name)
    file, path = base_of(case, tmp_path), write_case(tmp_path / "adapter", case)
    broken(monkeypatch)
    try:
        error = nmse(last_rows(merged(file, open_adapter(path, file)), case.model), case.logits)
    except (CamelidError, AssertionError):
        return
    assert error > MAX_NMSE


@pytest.mark.parametrize("case", [c for c in CASES if c.name not in NO_GGUF], ids=str)
def test_terms_of_a_gguf_base_are_equal(case: AdapterCase, tmp_path: Path) -> None:
    file, path = base_of(case, tmp_path), write_case(tmp_path / "adapter", case)
    convert(tmp_path / "base", tmp_path / "base.gguf")
    assert open_adapter(path, opened(tmp_path / "base.gguf")).digest == open_adapter(path, file).digest


def test_a_gguf_base_without_settings_of_scales_is_refused(tmp_path: Path) -> None:
    case = load_adapter_case("falcon_h1")
    base_of(case, tmp_path)
    convert(tmp_path / "base", tmp_path / "base.gguf")
    path = write_case(tmp_path / "adapter", case)
    with pytest.raises(UnsupportedModelError, match="scaled by settings that a GGUF does not state"):
        open_adapter(path, opened(tmp_path / "base.gguf"))


def test_experts_one_by_one_are_equal_to_a_stack(tmp_path: Path) -> None:
    """Adapters of transformers 4 have a module for each expert; one left out has no term."""
    case = load_adapter_case("mixtral")
    file, tensors = base_of(case, tmp_path), dict(case.numbers())
    n = case.model.config["num_local_experts"]
    whole = open_adapter(write_case(tmp_path / "a", case), file)
    single = {name: value for name, value in tensors.items() if ".experts." not in name}
    for name, value in tensors.items():
        if ".experts." not in name:
            continue
        stack = (
            value.reshape(n, 4, -1)
            if ".lora_A." in name
            else value.reshape(len(value), 4, n).transpose(2, 0, 1)
        )
        for e in range(n):
            for module, part in _single_names(name, stack[e]).items():
                single[module.format(e=e)] = part
    config = {**case.config, "target_parameters": None}
    alone = open_adapter(write_peft(tmp_path / "b", single, config), file)
    assert alone.terms.keys() == whole.terms.keys()
    assert all(np.array_equal(delta(alone.terms[k]), delta(whole.terms[k])) for k in whole.terms)
    left = {name: value for name, value in single.items() if ".experts.1.w2." not in name}
    some = open_adapter(write_peft(tmp_path / "c", left, config), file)
    term = delta(some.terms["blk.0.ffn_down_exps"])
    assert not term[1].any() and np.array_equal(term[0], delta(whole.terms["blk.0.ffn_down_exps"])[0])


def _single_names(name: str, value: np.ndarray[Any, Any]) -> Mapping[str, np.ndarray[Any, Any]]:
    """The modules of one expert that a parameter's factor stands for: gate and up share A."""
    prefix = name.partition("mlp.experts")[0] + "block_sparse_moe.experts.{e}."
    ending = "lora_A.weight" if "lora_A" in name else "lora_B.weight"
    if ".base_layer." not in name:
        return {f"{prefix}w2.{ending}": value}
    gate, up = (value, value) if "lora_A" in name else np.split(value, 2)
    return {f"{prefix}w1.{ending}": gate, f"{prefix}w3.{ending}": up}


def gguf_adapter(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]], **facts: Any) -> Path:
    """A GGUF adapter as the gguf package writes it, as in llama.cpp's conversion."""
    import gguf

    writer = gguf.GGUFWriter(path, facts.get("arch", "llama"))
    writer.add_type(facts.get("type", "adapter"))
    writer.add_string("adapter.type", facts.get("kind", "lora"))
    writer.add_float32("adapter.lora.alpha", facts.get("alpha", 6.0))
    if tokens := facts.get("tokens"):
        writer.add_key_value(
            "adapter.alora.invocation_tokens", tokens, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32
        )
    for name, value in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def halves_to_pairs(b: np.ndarray[Any, Any], n_heads: int) -> np.ndarray[Any, Any]:
    """llama.cpp's order of rows of q and k, from its conversion script's definition."""
    return b.reshape(n_heads, 2, len(b) // n_heads // 2, -1).swapaxes(1, 2).reshape(b.shape)


def test_a_gguf_adapter_is_equal_to_its_peft_form(tmp_path: Path) -> None:
    base = load_adapter_case("llama_patterns").model
    file = opened(write_hf(tmp_path / "base", base))
    heads, kv_heads = base.config["num_attention_heads"], base.config["num_key_value_heads"]
    peft, gguf = dict[str, Any](), dict[str, Any]()
    names = {"q_proj": ("attn_q", heads), "k_proj": ("attn_k", kv_heads), "v_proj": ("attn_v", 0)}
    for name, (own, n) in names.items():
        n_out, n_in = base.tensors[f"model.layers.1.self_attn.{name}.weight"]
        a, b = numbers(f"{name}a", (4, n_in), 0.3), numbers(f"{name}b", (n_out, 4), 0.3)
        prefix = f"base_model.model.model.layers.1.self_attn.{name}"
        peft |= {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
        gguf |= {
            f"blk.1.{own}.weight.lora_a": a,
            f"blk.1.{own}.weight.lora_b": halves_to_pairs(b, n) if n else b,
        }
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "alora_invocation_tokens": [5, 6]}
    one = open_adapter(write_peft(tmp_path / "peft", peft, config), file)
    two = open_adapter(gguf_adapter(tmp_path / "a.gguf", gguf, tokens=[5, 6]), file)
    assert one.digest == two.digest and one.invocation == two.invocation == (5, 6)
    unscaled = open_adapter(gguf_adapter(tmp_path / "b.gguf", gguf, alpha=0.0), file)
    assert {term.scale for term in unscaled.terms.values()} == {1.0}


def test_an_mlx_adapter_is_equal_to_its_peft_form(tmp_path: Path) -> None:
    case = load_adapter_case("qwen2_layer")
    file, tensors = base_of(case, tmp_path), case.numbers()
    whole = open_adapter(write_case(tmp_path / "peft", case), file)
    turned = {
        name.removeprefix("base_model.model.")
        .replace("lora_A.weight", "lora_a")
        .replace("lora_B.weight", "lora_b"): np.ascontiguousarray(value.T)
        for name, value in tensors.items()
    }
    folder = tmp_path / "mlx"
    folder.mkdir()
    write_safetensors(folder / "adapters.safetensors", turned)
    settings = {"fine_tune_type": "lora", "num_layers": 1, "model": "x/y",
                "lora_parameters": {"rank": 4, "scale": 1.5, "dropout": 0.0}}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    found = open_adapter(folder, file)
    assert found.digest == whole.digest and found.facts["base"] == "x/y"


def test_mlx_experts_are_stacks(tmp_path: Path) -> None:
    case = load_adapter_case("mixtral")
    file = base_of(case, tmp_path)
    n, hidden, ffn = (case.model.config[k] for k in ("num_local_experts", "hidden_size", "intermediate_size"))
    name = "model.layers.1.block_sparse_moe.switch_mlp.down_proj"
    a, b = numbers("a", (n, 3, ffn), 0.3), numbers("b", (n, hidden, 3), 0.3)
    folder = tmp_path / "mlx"
    folder.mkdir()
    write_safetensors(folder / "adapters.safetensors", {f"{name}.lora_a": a, f"{name}.lora_b": b})
    (folder / "adapter_config.json").write_text(json.dumps({"lora_parameters": {"rank": 3, "scale": 20.0}}))
    term = open_adapter(folder, file).terms["blk.1.ffn_down_exps"]
    want = 20 * b.astype(np.float64) @ a.astype(np.float64)
    assert np.allclose(delta(term), want, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_short_floats_are_read(dtype: str, tmp_path: Path) -> None:
    case = load_adapter_case("qwen2_layer")
    file = base_of(case, tmp_path)
    values = {name: np.round(value * 16) / 16 for name, value in case.numbers().items()}
    ours = [
        open_adapter(write_peft(tmp_path / kind, values, case.config, kind), file) for kind in ("f32", dtype)
    ]
    assert ours[0].digest == ours[1].digest


def test_an_adapter_of_the_inner_model_has_no_prefix(tmp_path: Path) -> None:
    case = load_adapter_case("qwen2_layer")
    file = base_of(case, tmp_path)
    whole = open_adapter(write_case(tmp_path / "a", case), file)
    wrapped = "model.language_model.layers"
    for old, new in (("model.model.", "model."), ("base_model.model.", ""), ("model.layers", wrapped)):
        inner = {name.replace(old, new, 1): value for name, value in case.numbers().items()}
        assert open_adapter(write_peft(tmp_path / new, inner, case.config), file).digest == whole.digest


Edit = Callable[[dict[str, Any], dict[str, Any]], object]


def changed(tmp_path: Path, edit: Edit) -> tuple[Path, ModelFile]:
    """The adapter of qwen2_layer after a change of its settings and tensors, and its base."""
    case = load_adapter_case("qwen2_layer")
    config, tensors = dict(case.config), dict(case.numbers())
    edit(config, tensors)
    return write_peft(tmp_path / "adapter", tensors, config), base_of(case, tmp_path)


Q = "base_model.model.model.layers.1.self_attn.q_proj."
NAN = np.full((4, 64), np.nan, np.float32)


def moved(name: str) -> Edit:
    """An edit that gives both factors of q_proj to another module."""

    def edit(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        for half in ("lora_A.weight", "lora_B.weight"):
            tensors[f"base_model.model.{name}.{half}"] = tensors.pop(Q + half)

    return edit


def of_rank_65(config: dict[str, Any], tensors: dict[str, Any]) -> None:
    config["r"] = 65
    tensors.clear()
    tensors |= {Q + "lora_A.weight": np.zeros((65, 64)), Q + "lora_B.weight": np.zeros((64, 65))}


@pytest.mark.parametrize(
    ("edit", "error", "text"),
    [
        (moved("model.layers.9.self_attn.q_proj"), UnsupportedModelError, "layers.9.self_attn.q_proj"),
        (moved("model.embed_tokens"), UnsupportedModelError, "token_embd multiplies no vectors"),
        (moved("model.layers.0.self_attn.k_proj"), TensorShapeError, "k_proj.*shape"),
        (moved("model.norm"), UnsupportedModelError, "output_norm multiplies no vectors"),
        (lambda _, t: t.update({Q + "lora_A.weight": NAN}), ModelFormatError, "infinite or NaN"),
        (lambda _, t: t.pop(Q + "lora_B.weight"), ModelFormatError, "has no other half"),
        (of_rank_65, UnsupportedModelError, "rank 65.*compose --method svd --rank 64"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(
    edit: Edit, error: type[CamelidError], text: str, tmp_path: Path
) -> None:
    path, file = changed(tmp_path, edit)
    with pytest.raises(error, match=text) as caught:
        open_adapter(path, file)
    assert str(path) in caught.value.message


def test_a_tied_head_is_refused(tmp_path: Path) -> None:
    case = load_adapter_case("gemma2")
    rank4 = {"lora_A.weight": numbers("a", (4, 64), 1.0), "lora_B.weight": numbers("b", (96, 4), 1.0)}
    tensors = {f"base_model.model.lm_head.{half}": value for half, value in rank4.items()}
    path = write_peft(tmp_path / "a", tensors, {"peft_type": "LORA", "r": 4})
    with pytest.raises(UnsupportedModelError, match=r"lm_head: .*the model's head is its token embedding"):
        open_adapter(path, base_of(case, tmp_path))


def test_a_gguf_of_another_architecture_is_refused(tmp_path: Path) -> None:
    tensors = {"blk.0.attn_q.weight.lora_a": np.zeros((2, 64), np.float32),
               "blk.0.attn_q.weight.lora_b": np.zeros((64, 2), np.float32)}  # fmt: skip
    path = gguf_adapter(tmp_path / "a.gguf", tensors, arch="qwen2")
    file = base_of(load_adapter_case("llama_patterns"), tmp_path)
    with pytest.raises(ModelFormatError, match="architecture qwen2, but the model of llama"):
        open_adapter(path, file)


@pytest.mark.parametrize(
    ("name", "text"),
    [("missing", "there is no such file"), ("empty", "neither adapter_model.safetensors nor"),
     ("pickled", "is a pickle"), ("model.gguf", "'adapter' is expected; name a LoRA adapter's file")],
)  # fmt: skip
def test_paths_without_an_adapter_are_refused(name: str, text: str, tmp_path: Path) -> None:
    file = base_of(load_adapter_case("qwen2_layer"), tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "adapter_model.bin").write_bytes(b"x")
    convert(tmp_path / "base", tmp_path / "model.gguf")
    with pytest.raises(CamelidError, match=text):
        open_adapter(tmp_path / name, file)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path, file = changed(tmp_path, lambda *_: None)
    weights = path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ModelFormatError, match="interrupted"):
        open_adapter(path, file)


def test_equal_terms_have_one_digest_and_others_another(tmp_path: Path) -> None:
    path, file = changed(tmp_path, lambda *_: None)
    one = open_adapter(path, file, name="x")
    assert open_adapter(path, file, name="y").digest == one.digest
    assert replace(one, invocation=(3,)).digest != one.digest and isinstance(one, Adapter)
    assert struct.calcsize("f") == one.terms["blk.1.attn_q"].a.itemsize
