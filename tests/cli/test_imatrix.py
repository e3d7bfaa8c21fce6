"""camelid imatrix: sums of squares against a float64 model in NumPy, experts, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from tests.support.gguf_files import CORPUS, Weights, write_tiny_llama
from tests.support.hf_models import load_case, weights_of, write_hf

from camelid.api.llm import LLM
from camelid.api.runner import Runner
from camelid.cli.main import main
from camelid.formats.imatrix import Imatrix, read_imatrix
from camelid.loading.observe import names_by_bytes, start_observed
from camelid.loading.options import LoadOptions
from camelid.plan.weights import Part, Weight

F64 = NDArray[np.float64]
HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 4, 2, 64, 16
BACKENDS = {"reference": 1e-5, "cpu": 0.05}  # allowed relative error: cpu rounds activations to 8 bits


def call(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def collected(tmp_path: Path, model: Path, *words: object) -> Imatrix:
    (tmp_path / "text.txt").write_text(CORPUS)
    done = call("imatrix", model, "-f", tmp_path / "text.txt", "-o", tmp_path / "i.gguf", *words)
    assert done.exit_code == 0, done.output
    return read_imatrix(tmp_path / "i.gguf")


def norm(x: F64, gain: Any) -> F64:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * gain


def rotated(x: F64) -> F64:  # [T, heads, head_dim], adjacent pairs
    angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    out = np.empty_like(x)
    out[..., ::2] = x[..., ::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., ::2] * sin + x[..., 1::2] * cos
    return out


def attended(q: F64, k: F64, v: F64) -> F64:  # [T, heads, head_dim] -> [T, heads * head_dim]
    k, v = (each.repeat(HEADS // KV_HEADS, axis=1) for each in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(HEAD_DIM)
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.einsum("hts,shd->thd", p / p.sum(axis=2, keepdims=True), v).reshape(len(q), -1)


def inputs_of(weights: Weights, ids: list[int]) -> dict[str, F64]:
    """The input of every linear map of a tiny llama, [T, cols] by name, in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x, seen = w["token_embd.weight"][ids], dict[str, F64]()

    def linear(name: str, value: F64) -> F64:
        seen[name] = value
        return value @ w[name].T

    for i in range(2):
        blk = f"blk.{i}."
        h = norm(x, w[f"{blk}attn_norm.weight"])
        q, k, v = (linear(f"{blk}attn_{n}.weight", h).reshape(len(ids), -1, HEAD_DIM) for n in "qkv")
        x = x + linear(f"{blk}attn_output.weight", attended(rotated(q), rotated(k), v))
        h = norm(x, w[f"{blk}ffn_norm.weight"])
        gate, up = (linear(f"{blk}ffn_{n}.weight", h) for n in ("gate", "up"))
        x = x + linear(f"{blk}ffn_down.weight", gate / (1 + np.exp(-gate)) * up)
    linear("output.weight", norm(x, w["output_norm.weight"]))
    return seen


@pytest.mark.parametrize("backend", BACKENDS)
def test_means_are_those_of_a_float64_model(backend: str, tmp_path: Path) -> None:
    weights = write_tiny_llama(tmp_path / "m.gguf", seed=4, type="f32", tied=False)
    words = ("-c", CONTEXT, "--chunks", 2, "--backend", backend, "--process-output")
    got = collected(tmp_path, tmp_path / "m.gguf", *words)
    assert got.chunks == 2 and got.datasets == ("text.txt",)
    windows = ids_of(tmp_path / "m.gguf")
    inputs = [inputs_of(weights, window) for window in windows]
    assert got.entries.keys() == inputs[0].keys()
    for name in inputs[0]:
        want = np.mean(np.concatenate([each[name] for each in inputs]) ** 2, axis=0)
        error = np.abs(np.array(got.means(name)) - want).max() / want.max()
        assert error < BACKENDS[backend], name
        assert got.entries[name].counts == (2.0 * CONTEXT,)


def ids_of(model: Path) -> list[list[int]]:
    from camelid.api.load import load_tokenizer

    tokenizer = load_tokenizer(model)
    ids = [*tokenizer.frame.before, *tokenizer.encode(CORPUS)]
    assert not tokenizer.frame.before
    return [ids[at : at + CONTEXT] for at in (0, CONTEXT)]


def observed_sums(model: Path, ids: list[int]) -> dict[str, Any]:
    options = LoadOptions.of(backend="reference", context=64, parallel=1, max_in_flight=1)
    runner = Runner()
    observed = runner.run(start_observed(model, options, with_output=False))
    with LLM(observed.running, runner) as llm:
        llm.logits(ids)
    return observed.sums()


def test_experts_are_counted_each(tmp_path: Path) -> None:
    case = load_case("mixtral")
    ids = case.token_ids[0]
    sums = observed_sums(write_hf(tmp_path / "hf", case), ids)
    used = sum(sums["blk.0.ffn_up_exps.weight"].counts)
    assert used == len(ids) * case.config["num_experts_per_tok"]
    experts = sums["blk.0.ffn_up_exps.weight"]
    assert len(experts.counts) == case.config["num_local_experts"]
    assert len(experts.squares) == len(experts.counts) * case.config["hidden_size"]
    assert len({*experts.counts}) > 1
    down = sums["blk.0.ffn_down_exps.weight"]
    assert list(down.counts) == list(experts.counts)
    router = sums["blk.0.ffn_gate_inp.weight"]  # every token; each of its experts gets the same input
    assert list(router.counts) == [len(ids)]
    width = case.config["hidden_size"]
    shared = np.array(experts.squares).reshape(-1, width).sum(axis=0)
    np.testing.assert_allclose(
        shared, case.config["num_experts_per_tok"] * np.array(router.squares), rtol=1e-4
    )


def test_parts_of_a_fused_tensor_are_counted_once(tmp_path: Path) -> None:
    case = load_case("gpt2")
    sums = observed_sums(write_hf(tmp_path / "hf", case), case.token_ids[0])
    assert list(sums["blk.0.attn_qkv.weight"].counts) == [len(case.token_ids[0])]


def test_names_are_found_by_bytes() -> None:
    def weight(name: str, *places: tuple[str, int]) -> Weight:
        parts = tuple(Part(source, at, 16) for source, at in places)
        return Weight(name=name, type="f32", shape=(4 * len(places),), parts=parts)

    tensors = {"blk.0.a": weight("blk.0.a", ("m", 0), ("m", 16)), "b": weight("b", ("m", 32))}
    names_of = names_by_bytes(tensors, with_output=False)
    assert names_of(weight("x", ("m", 16))) == ("blk.0.a",)
    assert names_of(weight("x", ("m", 32))) == ()
    assert names_of(weight("x", ("n", 0))) == ()
    assert names_by_bytes(tensors, with_output=True)(weight("x", ("m", 0), ("m", 32))) == ("blk.0.a", "b")


@pytest.mark.parametrize("name", ["olmo2", "gemma3n"])
def test_an_input_that_is_overwritten_later_is_copied(name: str, tmp_path: Path) -> None:
    """olmo2 has no norm before its blocks, so attention reads the residual stream itself."""
    case = load_case(name)
    ids = case.token_ids[0][:8]
    folder = write_hf(tmp_path / "hf", case)
    sums = observed_sums(folder, ids)
    if name == "olmo2":
        embeddings = weights_of(case)["model.embed_tokens.weight"][ids].astype(np.float64)
        want = (embeddings**2).sum(axis=0)
        np.testing.assert_allclose(np.array(sums["blk.0.attn_q.weight"].squares), want, rtol=1e-5)
    assert {len(ids)} == {*sums["blk.0.attn_q.weight"].counts}


def test_the_importance_matrix_quantizes(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "m.gguf", seed=4, type="f32")
    collected(tmp_path, tmp_path / "m.gguf", "-c", CONTEXT)
    words = ("quantize", tmp_path / "m.gguf", tmp_path / "q.gguf", "iq2_xs", "--imatrix", tmp_path / "i.gguf")
    done = call(*words)
    assert done.exit_code == 0, done.output


def test_a_short_text_is_one_error(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "m.gguf", seed=4, type="f32")
    (tmp_path / "text.txt").write_text("the llama")
    done = call("imatrix", tmp_path / "m.gguf", "-f", tmp_path / "text.txt", "-o", tmp_path / "i.gguf")
    assert done.exit_code == 1 or done.exit_code == 2
    assert not (tmp_path / "i.gguf").exists()
