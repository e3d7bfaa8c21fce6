"""LoRA adapters of hub ids: the choice of files, and downloads that act like local files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import gguf
import huggingface_hub
import numpy as np
import pytest
from tests.support.hub_server import Hub
from tests.support.random_adapters import random_adapter

import camelid
from camelid import LLM
from camelid.cli.hub_download import local_adapter
from camelid.errors import FetchError, ModelFormatError, RequestError, UnsupportedModelError
from camelid.formats.hub.fetch import fetch
from camelid.formats.hub.ids import HubId, choose_adapter
from camelid.formats.hub.peek import KEY, remote_type, type_in
from camelid.loading.adapters.write import save_gguf, save_peft
from camelid.loading.lora import scaled_files, stem

CONFIG, PEFT, MLX = "adapter_config.json", "adapter_model.safetensors", "adapters.safetensors"
GREEDY = {"temperature": 0.0, "max_tokens": 12}


@pytest.mark.parametrize(
    ("listing", "quant", "want"),
    [
        ([CONFIG, PEFT, "README.md", "tokenizer.json"], None, (CONFIG, PEFT)),
        ([CONFIG, MLX, "0000100_adapters.safetensors"], None, (CONFIG, MLX)),
        ([CONFIG, PEFT, "config.json", "model.safetensors"], None, (CONFIG, PEFT)),
        (["lora-f16.gguf"], None, ("lora-f16.gguf",)),
        (["lora.gguf", "lora-imatrix.gguf", "mmproj-f16.gguf"], None, ("lora.gguf",)),
        (["a-f16.gguf", "a-q8_0.gguf"], "q8_0", ("a-q8_0.gguf",)),
        ([CONFIG, PEFT, "a-q8_0.gguf"], "q8_0", ("a-q8_0.gguf",)),
    ],
)
def test_files_of_an_adapter(listing: list[str], quant: str | None, want: tuple[str, ...]) -> None:
    assert choose_adapter(listing, quant, repository="o/r") == want


@pytest.mark.parametrize(
    ("listing", "quant", "error", "words"),
    [
        (
            ["model.safetensors", "config.json"],
            None,
            UnsupportedModelError,
            "it has neither adapter_config.json",
        ),
        (
            [CONFIG, "adapter_model.bin"],
            None,
            UnsupportedModelError,
            "adapter_model.bin is a pickle",
        ),
        ([CONFIG, PEFT], "q8_0", RequestError, "o/r has no .gguf files, so there is no q8_0 to choose"),
        (["a.gguf", "b.gguf"], None, RequestError, "name one file after the colon"),
        (["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"], None, UnsupportedModelError, "it has neither"),
        ([CONFIG, "training_args.bin"], None, UnsupportedModelError, "it has neither"),
        ([CONFIG, PEFT, "../x"], None, ModelFormatError, "unsafe"),
    ],
)
def test_a_repository_without_one_adapter_is_refused(
    listing: list[str], quant: str | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        choose_adapter(listing, quant, repository="o/r")
    assert words in str(caught.value)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu", threads=1, context=64) as llm:
        yield llm


def test_an_adapter_of_the_hub_acts_as_its_local_file(
    hub: Hub, default_cache: Path, tmp_path: Path, llm: LLM
) -> None:
    adapter = random_adapter(llm, 1)
    save_peft(adapter, llm.running.file, tmp_path / "peft")
    save_gguf(adapter, llm.running.file, tmp_path / "a-f32.gguf")
    files = {path.name: path.read_bytes() for path in (tmp_path / "peft").iterdir()}
    hub.add("o/peft", {**files, "README.md": b"x"})
    hub.add("o/gguf", {"a-f32.gguf": (tmp_path / "a-f32.gguf").read_bytes()})
    names = [llm.load_adapter(str(tmp_path / "peft"), name="local"), llm.load_adapter("o/peft")]
    names.append(llm.load_adapter("o/gguf:f32", name="gguf"))
    assert names == ["local", "peft", "gguf"]
    answers = {name: llm.generate("Who are you?", adapter=name, **GREEDY).token_ids for name in names}
    assert answers["local"] == answers["peft"] == answers["gguf"]
    assert answers["local"] != llm.generate("Who are you?", **GREEDY).token_ids
    n_downloads = len(hub.downloads())
    with camelid.load("cria", backend="cpu", threads=1, context=64, lora=["o/peft"]) as other:
        assert other.generate("Who are you?", **GREEDY).token_ids == answers["local"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert Path(local_adapter("o/peft")).is_relative_to(default_cache)
    assert len(hub.downloads()) == n_downloads, "the cache has it"
    assert local_adapter(str(tmp_path / "peft")) == str(tmp_path / "peft")


def test_a_hub_without_the_adapter_is_one_clear_error(hub: Hub, default_cache: Path, llm: LLM) -> None:
    with pytest.raises(FetchError, match="o/none"):
        llm.load_adapter("o/none")
    hub.add("o/model", {"config.json": b"{}", "model.safetensors": b"x"})
    with pytest.raises(UnsupportedModelError, match="o/model has no readable adapter"):
        llm.load_adapter("o/model")
    assert not list(default_cache.rglob("model.safetensors"))


@pytest.mark.parametrize("ignores_range", [False, True])
def test_a_model_is_refused_by_its_first_bytes(
    ignores_range: bool, hub: Hub, default_cache: Path, tmp_path: Path, llm: LLM
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_type("model")
    writer.add_tensor("output.weight", np.zeros((1 << 9, 1 << 13), np.float32))
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    data = (tmp_path / "model.gguf").read_bytes()
    hub.ignores_range = ignores_range
    hub.add("o/model", {"model-q8_0.gguf": data})
    with pytest.raises(ModelFormatError, match=r"o/model/model-q8_0.gguf: general.type is 'model', but"):
        llm.load_adapter("o/model")
    assert hub.n_sent < len(data) // 2, "no more than sockets buffer"
    assert not any("authorization" in headers for headers in hub.downloads())
    assert not list(default_cache.rglob("*model*.gguf"))


def test_a_hub_that_answers_too_late_does_not_hold_the_fetch(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    commit = hub.add("o/slow", {"slow.gguf": b"GGUF" + bytes(1 << 20)})
    hub.delay_s = 1.0
    assert remote_type(HubId("o", "slow"), "slow.gguf", commit) is None


def test_a_hub_that_does_not_show_the_type_is_downloaded(hub: Hub, default_cache: Path, llm: LLM) -> None:
    """The file's own error follows."""
    data = b"GGUF" + bytes(1 << 20) + KEY + (5).to_bytes(8, "little") + b"model"
    hub.add("o/late", {"late.gguf": data})
    with pytest.raises(ModelFormatError, match="GGUF"):
        llm.load_adapter("o/late")
    assert [path.stat().st_size for path in default_cache.rglob("late.gguf")] == [len(data)]


@pytest.mark.parametrize(
    ("rest", "want"),
    [
        (b"\x07" + bytes(7) + b"adapter", "adapter"),
        (b"\x07" + bytes(7) + b"adapt", None),  # cut
        (b"\xff" * 8 + b"model", None),
        (b"\x01" + bytes(7) + b"\xff", "\ufffd"),
        (b"\x01", None),
        (b"", None),
        (bytes(7), None),
    ],
)
def test_the_type_of_a_cut_or_hostile_head(rest: bytes, want: str | None) -> None:
    assert type_in(b"GGUF" + KEY + rest) == want
    assert type_in(b"GGUF" + rest) is type_in(b"GGUF" + b"x" + KEY[1:] + rest) is None


def test_an_adapter_that_is_cached_in_part_is_not_cached(
    hub: Hub, default_cache: Path, tmp_path: Path, llm: LLM
) -> None:
    save_peft(random_adapter(llm, 1), llm.running.file, tmp_path / "peft")
    files = {path.name: path.read_bytes() for path in (tmp_path / "peft").iterdir()}
    commit = hub.add("o/part", files)
    huggingface_hub.hf_hub_download("o/part", CONFIG, revision=commit, cache_dir=default_cache)
    with pytest.raises(FetchError, match="not complete in the cache"):
        fetch(f"o/part@{commit}", offline=True, is_adapter=True)
    fetch(f"o/part@{commit}", is_adapter=True)
    assert fetch(f"o/part@{commit}", offline=True, is_adapter=True).path.name == commit


def test_a_local_path_that_does_not_exist_is_named(hub: Hub, default_cache: Path, llm: LLM) -> None:
    """A text may be a hub id; a Path is none."""
    with pytest.raises(FetchError, match="there is no local file 'loras/poems' either"):
        llm.load_adapter("loras/poems")
    n_requests = len(hub.downloads())
    with pytest.raises(ModelFormatError, match="there is no such file"):
        llm.load_adapter(Path("loras/poems"))
    with pytest.raises(ModelFormatError, match="there is no such file"):
        camelid.load("cria", backend="cpu", threads=1, context=64, lora=[Path("loras/poems")])
    assert len(hub.downloads()) == n_requests


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("o/poems", "poems"), ("o/poems@main", "poems"), ("o/poems:q8_0", "poems"), ("o/r:sub/x.gguf", "x"),
        ("https://huggingface.co/o/poems/tree/main", "poems"), ("/there/poems.gguf", "poems"),
    ],
)  # fmt: skip
def test_the_name_of_an_adapter_is_that_of_its_repository_or_file(path: str, name: str) -> None:
    assert stem(path) == name
    assert [(file.path, file.name, file.applied) for file in scaled_files([f"{path}:0.5"])] == [
        (path, name, 0.5)
    ]


def test_an_adapter_that_is_not_there_costs_no_load(
    hub: Hub, default_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def choose(*_: object) -> None:
        raise AssertionError("a backend is opened")

    monkeypatch.setattr("camelid.loading.start.choose_backend", choose)
    with pytest.raises(FetchError, match="o/none"):
        camelid.load("cria", backend="cpu", threads=1, context=64, lora=["o/none"])
