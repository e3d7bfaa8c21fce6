"""`camelid info`: exact output, true numbers, and a memory forecast equal to real loading."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import ENCODES, HfCase, load_case, load_cases, write_hf
from tests.support.parity.adapters import need_driver, show_drivers

import camelid
from camelid.api.llm import LLM
from camelid.backends.webgpu.layouts import bound_bytes
from camelid.cli.main import main
from camelid.formats.hf_config import open_hf
from camelid.formats.source import drive
from camelid.loading.deployment import Deployment
from camelid.loading.estimate import estimate_memory
from camelid.loading.hf_directory import checkpoint_of_directory
from camelid.loading.options import LoadOptions
from camelid.model.arch import Arch, Model
from camelid.model.archs import ARCHS, HF_ROWS
from camelid.model.presets import PRESETS
from camelid.model.read import read_model
from camelid.model.sizes import bare_model, bytes_at, count_parameters, type_at
from camelid.model.spec_reader import FACTOR_TENSORS

GOLDEN = Path(__file__).parents[1] / "golden"
CRIA = str(files("camelid") / "data" / "cria.gguf")
# Published: https://huggingface.co/meta-llama, arXiv 2407.21783 table 3.
TRUE: dict[str, dict[str, Any]] = {
    "8b": {"parameters": 8_030_261_248, "layers": 32, "hidden_size": 4096, "heads": 32, "ffn_size": 14336},
    "70b": {"parameters": 70_553_706_496, "layers": 80, "hidden_size": 8192, "heads": 64, "ffn_size": 28672},
}
SHARED = {"kv_heads": 8, "head_dim": 128, "vocab_size": 128256, "context_length": 8192, "norm_eps": 1e-5}


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def info(*words: str) -> dict[str, Any]:
    done = call("info", *words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.e2e
@pytest.mark.parametrize("model", ["8b", "70b", "cria"])
def test_output_is_exactly_the_golden_one(model: str) -> None:
    """After an intended change: `camelid info MODEL > tests/golden/info_MODEL.txt`, with a shortened path."""
    text, data = call("info", model).stdout, info(model)
    if "path" in data:
        data["path"] = "cria.gguf"
    assert text.replace(CRIA, "cria.gguf") == (GOLDEN / f"info_{model}.txt").read_text("utf-8")
    assert data == json.loads((GOLDEN / f"info_{model}.json").read_text("utf-8"))


@pytest.mark.parametrize("model", TRUE)
def test_presets_equal_the_published_numbers(model: str) -> None:
    facts = info(model)
    assert facts.items() >= (TRUE[model] | SHARED).items()
    (rope,) = facts["rope"]
    assert (rope["theta"], rope["dim"], rope["scaling"], facts["tied_output"]) == (500000.0, 128, None, False)
    assert facts["gqa_ratio"] == facts["heads"] // 8
    norms = (2 * facts["layers"] + 1) * facts["hidden_size"]
    assert facts["f16_bytes"] == 2 * (facts["parameters"] - norms) + 4 * norms
    assert facts["q4_0_bytes"] == 4.5 / 8 * (facts["parameters"] - norms) + 4 * norms


# Tensors that are made, shared, padded or left out at load, so that their number is not the published one.
MADE_OTHERWISE = {
    "apertus", "arwkv7", "arwkv7_gate", "falcon_rw", "gemma3n", "gemma_embedding", "grove_moe", "jais",
    "mimo", "olmo", "olmo_bias", "opt", "rwkv6", "rwkv6qwen2", "rwkv7", "stablelm",
}  # fmt: skip


def case_model(case: HfCase, folder: Path) -> Model:
    checkpoint = checkpoint_of_directory(open_hf(write_hf(folder, case)))
    return drive(read_model(checkpoint), lambda *_: b"")


@pytest.mark.parametrize("case", [case for case in load_cases() if case.name not in MADE_OTHERWISE], ids=str)
def test_a_spec_alone_counts_the_published_tensors(case: HfCase, tmp_path: Path) -> None:
    """The oracle is transformers' list of tensors."""
    model = case_model(case, tmp_path)
    arch = ARCHS[model.spec.arch]
    total = sum(count(shape) for name, shape in case.tensors.items() if is_weight(name, case))
    if HF_ROWS[case.model_type].counts_padding:  # positions of padding are left out
        total -= (case.config["pad_token_id"] + 1) * model.spec.hidden_size
    biases = [w for n, w in model.weights.items() if is_optional(n, arch)]
    bare = bare_model(model.spec, "f32").weights
    assert count_parameters(model.weights.values()) == total
    assert count_parameters(bare.values()) == total - count_parameters(biases)
    assert {n: w.shape for n, w in bare.items()}.items() <= {
        n: w.shape for n, w in model.weights.items()
    }.items()


def count(shape: list[int]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n


def is_weight(name: str, case: HfCase) -> bool:
    """False for a mask, a pooler, a tower, and the output of a tied model, which is its embedding."""
    is_mask = name.endswith("attn.bias") and len(case.tensors[name]) == 4
    is_twin = name == "lm_head.weight" and bool(case.config.get("tie_word_embeddings"))
    is_pooler = "pooler." in name and case.head == ENCODES
    is_tower = name.startswith("model.vision.")
    return not is_mask and not is_twin and not is_pooler and not is_tower


def is_optional(name: str, arch: Arch) -> bool:
    """True for a tensor that files of the architecture may lack."""
    layer = re.match(r"(?:(?:enc|dec)\.)?blk\.(\d+)\.", name)
    inner = name[layer.end() :] if layer else name
    is_bias = inner.endswith(".bias") and inner.removesuffix(".bias") in arch.optional_biases
    of_first = arch.first if layer and layer[1] != "0" else ()
    return is_bias or inner in {*arch.optional, *arch.optional_outer, *of_first}


def test_vectors_and_odd_rows_are_not_quantized() -> None:
    assert [type_at(shape, "q4_0") for shape in ((64,), (2, 64), (2, 48), (3, 2, 32))] == [
        "f32", "q4_0", "f16", "q4_0",
    ]  # fmt: skip
    weights = bare_model(PRESETS["8b"], "q4_0").weights.values()
    assert sum(w.n_bytes for w in weights) == bytes_at(weights, "q4_0")


def test_experts_windows_and_rotations_are_listed(tmp_path: Path) -> None:
    mixtral = info(str(write_hf(tmp_path / "mixtral", load_case("mixtral_window"))))
    config = load_case("mixtral_window").config
    assert mixtral["experts"] == config["num_local_experts"]
    assert mixtral["experts_used"] == config["num_experts_per_tok"]
    assert (mixtral["window"], mixtral["windowed_layers"]) == (
        config["sliding_window"], config["num_hidden_layers"],
    )  # fmt: skip
    gemma = info(str(write_hf(tmp_path / "gemma", load_case("gemma3"))))
    assert [rope["theta"] for rope in gemma["rope"]] == [
        load_case("gemma3").config[name] for name in ("rope_theta", "rope_local_base_freq")
    ]
    assert gemma["windowed_layers"] == gemma["rope"][1]["layers"]
    yarn = call("info", str(write_hf(tmp_path / "yarn", load_case("qwen2_yarn")))).stdout
    assert f"yarn scaling by {load_case('qwen2_yarn').config['rope_scaling']['factor']:g}" in yarn
    gpt2 = call("info", str(write_hf(tmp_path / "gpt2", load_case("gpt2")))).stdout
    assert "rope            none\n" in gpt2


def test_a_directory_has_types_as_stored(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, load_case("qwen2"), dtype="bf16")
    facts = info(str(folder))
    assert facts["types"] == {"bf16": facts["file_bytes"]}


def test_a_file_takes_precedence_over_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert info("8b")["name"] == "Llama 3 8B"
    write_tiny_llama(tmp_path / "8b", seed=1)
    assert info("8b")["name"] == "tiny llama"


def test_a_refused_model_has_no_facts(tmp_path: Path) -> None:
    """`inspect` shows a refused model."""
    folder = write_hf(tmp_path, load_case("llama31"), config_changes={"model_type": "llama9"})
    for name, reason in (("9b", "there is no such file"), (str(folder), "'llama9' is not supported")):
        done = call("info", name)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert reason in done.stderr


def test_names_in_a_file_cannot_control_the_terminal(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "a\x1b[31m.gguf", seed=1)
    assert "\x1b" not in call("info", str(tmp_path / "a\x1b[31m.gguf")).stdout


# The forecast.


@pytest.fixture(scope="module")
def bf16(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_hf(tmp_path_factory.mktemp("bf16"), load_case("mixtral_window"), dtype="bf16"))


def forecast(llm: LLM, *, context: int, parallel: int) -> Any:
    options = LoadOptions(context=context, parallel=parallel)
    return estimate_memory(Deployment.of(llm._running.file.model, options, llm.capabilities))[0]


@pytest.mark.parametrize("name", ["cria", "bf16"])
def test_reference_uses_the_predicted_bytes(name: str, bf16: str) -> None:
    model = bf16 if name == "bf16" else name
    with camelid.load(model, backend="reference", context=100, parallel=3) as llm:
        got, want = llm.memory(), forecast(llm, context=100, parallel=3)
    assert got.weight_bytes == want.weights
    assert got.state_bytes == sum(want.states.values()) + want.page_tables


@pytest.fixture(scope="module")
def small_blocks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with rows of partial panels, an embedding that is also the head, a norm, rope tables."""
    path = tmp_path_factory.mktemp("q4") / "q4.gguf"
    write_tiny_llama(path, seed=1, type="q4_0", hidden=96, head_dim=16, ffn=160, vocab=300)
    return str(path)


@pytest.mark.parametrize("name", ["cria", "bf16", "small_blocks"])
@pytest.mark.parametrize(("context", "parallel"), [(64, 1), (48, 3)])
def test_cpu_uses_the_predicted_bytes(
    name: str, context: int, parallel: int, request: pytest.FixtureRequest
) -> None:
    model = name if name == "cria" else request.getfixturevalue(name)
    words = ("--backend", "cpu", "-c", str(context), "--parallel", str(parallel))
    use = info(model, "--memory", *words)["memory"]["at"]["as stored"]
    with camelid.load(model, backend="cpu", context=context, parallel=parallel) as llm:
        got = llm.memory()
    assert got.weight_bytes == use["weights"]
    assert (
        got.state_bytes == sum(n for word, n in use.items() if word.startswith("state_")) + use["page_tables"]
    )
    assert got.arena_bytes == use["scratch_decode"] + use["scratch_mixed"]


@pytest.mark.parity
@pytest.mark.parametrize(("context", "parallel"), share_of([(1024, 1), (100, 3)]))
def test_webgpu_uses_the_predicted_bytes_plus_padding(context: int, parallel: int) -> None:
    """Each buffer is padded to a multiple of 16 bytes."""
    show_drivers()
    adapter = need_driver("llvmpipe")
    with camelid.load("cria", backend="webgpu", adapter=adapter, context=context, parallel=parallel) as llm:
        got, want = llm.memory(), forecast(llm, context=context, parallel=parallel)
        weights = {w.name: w for entry in ("decode", "mixed") for w in llm.plan(entry).weights().values()}
    assert sum(bound_bytes(w) for w in weights.values()) == got.weight_bytes
    assert got.weight_bytes == want.weights, "a tensor of cria is padded"
    assert got.state_bytes == sum(want.states.values()) + -(-want.page_tables // 16) * 16
    arenas = sum(want.scratch.values())
    assert arenas + want.steps <= got.arena_bytes < arenas + want.steps + 4 * 16, "not two steps, two results"


def test_presets_are_forecast_in_both_types() -> None:
    memory = info("8b", "--memory", "-c", "8192", "--parallel", "1")["memory"]
    assert (memory["context"], memory["parallel"], memory["backend"]) == (8192, 1, "webgpu")
    f16, q4 = memory["at"]["f16"], memory["at"]["q4_0"]
    pages = 8192 // 16 + 1  # one more for unread rows
    assert f16["state_kv"] == q4["state_kv"] == pages * 16 * 2 * 4 * 32 * 8 * 128
    tables = 4 * 128 * (256 + 8192 // 256)  # cos and sin of 256 fine and 32 coarse positions
    assert f16["weights"] == info("8b")["f16_bytes"] + tables
    assert q4["weights"] == info("8b")["q4_0_bytes"] + tables
    for use in (f16, q4):
        assert use["total"] == sum(n for name, n in use.items() if name != "total")


def test_memory_grows_with_context_and_batch_and_shrinks_with_fusion() -> None:
    def use(*words: str) -> dict[str, int]:
        return info("cria", "--memory", *words)["memory"]["at"]["as stored"]

    small, long, wide = use("-c", "128"), use("-c", "512"), use("-c", "128", "--parallel", "8")
    assert small["state_kv"] < long["state_kv"] and small["state_kv"] < wide["state_kv"]
    assert small["state_tokens"] == long["state_tokens"] < wide["state_tokens"]
    assert small["scratch_mixed"] <= wide["scratch_mixed"]
    assert small["scratch_decode"] < use("-c", "128", "--backend", "reference")["scratch_decode"]


def test_windows_have_their_own_state(bf16: str) -> None:
    use = info(bf16, "--memory")["memory"]["at"]["as stored"]
    assert "state_window" in use and "state_kv" not in use


def test_memory_as_text_has_units_and_every_byte(tmp_path: Path) -> None:
    done = call("info", "8b", "--memory")
    (total,) = (text for text in done.stdout.splitlines() if text.startswith("  total"))
    assert "GB" in total and f"{info('8b', '--memory')['memory']['at']['f16']['total']:,} bytes" in total
    write_tiny_llama(tmp_path / "q.gguf", seed=1, type="q8_0")
    assert call("info", str(tmp_path / "q.gguf"), "--memory").stderr == ""


def test_a_type_without_a_kernel_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(camelid.backends.webgpu.layouts.LAYOUTS, "q8_0")  # type: ignore[attr-defined]
    assert "note: webgpu has no kernel for q8_0" in call("info", "cria", "--memory").stderr
    assert info("cria", "--memory")["memory"]["no_kernel"] == ["q8_0"]


@pytest.mark.parametrize("words", [("-c", "64"), ("--parallel", "2"), ("--backend", "reference")])
def test_forecast_options_need_the_forecast(words: tuple[str, ...]) -> None:
    done = call("info", *words)
    assert done.exit_code == 2
    assert f"{'--ctx-size' if words[0] == '-c' else words[0]} needs --memory" in done.stderr


def test_context_beyond_the_model_is_an_error() -> None:
    done = call("info", "8b", "--memory", "-c", "8193")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "context is 8193, expected 1 to 8192" in done.stderr


def test_factor_tensors_are_not_counted_as_parameters(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "f.gguf", seed=1, rope_freqs=[1.0] * 32)
    write_tiny_llama(tmp_path / "plain.gguf", seed=1)
    assert "rope_freqs" in FACTOR_TENSORS
    facts = info(str(tmp_path / "f.gguf"))
    assert facts["parameters"] == info(str(tmp_path / "plain.gguf"))["parameters"]
    assert facts["rope"][0]["factors"] == 32
