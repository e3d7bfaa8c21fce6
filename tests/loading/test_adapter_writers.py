"""Adapters written for PEFT and llama.cpp, merged into models, and composed, against other definitions."""

from __future__ import annotations

import json
from array import array
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.loading.test_open_adapter import base_of, gguf_adapter, halves_to_pairs, opened
from tests.support.adapter_files import (
    FOLDER,
    AdapterCase,
    adapter_cases,
    delta,
    last_rows,
    load_adapter_case,
    numbers,
    write_case,
    write_peft,
)
from tests.support.hf_models import nmse, write_hf
from tests.support.model.file_runs import load_gguf

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.loading.adapters import combine
from camelid.loading.adapters.combine import Recipe, Weighted, dare_mask
from camelid.loading.adapters.compose import compose, read_modules
from camelid.loading.adapters.convert import convert_adapter
from camelid.loading.adapters.merge import merge
from camelid.loading.adapters.modules import Factors
from camelid.loading.adapters.open import open_adapter
from camelid.loading.adapters.write import save_gguf, save_peft
from camelid.loading.convert import convert
from camelid.loading.quantize.run import QuantizeOptions, quantize
from camelid.model.adapter import Adapter, LowRank

CASES = adapter_cases()
PRODUCTS = json.loads((FOLDER / "composed.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_exported_peft_directory_is_the_original(case: AdapterCase, tmp_path: Path) -> None:
    """Equal names and numbers, in a file that the package safetensors reads."""
    file = base_of(case, tmp_path)
    adapter = open_adapter(write_case(tmp_path / "a", case), file)
    save_peft(adapter, file, tmp_path / "b", base="owner/base")
    want, got = case.numbers(), load_file(tmp_path / "b" / "adapter_model.safetensors")
    assert got.keys() == want.keys()
    worst = max(float(np.abs(got[name] - want[name]).max()) for name in want)
    assert worst == 0 or (case.name == "falcon_h1" and worst < 1e-6)  # rows divided by a scale
    config = json.loads((tmp_path / "b" / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and config["base_model_name_or_path"] == "owner/base"
    again = open_adapter(tmp_path / "b", file)
    assert again.digest == adapter.digest or case.name == "falcon_h1"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_gguf_adapter_has_the_same_products(case: AdapterCase, tmp_path: Path) -> None:
    file = base_of(case, tmp_path)
    adapter = open_adapter(write_case(tmp_path / "a", case), file)
    save_gguf(adapter, file, tmp_path / "b.gguf")
    again = open_adapter(tmp_path / "b.gguf", file)
    assert again.terms.keys() == adapter.terms.keys()
    for name, term in adapter.terms.items():
        want, got = delta(term), delta(again.terms[name])
        assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()


def test_a_gguf_adapter_has_the_names_and_rows_of_llama_cpp(tmp_path: Path) -> None:
    """Read by the package gguf, against the definition of llama.cpp's conversion script."""
    case = load_adapter_case("llama_patterns")
    file, values = base_of(case, tmp_path), case.numbers()
    adapter = replace(open_adapter(write_case(tmp_path / "a", case), file), invocation=(7, 8))
    save_gguf(adapter, file, tmp_path / "b.gguf")
    reader = gguf.GGUFReader(tmp_path / "b.gguf")
    stated = {key: field.contents() for key, field in reader.fields.items()}
    assert stated["general.type"] == "adapter" and stated["adapter.type"] == "lora"
    assert stated["general.architecture"] == "llama"
    assert stated["adapter.alora.invocation_tokens"] == [7, 8]
    assert reader.fields["adapter.alora.invocation_tokens"].types[-1] == gguf.GGUFValueType.UINT32
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(tensors) == 2 * len(adapter.terms)
    prefix = "base_model.model.model.layers.0.self_attn.k_proj.lora_"
    a, b = tensors["blk.0.attn_k.weight.lora_a"], tensors["blk.0.attn_k.weight.lora_b"]
    scale = 6 / np.sqrt(4)  # use_rslora
    got = (stated["adapter.lora.alpha"] / b.shape[1]) * b.astype(np.float64) @ a
    rows = halves_to_pairs(values[f"{prefix}B.weight"], case.model.config["num_key_value_heads"])
    want = scale * rows.astype(np.float64) @ values[f"{prefix}A.weight"]
    assert np.abs(got - want).max() < 1e-6 * np.abs(want).max()


def view(values: np.ndarray[Any, Any]) -> memoryview[float]:
    return memoryview(array("f", values.ravel().tolist()))


def test_terms_with_several_a_stand_side_by_side(tmp_path: Path) -> None:
    """Terms made for q, k and v alone: the published matrix is one, with all their ranks."""
    file = opened(write_hf(tmp_path / "base", load_adapter_case("phi3").model))
    terms: dict[str, LowRank] = {}
    for name, rank in (("attn_q", 2), ("attn_k", 1), ("attn_v", 2)):
        n_out, n_in = file.model.weights[f"blk.0.{name}"].shape
        a, b = numbers(f"{name}a", (rank, n_in), 0.5), numbers(f"{name}b", (n_out, rank), 0.5)
        terms[f"blk.0.{name}"] = LowRank(rank=rank, n_in=n_in, n_out=n_out, scale=float(rank), a=view(a),
                                         b=view(b))  # fmt: skip
    adapter = Adapter(name="x", terms=terms)
    for save, path in ((save_peft, tmp_path / "a"), (save_gguf, tmp_path / "a.gguf")):
        save(adapter, file, path)
        again = open_adapter(path, file)
        assert again.rank == 5
        for name, term in terms.items():
            assert np.allclose(delta(again.terms[name]), delta(term), rtol=1e-6, atol=1e-9)


def test_convert_keeps_the_digest(tmp_path: Path) -> None:
    case = load_adapter_case("qwen2_layer")
    file = base_of(case, tmp_path)
    path = write_case(tmp_path / "a", case)
    convert(tmp_path / "base", tmp_path / "base.gguf")
    convert_adapter(path, tmp_path / "base.gguf", tmp_path / "b.gguf", to="gguf")
    convert_adapter(tmp_path / "b.gguf", tmp_path / "base.gguf", tmp_path / "c", to="peft", base="x/y")
    digests = {open_adapter(each, file).digest for each in (path, tmp_path / "b.gguf", tmp_path / "c")}
    assert len(digests) == 1
    with pytest.raises(RequestError, match="the target is the source"):
        convert_adapter(tmp_path / "b.gguf", tmp_path / "base", tmp_path / "b.gguf", to="gguf")


@pytest.mark.parametrize("name", ["llama_patterns", "phi3", "mixtral", "qwen3_next", "bloom"])
@pytest.mark.parametrize("is_gguf", [False, True], ids=["directory", "gguf"])
def test_a_merged_model_has_the_logits_of_peft(name: str, is_gguf: bool, tmp_path: Path) -> None:
    case = load_adapter_case(name)
    base_of(case, tmp_path)
    base = tmp_path / "base"
    if is_gguf:
        convert(base, tmp_path / "base.gguf")
        base = tmp_path / "base.gguf"
    path = write_case(tmp_path / "a", case)
    halves = [(path, 0.5), (path, 0.5)]
    merge(base, halves, tmp_path / "m.gguf", QuantizeOptions(to=""))
    assert nmse(last_rows(load_gguf(tmp_path / "m.gguf"), case.model), case.logits) <= 1e-10


def stored(path: Path) -> dict[str, bytes]:
    """The bytes of each tensor of a GGUF."""
    data, tensors = path.read_bytes(), open_gguf(path).tensors.values()
    return {t.name: data[t.offset : t.offset + t.n_bytes] for t in tensors}


@pytest.mark.parametrize("to", ["q8_0", "q4_k_m", "bf16"])
def test_a_merge_encodes_as_a_quantization_of_the_sum(to: str, tmp_path: Path) -> None:
    case = load_adapter_case("llama_patterns")
    base_of(case, tmp_path)
    path = write_case(tmp_path / "a", case)
    merge(tmp_path / "base", [(path, 1.0)], tmp_path / "m.gguf", QuantizeOptions(to=to))
    merge(tmp_path / "base", [(path, 1.0)], tmp_path / "f32.gguf", QuantizeOptions(to="f32"))
    quantize(tmp_path / "f32.gguf", tmp_path / "q.gguf", QuantizeOptions(to=to))
    assert stored(tmp_path / "m.gguf") == stored(tmp_path / "q.gguf")


def test_a_quantized_base_is_quantized_again_only_on_request(tmp_path: Path) -> None:
    case = load_adapter_case("qwen2_layer")
    base_of(case, tmp_path)
    quantize(tmp_path / "base", tmp_path / "q.gguf", QuantizeOptions(to="q8_0"))
    path = write_case(tmp_path / "a", case)
    with pytest.raises(RequestError, match="allow-requantize"):
        merge(tmp_path / "q.gguf", [(path, 1.0)], tmp_path / "m.gguf", QuantizeOptions(to=""))
    merge(
        tmp_path / "q.gguf", [(path, 1.0)], tmp_path / "m.gguf", QuantizeOptions(to="", allow_requantize=True)
    )
    before, after = stored(tmp_path / "q.gguf"), stored(tmp_path / "m.gguf")
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"blk.1.attn_q.weight", "blk.1.attn_v.weight"}


def test_an_activated_adapter_cannot_be_merged(tmp_path: Path) -> None:
    case = load_adapter_case("qwen2_layer")
    base_of(case, tmp_path)
    path = write_peft(tmp_path / "a", case.numbers(), {**case.config, "alora_invocation_tokens": [3]})
    with pytest.raises(UnsupportedModelError, match="acts from its invocation tokens on"):
        merge(tmp_path / "base", [(path, 1.0)], tmp_path / "m.gguf", QuantizeOptions(to="f32"))
    assert not (tmp_path / "m.gguf").exists()


def toy(folder: Path, adapter: str, alpha: float, **more: Any) -> Path:
    """An adapter of the toy model in golden/make_adapters.py."""
    tensors: dict[str, Any] = {}
    for key, (n_out, n_in) in PRODUCTS["shapes"].items():
        tensors[f"base_model.model.{key}.lora_A.weight"] = numbers(f"{adapter}/{key}/A", (3, n_in), 0.5)
        tensors[f"base_model.model.{key}.lora_B.weight"] = numbers(f"{adapter}/{key}/B", (n_out, 3), 0.5)
    return write_peft(folder / adapter, tensors, {"peft_type": "LORA", "r": 3, "lora_alpha": alpha, **more})


RECIPES = {
    "cat": Recipe(method="cat"),
    "linear": Recipe(method="linear"),
    "svd": Recipe(method="svd", rank=3),
    "ties": Recipe(method="ties", rank=3, density=0.4),
    "dare": Recipe(method="dare", rank=3, density=0.6, seed=5),
}


def products(folder: Path) -> dict[str, Any]:
    return {
        name: factors[0].scale * factors[0].b.astype(np.float64) @ factors[0].a.astype(np.float64)
        for name, factors in read_modules(folder).factors.items()
    }


@pytest.mark.parametrize("method", RECIPES)
def test_combined_products_equal_those_of_peft(method: str, tmp_path: Path) -> None:
    paths = [toy(tmp_path, "a0", 6), toy(tmp_path, "a1", 3)]
    compose([*zip(paths, PRODUCTS["weights"], strict=True)], tmp_path / "out", RECIPES[method])
    for key, got in products(tmp_path / "out").items():
        want = np.frombuffer(b64decode(PRODUCTS["products"][method][key]), "<f8").reshape(got.shape)
        assert np.abs(got - want).max() < 1e-6 * np.abs(want).max()


def slerp_of(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], share: float) -> np.ndarray[Any, Any]:
    """Spherical interpolation of two matrices as vectors, from its definition."""
    cosine = float((first * second).sum() / np.sqrt((first**2).sum() * (second**2).sum()))
    angle = np.arccos(cosine)
    return (np.sin((1 - share) * angle) * first + np.sin(share * angle) * second) / np.sin(angle)


def test_slerp_is_spherical(tmp_path: Path) -> None:
    paths = [toy(tmp_path, "a0", 6), toy(tmp_path, "a1", 3)]
    compose([(paths[0], 1.0), (paths[1], 3.0)], tmp_path / "out", Recipe(method="slerp"))
    one, two = (products(path) for path in paths)
    for key, got in products(tmp_path / "out").items():
        want = slerp_of(one[key], two[key], 0.75)
        assert np.abs(got - want).max() < 1e-6 * np.abs(want).max()
        arc = want * np.sqrt((one[key] ** 2).sum() / (want**2).sum())
        assert not np.allclose(got, 0.25 * one[key] + 0.75 * two[key], rtol=1e-2)
        assert np.isfinite(arc).all()


def test_slerp_of_parallel_products_is_a_line(tmp_path: Path) -> None:
    path = toy(tmp_path, "a0", 6)
    compose([(path, 1.0), (path, 1.0)], tmp_path / "out", Recipe(method="slerp", rank=3))
    for key, got in products(tmp_path / "out").items():
        assert np.allclose(got, products(path)[key], atol=1e-5)


def test_large_products_have_the_same_singular_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = [
        Weighted(Factors(numbers(f"{i}a", (3, 30), 0.5), numbers(f"{i}b", (40, 3), 0.5), 1.0), 1.0, i)
        for i in range(2)
    ]
    recipe = Recipe(method="ties", rank=4, density=0.3)
    plain = combine.combine(terms, recipe, "x")
    monkeypatch.setattr(combine, "GRAM_FROM", 8)
    for sides in (terms, [replace(t, factors=Factors(t.factors.b.T, t.factors.a.T, 1.0)) for t in terms]):
        large = combine.combine(sides, recipe, "x")
        product = large.b @ large.a
        want = plain.b @ plain.a
        got = product if product.shape == want.shape else product.T
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def test_dare_keeps_the_share_and_the_mean() -> None:
    recipe = Recipe(method="dare", density=0.3, seed=1)
    masks = [dare_mask((200, 200), recipe, "x", n) for n in (0, 1)]
    for mask in masks:
        assert abs(mask.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / mask.size)
    assert abs((masks[0] & masks[1]).mean() - 0.09) < 0.01
    assert np.array_equal(masks[0], dare_mask((200, 200), recipe, "x", 0))
    assert not np.array_equal(masks[0], dare_mask((200, 200), replace(recipe, seed=2), "x", 0))


def test_a_module_of_one_adapter_alone_is_kept(tmp_path: Path) -> None:
    first, second = toy(tmp_path, "a0", 6), toy(tmp_path, "a1", 3)
    values = load_file(second / "adapter_model.safetensors")
    left = {name: value for name, value in values.items() if ".wide." in name}
    second = write_peft(tmp_path / "left", left, {"peft_type": "LORA", "r": 3, "lora_alpha": 3})
    compose([(first, 2.0), (second, 1.0)], tmp_path / "out", Recipe(method="cat"))
    assert np.allclose(products(tmp_path / "out")["tall"], 2 * products(first)["tall"], rtol=1e-6)


def test_gguf_adapters_compose_to_a_gguf(tmp_path: Path) -> None:
    tensors = {"blk.0.attn_q.weight.lora_a": numbers("a", (2, 8), 1.0),
               "blk.0.attn_q.weight.lora_b": numbers("b", (6, 2), 1.0)}  # fmt: skip
    path = gguf_adapter(tmp_path / "a.gguf", tensors)
    compose([(path, 1.0), (path, 1.0)], tmp_path / "b.gguf", Recipe(method="svd", rank=2))
    found = read_modules(tmp_path / "b.gguf")
    assert found.file.facts["architecture"] == "llama"
    got, want = (products(each)["blk.0.attn_q.weight"] for each in (tmp_path / "b.gguf", path))
    assert np.abs(got - 2 * want).max() < 1e-6 * np.abs(want).max()


def test_combinations_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    one, two = toy(tmp_path, "a0", 6), toy(tmp_path, "a1", 3, alora_invocation_tokens=[4])
    values = {"a": numbers("a", (2, 8), 1.0), "b": numbers("b", (6, 2), 1.0)}
    values = {"a": numbers("a", (2, 8), 1.0), "b": numbers("b", (6, 2), 1.0)}
    other = gguf_adapter(tmp_path / "a.gguf", {f"blk.0.attn_q.weight.lora_{k}": v for k, v in values.items()})
    refused: list[tuple[list[tuple[Path, float]], Recipe, str]] = [
        ([(one, 1.0), (two, 1.0)], Recipe(method="cat"), "invocation tokens"),
        ([(one, 1.0), (other, 1.0)], Recipe(method="cat"), "convert one of them"),
        ([(one, 1.0)], Recipe(method="svd"), "at least two"),
        ([(one, 1.0), (one, 1.0)], Recipe(method="cat", rank=3), "no rank of its own"),
        ([(one, 1.0), (one, 1.0)], Recipe(method="svd", density=0.5), "density is for ties and dare"),
        ([(one, 1.0), (one, 1.0)], Recipe(method="dare", density=0.0), "density is 0"),
        ([(one, 1.0), (one, -1.0)], Recipe(method="slerp"), "slerp takes two"),
        ([(one, 1.0), (one, 1.0)], Recipe(method="mean"), "known: linear"),
    ]
    for adapters, recipe, text in refused:
        with pytest.raises(RequestError, match=text):
            compose(adapters, tmp_path / "out", recipe)
        assert not (tmp_path / "out").exists()


def test_an_unwritable_target_leaves_nothing(tmp_path: Path) -> None:
    path = toy(tmp_path, "a0", 6)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_text("kept")
    with pytest.raises(ModelFormatError, match="cannot be written"):
        compose([(path, 1.0), (path, 1.0)], tmp_path / "out", Recipe(method="cat"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a0", "out"]
