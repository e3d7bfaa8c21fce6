"""`camelid inspect`: every tensor and its rule, refused models with the reason, without reading any
weight.
"""

from __future__ import annotations

import io
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import HfCase, load_case, load_cases, write_hf, write_safetensors
from tests.support.processor_time import within

from camelid.cli.main import main

Json = dict[str, Any]
GIGABYTE = 10**9


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, words)])


def inspect(path: Path) -> Json:
    done = call(path, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


# Tensors that are made, shared or padded at load, so that fewer or more numbers are used than published.
MADE_OTHERWISE = {
    "apertus", "arwkv7", "arwkv7_gate", "gemma3n", "gemma_embedding", "grove_moe", "jais", "olmo",
    "olmo_bias", "opt", "rwkv6", "rwkv6qwen2", "rwkv7", "xlm_roberta", "xlm_roberta_flash",
    "xlm_roberta_flash_ranking", "xlm_roberta_ranking",
}  # fmt: skip


def uses(facts: Json) -> dict[str, Json]:
    return {t["name"]: t for t in facts["tensors"]}


@pytest.mark.parametrize("case", load_cases(), ids=str)
def test_every_tensor_of_a_known_model_finds_its_rule(case: HfCase, tmp_path: Path) -> None:
    facts = inspect(write_hf(tmp_path, case, dtype="bf16", n_shards=2))
    assert {t["name"]: t["shape"] for t in facts["tensors"]} == case.tensors
    assert facts["reason"] is None and facts["loads_as"]
    assert {t["status"] for t in facts["tensors"]} <= {"weight", "ignored", "unused"}
    weights = [t for t in facts["tensors"] if t["status"] == "weight"]
    n_published = sum(int(np.prod(t["shape"])) for t in weights)
    assert (n_published == facts["used_parameters"]) == (case.name not in MADE_OTHERWISE)
    assert all(t["to"] for t in weights)
    sizes = [(tmp_path / f["name"]).stat().st_size for f in facts["files"]]
    assert [f["bytes"] for f in facts["files"]] == sizes
    assert sum(f["tensors"] for f in facts["files"]) == len(case.tensors)
    assert facts["types"] == {"bf16": 2 * facts["parameters"]}


# (case, tensor, GGUF name, folds): llama's rotation, gemma's norms, gpt2's order, fused and stacked ones.
FOLDS = [
    ("llama31", "model.layers.1.self_attn.k_proj.weight", "blk.1.attn_k.weight", ["permute_rows 2 32"]),
    ("llama31", "model.layers.1.self_attn.v_proj.weight", "blk.1.attn_v.weight", []),
    ("gemma3", "model.norm.weight", "output_norm.weight", ["cast bf16", "add 1.0"]),
    ("gpt2", "transformer.h.0.mlp.c_fc.weight", "blk.0.ffn_up.weight", ["transpose 64 256"]),
    (
        "gpt2",
        "transformer.h.0.attn.c_attn.bias",
        "blk.0.attn_qkv.bias",
        [],
    ),
    ("granitemoehybrid", "model.layers.0.mamba.A_log", "blk.0.ssm_a", ["cast bf16", "neg_exp"]),
    (
        "granitemoehybrid",
        "model.layers.2.block_sparse_moe.input_linear.weight",
        "blk.2.ffn_gate_exps.weight, blk.2.ffn_up_exps.weight",
        [],
    ),
    (
        "phi3_short",
        "model.layers.0.mlp.gate_up_proj.weight",
        "blk.0.ffn_up.weight",
        [],
    ),
    (
        "mixtral",
        "model.layers.1.block_sparse_moe.experts.3.w2.weight",
        "blk.1.ffn_down_exps.weight",
        ["stack 4"],
    ),
]


@pytest.mark.parametrize(("case", "name", "to", "folds"), FOLDS)
def test_names_and_folds(case: str, name: str, to: str, folds: list[str], tmp_path: Path) -> None:
    use = uses(inspect(write_hf(tmp_path, load_case(case), dtype="bf16")))[name]
    assert (use["to"], use["folds"], use["status"]) == (to, folds, "weight")


def test_text_groups_layers_unless_every_tensor_is_requested(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, load_case("mixtral"), dtype="bf16", n_shards=2)
    short, long = (call(folder, *words).stdout for words in ((), ("--tensors",)))
    (row,) = (text.split() for text in short.splitlines() if ".experts.*.w1.weight" in text)
    name = "model.layers.*.block_sparse_moe.experts.*.w1.weight"
    assert row == [name, "bf16", "96x64", "->", "blk.*.ffn_gate_exps.weight", "stack", "4", "8", "tensors"]
    assert "experts.3.w1.weight" in long and "experts.3.w1.weight" not in short
    for text in ("model type      mixtral\nloads as        llama\n", "of-00002.safetensors"):
        assert text in short
    assert "num_local_experts" in short and "_from_model_config" in short


@pytest.mark.parametrize(
    ("changes", "reason", "n_known"),
    [
        ({"model_type": "llama9"}, "model_type 'llama9' is not supported; supported: ", 0),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is 'awq'", 21),
        ({"rope_scaling": {"rope_type": "spiral"}}, "'spiral'", 21),
        ({"num_hidden_layers": 1}, "no rule of model_type 'llama' uses it", 12),
        ({"hidden_size": 32}, "expected shape", 21),
        ({"num_attention_heads": "four"}, "num_attention_heads", 21),
    ],
)
def test_a_refused_model_is_shown_with_the_reason(
    changes: Json, reason: str, n_known: int, tmp_path: Path
) -> None:
    facts = inspect(folder := write_hf(tmp_path, load_case("llama31"), config_changes=changes))
    assert (facts["loads_as"], facts["used_parameters"]) == (None, None)
    assert reason in facts["reason"]
    assert len(facts["tensors"]) == 21 and facts["parameters"] > 0
    assert facts["config"].items() >= changes.items()
    status = [t["status"] for t in facts["tensors"]]
    assert status.count("weight") == n_known and status.count("unknown") == 21 - n_known
    done = call(folder, "--tensors")
    assert done.exit_code == 0 and f"reason          {facts['reason']}\n" in done.stdout
    assert sum(text.startswith("  ! ") for text in done.stdout.splitlines()) == 21 - n_known


def test_weights_of_another_type_are_marked(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, load_case("llama31"))
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"'))
    facts = inspect(folder)
    assert "type i32, expected one of" in facts["reason"]
    assert {tuple(t["folds"]) for t in facts["tensors"]} == {("refused",)}
    assert facts["types"].keys() == {"i32"}


def test_a_tied_copy_is_unused_and_a_mask_ignored(tmp_path: Path) -> None:
    case = load_case("qwen3")
    folder = write_hf(tmp_path, case, config_changes={"tie_word_embeddings": True})
    weights = {name: np.zeros(shape, np.float32) for name, shape in case.tensors.items()}
    more = {
        "lm_head.weight": weights["model.embed_tokens.weight"],
        "a.rotary_emb.inv_freq": np.zeros(4, "f4"),
    }
    write_safetensors(folder / "model.safetensors", weights | more)
    facts = inspect(folder)
    assert uses(facts)["lm_head.weight"]["status"] == "unused"
    assert uses(facts)["a.rotary_emb.inv_freq"]["status"] == "ignored"
    shown = call(folder).stdout
    assert f"used parameters {facts['used_parameters']:,}\n" in shown
    assert [text.split()[3] for text in shown.splitlines() if "lm_head.weight" in text] == ["unused"]


def test_tokenizer_and_template_are_shown(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, load_case("llama31"))
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": []}))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    facts = inspect(folder)
    assert facts["chat_template"] is True
    assert (facts["tokenizer"]["kind"], facts["tokenizer"]["n_tokens"]) == ("WordLevel", 2)
    assert "unk_token '<unk>' is not" in facts["tokenizer"]["reason"]
    assert facts["loads_as"] == "llama", "weights without a tokenizer are refused"
    assert "WordLevel, 2 tokens; unsupported: " in call(folder).stdout


def test_settings_cannot_control_the_terminal_and_infinity_stays_json(tmp_path: Path) -> None:
    changes = {"\x1b[31m": "\x1b[32m", "time_step_limit": [0.0, float("inf")]}
    folder = write_hf(tmp_path, load_case("llama31"), config_changes=changes)
    assert "\x1b" not in call(folder).stdout
    assert inspect(folder)["config"]["time_step_limit"] == [0.0, "inf"]


# GGUF files.


def test_a_gguf_file_shows_its_header(tmp_path: Path) -> None:
    write_tiny_llama(path := tmp_path / "tiny.gguf", seed=1)
    facts = inspect(path)
    reader = gguf.GGUFReader(path)
    assert [(t["name"], t["n_bytes"]) for t in facts["tensors"]] == [
        (t.name, int(t.n_bytes)) for t in reader.tensors
    ]
    assert (facts["loads_as"], facts["format"]) == ("llama", "GGUF version 3")
    assert facts["metadata"]["llama.block_count"] == 2
    assert facts["metadata"]["tokenizer.ggml.tokens"]["items"] == facts["tokenizer"]["n_tokens"] == 320
    assert facts["parameters"] == facts["used_parameters"] == sum(int(t.n_elements) for t in reader.tensors)
    shown = call(path).stdout
    assert "blk.*.attn_q.weight" in shown and "!" not in shown.splitlines()[-1]


def test_a_gguf_without_a_row_is_shown(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(path := tmp_path / "odd.gguf", "llama9")
    writer.add_tensor("blk.0.warp.weight", np.zeros((2, 32), np.float32))
    close(writer)
    facts = inspect(path)
    assert facts["loads_as"] is None and "'llama9' is not supported" in facts["reason"]
    assert facts["tensors"][0]["status"] == "unknown"
    assert "! blk.*.warp.weight" in call(path).stdout


def test_a_gguf_with_an_extra_tensor_marks_it(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "tiny.gguf", seed=1)
    data = (tmp_path / "tiny.gguf").read_bytes()
    path = tmp_path / "odd.gguf"
    path.write_bytes(data.replace(b"blk.1.attn_q.weight", b"blk.1.attn_Q.weight"))
    facts = inspect(path)
    assert "blk.1.attn_q" in facts["reason"]
    assert [t["name"] for t in facts["tensors"] if t["status"] == "unknown"] == ["blk.1.attn_Q.weight"]


def close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "it is empty"),
        ({"config.json": b"{}", "pytorch_model.bin": b""}, "is a pickle"),
        ({"config.json": b"{", "model.safetensors": b""}, "too few for a safetensors header"),
    ],
)
def test_a_path_without_a_model_is_one_clear_line(files: dict[str, bytes], said: str, tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    done = call(tmp_path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


# Weights stay unread.


def sparse_model(folder: Path) -> int:
    """Writes a llama of 3 GB whose weights are a hole in a file. Returns its size."""
    hidden, ffn, vocab = 8192, 28672, 48000
    changes = {"hidden_size": hidden, "intermediate_size": ffn, "vocab_size": vocab, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128}
    config = {**load_case("llama31").config, **changes, **heads}
    (folder / "config.json").write_text(json.dumps(config))
    outer = {"model.embed_tokens": (vocab, hidden), "lm_head": (vocab, hidden), "model.norm": (hidden,)}
    attention = {"q_proj": (hidden, hidden), "k_proj": (1024, hidden), "v_proj": (1024, hidden)}
    layer = {
        **{f"self_attn.{name}": shape for name, shape in attention.items()},
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes = {**outer, **{f"model.layers.0.{name}": shape for name, shape in layer.items()}}
    header: Json = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * int(np.prod(shape))
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(file.tell() + end)
    assert end > 3 * GIGABYTE
    return end


class Counted(io.FileIO):
    """A file that counts the bytes read from all files."""

    n_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        Counted.n_read += len(data)
        return data


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    """Counts the bytes read from every binary file opened through a path."""
    Counted.n_read = 0
    real = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        return Counted(path) if mode == "rb" else real(path, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", opened)
    return Counted


@pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: files with holes")
def test_three_gigabytes_are_inspected_by_their_header(tmp_path: Path, counted: type[Counted]) -> None:
    n_bytes = sparse_model(tmp_path)
    inspect(tmp_path)  # imports are not counted
    counted.n_read = 0
    tracemalloc.start()
    with within(1.0):
        facts = inspect(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert facts["loads_as"] == "llama" and facts["parameters"] == n_bytes // 2 == facts["used_parameters"]
    assert 0 < counted.n_read < 1 << 20, f"{counted.n_read} bytes were read"
    assert peak < 32 << 20, f"{peak} bytes"


def test_a_gguf_is_inspected_by_its_header(tmp_path: Path, counted: type[Counted]) -> None:
    write_tiny_llama(path := tmp_path / "big.gguf", seed=1, hidden=1024, head_dim=256, ffn=2048)
    offset = gguf.GGUFReader(path).data_offset
    assert inspect(path)["loads_as"] == "llama"
    assert 0 < counted.n_read <= max(2 * offset, 1 << 18) < path.stat().st_size / 8
