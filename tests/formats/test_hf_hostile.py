"""Broken and hostile Hugging Face directories: each check fails with its own error and names the file."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from safetensors.numpy import save_file

from camelid.errors import CamelidError, ModelFormatError, UnsupportedModelError
from camelid.formats import hf_config, hf_weights
from camelid.formats.hf_config import open_hf

pytestmark = pytest.mark.faults

Fill: TypeAlias = Callable[[Path], object]
INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def save(folder: Path, file: str, *names: str) -> None:
    save_file({name: np.zeros(2, np.float32) for name in names}, folder / file)


def put(file: str, data: bytes | str | Any = b"") -> Fill:
    """Writes a file: bytes and text unchanged, other values as JSON."""
    text = data if isinstance(data, bytes | str) else json.dumps(data)
    return lambda folder: (folder / file).write_bytes(text.encode() if isinstance(text, str) else text)


def gone(file: str) -> Fill:
    return lambda folder: (folder / file).unlink()


def saved(file: str, *names: str) -> Fill:
    return lambda folder: save(folder, file, *names)


def link(file: str, target: str) -> Fill:
    def make(folder: Path) -> None:
        (folder / file).unlink(missing_ok=True)
        Path(folder / file).symlink_to(target)

    return make


def single(folder: Path) -> None:
    put("config.json", {})(folder)
    save(folder, "model.safetensors", "a", "b")


def index(**weight_map: Any) -> Fill:
    return put(INDEX, {"weight_map": weight_map})


def sharded(folder: Path) -> None:
    put("config.json", {})(folder)
    save(folder, SHARDS[0], "a", "b")
    save(folder, SHARDS[1], "c")
    index(a=SHARDS[0], b=SHARDS[0], c=SHARDS[1])(folder)


def nothing(folder: Path) -> None:
    """Leaves the directory empty."""


def bare(folder: Path) -> None:
    put("config.json", {})(folder)


def shard_at(name: Any) -> Fill:
    """An index whose first tensor is in a file of this name."""
    return index(a=name, b=SHARDS[0], c=SHARDS[1])


NOT_PLAIN = "is no plain file name; shards must be beside their index"
CASES: dict[str, tuple[Fill, Fill, str]] = {  # name: (directory, change, message)
    "empty": (nothing, nothing, ": there is no config.json; .*; it is empty"),
    "no config": (single, gone("config.json"), "there is no config.json; .* found model.safetensors"),
    "no weights": (bare, nothing, "there is neither model.safetensors nor .*; found config.json"),
    "many others": (
        bare,
        lambda folder: [put(f"note{i}.txt")(folder) for i in range(9)],
        "found config.json, note0.txt, note1.txt, note2.txt, note3.txt and others",
    ),
    "consolidated": (bare, saved("consolidated.safetensors", "a"), "found config.json, consolidated.safe"),
    "gguf": (nothing, put("tiny.gguf"), "this directory has GGUF files; give the path of .*tiny.gguf"),
    "gguf and config": (bare, put("tiny.gguf"), "this directory has GGUF files"),
    "broken single": (single, put("model.safetensors", b"GGUF"), "model.safetensors: the file has 4 bytes"),
    "lfs single": (
        single,
        put("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:"),
        "model.safetensors: .*run `git lfs pull`",
    ),
    "missing shard": (sharded, gone(SHARDS[1]), f"'{SHARDS[1]}' is missing .1 of 2 shards are.; was the"),
    "dangling shard": (sharded, link(SHARDS[1], "nowhere"), f"'{SHARDS[1]}' is missing"),
    "directory as shard": (
        sharded,
        lambda folder: (gone(SHARDS[1])(folder), (folder / SHARDS[1]).mkdir()),
        f"'{SHARDS[1]}' is missing",
    ),
    "broken shard": (sharded, put(SHARDS[1], bytes(99)), f"{SHARDS[1]}: not a safetensors file"),
    "tensor not in its shard": (sharded, saved(SHARDS[1], "d"), f"d: the tensor is in {SHARDS[1]}, but not"),
    "tensor gone": (
        sharded,
        saved(SHARDS[0], "a"),
        f"'b': the index states {SHARDS[0]}, but that file has no such tensor",
    ),
    "tensor elsewhere": (
        sharded,
        index(a=SHARDS[1], b=SHARDS[0], c=SHARDS[1]),
        f"a: the index states {SHARDS[1]}, but the tensor is in {SHARDS[0]}",
    ),
    "tensor not listed": (sharded, index(a=SHARDS[0], c=SHARDS[1]), "b: the tensor is in .*, but not in"),
    "tensor twice": (
        sharded,
        saved(SHARDS[1], "b", "c"),
        f"b: this tensor is both in {SHARDS[0]} and in {SHARDS[1]}",
    ),
    "index twice": (
        sharded,
        put(INDEX, '{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}'),
        "the index: the key 'a' occurs twice",
    ),
    "no weight map": (sharded, put(INDEX, {}), "weight_map must be an object with entries, found None"),
    "empty weight map": (sharded, index(), "weight_map must be an object with entries, found an object of 0"),
    "weight map list": (sharded, put(INDEX, {"weight_map": ["a"]}), r"found \['a'\]"),
    "file number": (sharded, shard_at(1), "'a': a file's name is expected, found 1"),
    "file null": (sharded, shard_at(None), "'a': a file's name is expected, found None"),
    "parent": (sharded, shard_at("../outside.safetensors"), f"'../outside.safetensors' {NOT_PLAIN}"),
    "absolute": (sharded, shard_at("/etc/outside.safetensors"), NOT_PLAIN),
    "below": (sharded, shard_at("sub/a.safetensors"), NOT_PLAIN),
    "dot": (sharded, shard_at("./a.safetensors"), NOT_PLAIN),
    "backslash": (sharded, shard_at("..\\outside.safetensors"), NOT_PLAIN),
    "drive": (sharded, shard_at("C:outside.safetensors"), NOT_PLAIN),
    "stream": (sharded, shard_at("a.safetensors:b.safetensors"), NOT_PLAIN),
    "share": (sharded, shard_at("//host/a.safetensors"), NOT_PLAIN),
    "url": (sharded, shard_at("https://host/a.safetensors"), NOT_PLAIN),
    "zero byte": (sharded, shard_at("a.safetensors\0.safetensors"), NOT_PLAIN),
    "newline": (sharded, shard_at("a\n.safetensors"), NOT_PLAIN),
    "dots": (sharded, shard_at(".."), NOT_PLAIN),
    "hidden": (sharded, shard_at(".safetensors"), NOT_PLAIN),
    "no file name": (sharded, shard_at(""), NOT_PLAIN),
    "long file name": (sharded, shard_at("n" * 9999 + ".safetensors"), "'nnn.* is missing"),
    "pickle as shard": (sharded, shard_at("pytorch_model.bin"), "'pytorch_model.bin' is not a .safetensors"),
    "many shards": (
        sharded,
        index(**{f"t{i}": f"{i}.safetensors" for i in range(4097)}),
        "4097 shards; at most 4096",
    ),
    "other case": (sharded, shard_at(SHARDS[0].upper()), "is not a .safetensors file"),
    "config list": (single, put("config.json", "[]"), r"config.json: settings: a JSON object .* found \[\]"),
    "config number": (single, put("config.json", "1"), "a JSON object is expected, found 1"),
    "config null": (single, put("config.json", "null"), "a JSON object is expected, found None"),
    "config empty": (single, put("config.json"), "config.json: settings: not valid JSON: Expecting value"),
    "config cut": (single, put("config.json", '{"a": [1,'), "not valid JSON: Expecting value at line 1"),
    "config deep": (single, put("config.json", '{"a":' + "[" * 100_000), "its brackets nest deeper than 64"),
    "config utf-16": (single, put("config.json", '{"a": 1}'.encode("utf-16")), "not valid UTF-8: byte 0"),
    "config with a mark": (single, put("config.json", '\ufeff{"a": 1}'), "not valid JSON: Unexpected UTF-8"),
    "config latin-1": (single, put("config.json", b'{"a": "\xe9"}'), "not valid UTF-8: byte 7 is 0xe9"),
    "config surrogate": (single, put("config.json", '{"a": ["\\ud83e"]}'), "a string contains a lone surrog"),
    "config twice": (single, put("config.json", '{"a": 1, "a": 2}'), "the key 'a' occurs twice"),
    "config 1e999": (single, put("config.json", '{"a": 1e999}'), "the number 1e999 is too large for a float"),
    "config digits": (single, put("config.json", '{"a": %s}' % ("9" * 5000)), "a number of 5000 characters"),
    "config single quotes": (single, put("config.json", "{'a': 1}"), "not valid JSON: Expecting prop"),
    "config python": (single, put("config.json", '{"a": True}'), "not valid JSON"),
    "index NaN": (sharded, put(INDEX, '{"metadata": {"total_size": NaN}}'), "the index: NaN is not a JSON"),
    "index deep": (sharded, put(INDEX, '{"weight_map":' * 3000), "the index: its brackets nest deeper"),
    "tokenizer NaN": (single, put("tokenizer.json", '{"a": -Infinity}'), "tokenizer.json: .*-Infinity is"),
    "tokenizer list": (single, put("tokenizer.json", "[]"), "tokenizer.json: settings: a JSON object"),
    "tokenizer config": (single, put("tokenizer_config.json", "x"), "tokenizer_config.json: .*not valid"),
    "special tokens": (single, put("special_tokens_map.json", "1"), "special_tokens_map.json: .* found 1"),
    "generation": (single, put("generation_config.json", '{"t": NaN}'), "generation_config.json: .*NaN is"),
    "template number": (
        single,
        put("tokenizer_config.json", {"chat_template": 1}),
        "tokenizer_config.json: chat_template must be a string or a list of named templates, found 1",
    ),
    "template list": (
        single,
        put("tokenizer_config.json", {"chat_template": ["x"]}),
        "each chat_template must have a name and a template, both strings; found 'x'",
    ),
    "template without text": (
        single,
        put("tokenizer_config.json", {"chat_template": [{"name": "default"}]}),
        "each chat_template must have a name and a template",
    ),
    "template latin-1": (single, put("chat_template.jinja", b"\xe9"), "chat_template.jinja: not valid UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_check(name: str, tmp_path: Path) -> None:
    make, change, message = CASES[name]
    make(tmp_path)
    change(tmp_path)
    with pytest.raises(ModelFormatError, match=message) as caught:
        open_hf(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
    assert len(str(caught.value)) < 1000
    assert str(caught.value.facts["path"]).startswith(str(tmp_path))


@pytest.mark.parametrize("make", [single, sharded])
def test_the_undamaged_directories_are_valid(make: Fill, tmp_path: Path) -> None:
    make(tmp_path)
    assert open_hf(tmp_path).tensors.keys() >= {"a", "b"}


PICKLES = [
    "pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt", "a.ckpt", "a.pkl",
]  # fmt: skip
Q4 = b'{"a":{"dtype":"Q4","shape":[],"data_offsets":[0,0]}}'
UNSUPPORTED: dict[str, tuple[Fill, Fill, str]] = {
    **{
        name: (bare, put(name), f"{name} is a pickle, which can run code, and is never read; convert")
        for name in PICKLES
    },
    "pickle without config": (nothing, put("pytorch_model.bin"), "pytorch_model.bin is a pickle"),
    "adapter": (
        saved("adapter_model.safetensors", "a"),
        put("adapter_config.json", {}),
        "this is an adapter .adapter_config.json., not a model; give its base model's directory",
    ),
    "adapter pickle": (put("adapter_model.bin"), put("adapter_config.json", {}), "this is an adapter"),
    "dtype": (
        single,
        put("model.safetensors", len(Q4).to_bytes(8, "little") + Q4),
        "model.safetensors: a: unknown dtype 'Q4'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_files_are_named(name: str, tmp_path: Path) -> None:
    make, change, message = UNSUPPORTED[name]
    make(tmp_path)
    change(tmp_path)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        open_hf(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


def test_an_adapter_beside_its_model_does_no_harm(tmp_path: Path) -> None:
    single(tmp_path)
    for name in ("adapter_config.json", "pytorch_model.bin", "old.gguf"):
        put(name)(tmp_path)
    assert open_hf(tmp_path).tensors.keys() == {"a", "b"}


def test_a_pickle_beside_the_model_is_never_opened(tmp_path: Path) -> None:
    """Opening it would block: it is a pipe."""
    single(tmp_path)
    if not hasattr(os, "mkfifo"):
        pytest.skip("not on this platform: no named pipes")
    for name in ("pytorch_model.bin", "tokenizer.json", "tokenizer_config.json"):
        os.mkfifo(tmp_path / name)
    got = open_hf(tmp_path)
    assert got.files.keys() == {"config.json", "model.safetensors"}


def test_an_index_cannot_name_paths_outside_the_directory(tmp_path: Path) -> None:
    """A link in the directory is its owner's choice; a path inside a file is not."""
    outside, folder = tmp_path / "outside", tmp_path / "model"
    outside.mkdir()
    folder.mkdir()
    sharded(folder)
    save(outside, "a.safetensors", "a")
    shard_at("../outside/a.safetensors")(folder)
    with pytest.raises(ModelFormatError, match=NOT_PLAIN):
        open_hf(folder)
    Path(folder / "out").symlink_to(outside)
    shard_at("out/a.safetensors")(folder)
    with pytest.raises(ModelFormatError, match=NOT_PLAIN):
        open_hf(folder)


@pytest.mark.parametrize(
    ("name", "message"), [("x/y", "there is no such directory"), ("file", "this is a file")]
)
def test_paths_other_than_directories_are_refused(name: str, message: str, tmp_path: Path) -> None:
    put("file")(tmp_path)
    with pytest.raises(ModelFormatError, match=message):
        open_hf(tmp_path / name)


def test_files_over_their_limit_are_not_read(tmp_path: Path) -> None:
    """Sparse files one byte over the limit: none is read into memory and parsed."""
    rows = [hf_config.CONFIG, hf_config.GENERATION, hf_config.SPECIAL_TOKENS, hf_config.TOKENIZER_CONFIG]
    limits = {row.name: row.max_bytes for row in rows} | {
        INDEX: hf_weights.MAX_INDEX_BYTES,
        hf_config.TEMPLATE: hf_config.MAX_TEMPLATE_BYTES,
    }
    for name, limit in limits.items():
        folder = tmp_path / name
        folder.mkdir()
        (sharded if name == INDEX else single)(folder)
        with (folder / name).open("wb") as file:
            file.truncate(limit + 1)
        with pytest.raises(ModelFormatError, match=f"{name}: the file is larger than {limit} bytes"):
            open_hf(folder)


def test_a_small_directory_costs_little(tmp_path: Path) -> None:
    tracemalloc.start()
    for name, (make, change, _) in (CASES | UNSUPPORTED).items():
        folder = tmp_path / name.replace("/", " ")
        folder.mkdir()
        make(folder)
        change(folder)
        tracemalloc.reset_peak()
        with pytest.raises(CamelidError):
            open_hf(folder)
        _, peak = tracemalloc.get_traced_memory()
        assert peak < 16 << 20, name
    tracemalloc.stop()
