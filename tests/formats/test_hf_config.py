"""Directories in Hugging Face's layout, written with the safetensors package."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors.numpy import save_file

from camelid.errors import ModelFormatError
from camelid.formats.hf_config import Config, HfDirectory, open_hf

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "time_step_limit": [0.0, float("inf")]}
Arrays = dict[str, np.ndarray[Any, Any]]


def arrays(seed: int = 0, n: int = 9) -> Arrays:
    rng = np.random.default_rng(seed)
    kinds: Sequence[Any] = (np.float32, np.float16, np.int8)
    shapes = ((3, 5), (7,), (), (2, 0), (1, 1, 2))
    return {
        f"model.layers.{i}.weight": rng.normal(0, 9, shapes[i % 5]).astype(kinds[i % 3]) for i in range(n)
    }


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def write_single(folder: Path, seed: int = 0) -> Arrays:
    made = arrays(seed)
    write_json(folder / "config.json", CONFIG)
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    return made


def write_shards(folder: Path, *, max_bytes: int = 60) -> Arrays:
    """Writes shards and an index, split like huggingface_hub."""
    made = arrays()
    write_json(folder / "config.json", CONFIG)
    split = split_state_dict_into_shards_factory(
        made,
        get_storage_size=lambda tensor: tensor.nbytes,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_bytes,
    )
    for name, keys in split.filename_to_tensors.items():
        save_file({key: made[key] for key in keys}, folder / name)
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
    write_json(folder / "model.safetensors.index.json", index)
    return made


def check_tensors(got: HfDirectory, want: Arrays) -> None:
    assert got.tensors.keys() == want.keys()
    for name, tensor in got.tensors.items():
        data = got.files[tensor.file].read_bytes()[tensor.offset : tensor.offset + tensor.n_bytes]
        assert (tensor.name, tensor.shape, data) == (name, want[name].shape, want[name].tobytes())
        assert {"f32": "float32", "f16": "float16", "i8": "int8"}[tensor.type] == want[name].dtype.name


def test_a_single_file(tmp_path: Path) -> None:
    want = write_single(tmp_path)
    got = open_hf(str(tmp_path))
    check_tensors(got, want)
    assert {tensor.file for tensor in got.tensors.values()} == {"model.safetensors"}
    assert got.config == CONFIG
    assert got.path == tmp_path
    assert got.files == {name: tmp_path / name for name in ("config.json", "model.safetensors")}
    assert (got.generation, got.tokenizer, got.tokenizer_config, got.special_tokens) == ({}, {}, {}, {})
    assert got.chat_template is None
    assert got.settings.count("hidden_size") == 64


def test_shards(tmp_path: Path) -> None:
    want = write_shards(tmp_path)
    got = open_hf(tmp_path)
    check_tensors(got, want)
    assert len({tensor.file for tensor in got.tensors.values()}) >= 3


def test_a_single_file_takes_precedence_over_an_index(tmp_path: Path) -> None:
    write_shards(tmp_path)
    want = write_single(tmp_path, seed=5)
    check_tensors(open_hf(tmp_path), want)


def test_symbolic_links_of_the_hub_cache(tmp_path: Path) -> None:
    """snapshots/x/name -> ../../blobs/hash, huggingface_hub's layout."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "x"
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True)
    want = write_shards(blobs)
    for i, path in enumerate(sorted(blobs.iterdir())):
        path.rename(blobs / f"{i:040x}")
        Path(snapshot / path.name).symlink_to(f"../../blobs/{i:040x}")
    check_tensors(open_hf(snapshot), want)


FILES = {
    "generation_config.json": {"eos_token_id": [1, 2]},
    "tokenizer.json": {"model": {"vocab": {"a": 0}}},
    "tokenizer_config.json": {"model_max_length": 10**30, "chat_template": "{{ 'small' }}"},
    "special_tokens_map.json": {"eos_token": "</s>"},
}


def test_every_settings_file(tmp_path: Path) -> None:
    write_single(tmp_path)
    for name, value in FILES.items():
        write_json(tmp_path / name, value)
    got = open_hf(tmp_path)
    assert [got.generation, got.tokenizer, got.tokenizer_config, got.special_tokens] == list(FILES.values())
    assert got.chat_template == "{{ 'small' }}"
    (tmp_path / "chat_template.jinja").write_text("{{ 'größer' }}", "utf-8")
    assert open_hf(tmp_path).chat_template == "{{ 'größer' }}"


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, None),
        ([], None),
        ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "tool_use", "template": "t"}], None),
    ],
)
def test_named_templates(value: Any, want: str | None, tmp_path: Path) -> None:
    write_single(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": value})
    assert open_hf(tmp_path).chat_template == want


def test_a_tokenizer_needs_no_weights(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer.json", FILES["tokenizer.json"])
    got = open_hf(tmp_path, with_weights=False)
    assert (got.tokenizer, got.config, got.tensors) == (FILES["tokenizer.json"], {}, {})


def test_files_are_read_one_at_a_time(tmp_path: Path) -> None:
    """200 shards with at most 40 open files."""
    resource = pytest.importorskip("resource", reason="not on this platform: no limit on open files")
    made = {f"t{i}": np.zeros(1, np.float32) for i in range(200)}
    write_json(tmp_path / "config.json", CONFIG)
    for name, array in made.items():
        save_file({name: array}, tmp_path / f"{name}.safetensors")
    weight_map = {name: f"{name}.safetensors" for name in made}
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": weight_map})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.dup(0)  # lowest free descriptor: the limit bounds its number
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 40, limits[1]))
    try:
        got = open_hf(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(got.tensors) == 200


VALUES = Config(
    {
        "n": 4096, "zero": 0, "negative": -1, "huge": 10**100, "x": 0.5, "nan": float("nan"), "true": True,
        "inf": float("inf"), "text": "silu", "ids": [1, 2], "words": ["a", "b"], "empty": {}, "null": None,
        "rope": {"factor": 8.0, "type": "yarn"}, "whole": 4096.0, "odd": [1, "a"],
    },
    "m/config.json",
)  # fmt: skip
GOOD: list[tuple[Any, Any]] = [
    (lambda c: c.count("n"), 4096),
    (lambda c: c.count("null", 7), 7),
    (lambda c: c.count("absent", 7), 7),
    (lambda c: c.count("zero", least=0), 0),
    (lambda c: c.counts("ids"), [1, 2]),
    (lambda c: c.counts("zero"), [0]),
    (lambda c: c.counts("null"), []),
    (lambda c: c.number("x"), 0.5),
    (lambda c: c.number("n"), 4096.0),
    (lambda c: c.number("absent", 1e-5), 1e-5),
    (lambda c: c.number("negative"), -1.0),
    (lambda c: c.flag("true"), True),
    (lambda c: c.flag("absent", False), False),
    (lambda c: c.text("text"), "silu"),
    (lambda c: c.text("absent", "gelu"), "gelu"),
    (lambda c: c.texts("words"), ["a", "b"]),
    (lambda c: c.texts("absent"), []),
    (lambda c: c.get_list("odd"), [1, "a"]),
    (lambda c: c.get_dict("rope"), {"factor": 8.0, "type": "yarn"}),
    (lambda c: c.get_dict("null"), {}),
    (lambda c: c.section("rope").number("factor"), 8.0),
    (lambda c: [c.has(key) for key in ("n", "null", "absent")], [True, False, False]),
]
BAD: list[tuple[Any, str]] = [
    (lambda c: c.count("absent"), "absent is missing"),
    (lambda c: c.count("null"), "null is missing"),
    (lambda c: c.count("true"), "true is True, but a whole number from 1 to 2147483647 is expected"),
    (lambda c: c.count("zero"), "zero is 0, but a whole number from 1"),
    (lambda c: c.count("negative", 5), "negative is -1"),
    (lambda c: c.count("huge"), "huge is 1000.*, but a whole number"),
    (lambda c: c.count("whole"), "whole is 4096.0"),
    (lambda c: c.count("text"), "text is 'silu'"),
    (lambda c: c.count("n", most=512), "n is 4096, but a whole number from 1 to 512"),
    (lambda c: c.counts("odd"), r"odd is \[1, 'a'\], but whole numbers from 0"),
    (lambda c: c.counts("negative"), "negative is -1, but whole numbers"),
    (lambda c: c.number("nan"), "nan is nan, but a finite number up to 3.4e.38 is expected"),
    (lambda c: c.number("inf"), "inf is inf, but a finite number"),
    (lambda c: c.number("huge"), "huge is 1000"),
    (lambda c: c.number("true"), "true is True"),
    (lambda c: c.number("zero", above=0), "zero is 0, but a finite number above 0 up to"),
    (lambda c: c.number("text"), "text is 'silu'"),
    (lambda c: c.flag("n"), "n is 4096, but true or false is expected"),
    (lambda c: c.flag("zero", True), "zero is 0, but true or false"),
    (lambda c: c.text("n"), "n is 4096, but a string is expected"),
    (lambda c: c.texts("odd"), r"odd is \[1, 'a'\], but a list of strings"),
    (lambda c: c.texts("text"), "text is 'silu', but a list is expected"),
    (lambda c: c.get_dict("ids"), r"ids is \[1, 2\], but an object is expected"),
    (lambda c: c.section("rope").count("factor"), "rope.factor is 8.0, but a whole number"),
    (lambda c: c.section("rope").text("absent"), "rope.absent is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("get", "want"), GOOD)
def test_getters(get: Any, want: Any) -> None:
    got = get(VALUES)
    assert (got, type(got)) == (want, type(want))


@pytest.mark.parametrize(("get", "message"), BAD)
def test_getters_refuse(get: Any, message: str) -> None:
    with pytest.raises(ModelFormatError, match=f"^m/config.json: {message}"):
        get(VALUES)
