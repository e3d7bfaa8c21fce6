"""Loading: choice of model, options and backend, closing of backends, and reads of a file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.backends.base import OpenSpec
from camelid.backends.common.gpus import may_have_gpu
from camelid.backends.null.backend import NullBackend
from camelid.errors import BackendError, CamelidError, ModelFormatError, RequestError, UnsupportedModelError
from camelid.loading import choose
from camelid.loading import model_file as opening
from camelid.loading.model_file import FileSource, ModelSource
from camelid.requests.build import RequestBuilder

GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=5, hidden=64, head_dim=16, ffn=96)
    return place


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ("no/such/file.gguf", ModelFormatError, "there is no such file"),
        (".", ModelFormatError, "there is no config.json"),
    ],
)
def test_unknown_model_names_are_refused(model: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        camelid.load(model)


def test_cria_is_the_packaged_file_or_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opening, "files", lambda package: tmp_path)
    with pytest.raises(RequestError, match="has no cria"):
        camelid.load("cria")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cria.gguf").write_bytes(b"GGUF")
    assert opening.find_source("cria").name == str(tmp_path / "data" / "cria.gguf")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"contxt": 3}, "'contxt' is unknown; known: backend, adapter, threads, gpu_layers"),
        ({"context": 257}, "context is 257, expected 1 to 256"),
        ({"context": 0}, "context is 0"),
        ({"parallel": 0}, "parallel is 0"),
        ({"record_tape": True}, "'reference' has no tape"),
    ],
)
def test_load_options_are_checked(path: Path, options: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        camelid.load(path, backend="reference", **options)


def test_unknown_backend_is_refused(path: Path) -> None:
    with pytest.raises(BackendError, match="unknown backend 'gpu'; known: auto"):
        camelid.load(path, backend="gpu")


class FakeGpu(NullBackend):
    """A webgpu backend whose adapter the test sets."""

    is_software, types, broken, fails = False, frozenset({"q8_0", "f32"}), "", ""
    limits: Mapping[str, int] = {}
    closed: list[FakeGpu] = []  # noqa: RUF012 - shared on purpose

    def capabilities(self) -> Any:
        gpu = replace(super().capabilities(), name="webgpu", device="Test GPU")
        return replace(gpu, is_software=self.is_software, weight_types=self.types, limits=self.limits)

    async def open(self, spec: OpenSpec) -> None:
        if self.broken:
            raise BackendError(self.broken, backend="webgpu")

    async def close(self) -> None:
        self.closed.append(self)


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has a device file of a GPU."""
    monkeypatch.setattr(choose, "may_have_gpu", lambda: True)
    monkeypatch.setattr(choose, "has_driver", lambda names: False)


@pytest.mark.parametrize(
    ("files", "has"),
    [
        ((), False),
        (("null", "dri/card0", "nvidiactl"), False),  # a display without a renderer
        (("dri/renderD128",), True),
        (("nvidia0",), True),
        (("dxg",), True),
    ],
)
def test_a_gpu_has_a_device_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Sequence[str], has: bool
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(sys, "platform", "linux")
    assert may_have_gpu(tmp_path) == has
    monkeypatch.setattr(sys, "platform", "darwin")
    assert may_have_gpu(tmp_path), "other systems have no device files to check"


def test_auto_loads_no_driver_without_a_gpu(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = choose.open_backend
    monkeypatch.setattr(choose, "may_have_gpu", lambda: False)
    monkeypatch.setattr(choose, "open_backend", lambda name: (opened.append(name), real(name))[1])
    with camelid.load(path) as llm:
        assert "; not cuda, webgpu: this machine has no GPU;" in f"{llm.backend_note};"
    assert opened and "webgpu" not in opened


@pytest.mark.usefixtures("with_gpu")
@pytest.mark.parametrize(
    ("change", "chosen", "words"),
    [
        ({}, "webgpu", "webgpu on Test GPU"),
        ({"is_software": True}, "cpu", "Test GPU is a software adapter"),
        ({"types": frozenset({"f32"})}, "cpu", "no kernel for q8_0"),
        ({"limits": {"maxBufferSize": 9999}}, "webgpu", "webgpu on Test GPU"),
        ({"broken": "no adapter was found"}, "cpu", "no adapter was found"),
        ({"fails": "it fails its gate: norm"}, "cpu", "not webgpu: it fails its gate: norm"),
    ],
)
def test_auto_reports_its_choice_and_the_reason(
    path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], chosen: str, words: str
) -> None:
    gpu = type("Gpu", (FakeGpu,), change)
    real = choose.open_backend

    async def verdict(backend: Any, open_one: Any) -> str:
        return getattr(backend, "fails", "")

    monkeypatch.setattr(choose, "verdict", verdict)
    monkeypatch.setattr(choose, "open_backend", lambda name: gpu() if name == "webgpu" else real(name))
    FakeGpu.closed.clear()
    with camelid.load(path) as llm:
        assert llm.capabilities.name == chosen
        assert words in llm.backend_note
        assert len(FakeGpu.closed) == (chosen == "cpu" and "broken" not in change)


@pytest.mark.usefixtures("with_gpu")
@pytest.mark.parametrize(
    ("options", "chosen", "words"),
    [
        ({"adapter": "portable"}, "cpu", "cpu on portable, "),
        ({"adapter": "Acme"}, "reference", "not cpu: backend 'cpu' has no variant 'Acme' for this machine"),
        ({"threads": 1}, "cpu", ", 1 thread;"),
    ],
)
def test_auto_passes_its_options_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, chosen: str, words: str
) -> None:
    real = choose.open_backend
    gpu = type("Gpu", (FakeGpu,), {"broken": "no adapter was found"})
    monkeypatch.setattr(choose, "open_backend", lambda name: gpu() if name == "webgpu" else real(name))
    with camelid.load(path, **options) as llm:
        assert llm.capabilities.name == chosen
        assert words in llm.backend_note


@pytest.mark.parametrize(
    ("backend", "options", "words"),
    [
        (
            "reference",
            {"threads": 4},
            "threads is 4, but backend 'reference' has no threads to set; it is for cpu",
        ),
        ("webgpu", {"threads": 4}, "threads is 4, but backend 'webgpu' has no threads to set; it is for cpu"),
        ("reference", {"adapter": "a"}, "backend 'reference' has no adapters; only cpu, webgpu"),
        ("cpu", {"threads": 0}, "threads is 0, expected an integer from 1 to 1,024"),
        ("cpu", {"threads": 1025}, "threads is 1,025, expected an integer from 1 to 1,024"),
    ],
)
def test_unsupported_options_of_a_named_backend_are_refused(
    path: Path, backend: str, options: Any, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        camelid.load(path, backend=backend, **options)
    assert caught.value.facts["field"] in options


def test_closing_a_stream_waits_for_the_steps_that_ran_ahead(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "open_backend", lambda name: FakeGpu())
    with camelid.load(path, backend="webgpu") as llm:
        stream = llm.stream("the llama", max_tokens=100, **GREEDY)
        next(stream)
        assert llm.counters.max_in_flight == 2
        stream.close()
        assert llm.is_idle
        assert llm.counters.discarded_rows == 1


def test_failed_load_closes_the_backend(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(FakeGpu):
        async def allocate(self, states: Any, units: Any) -> None:
            raise CamelidError("no memory for the state pools", want_bytes=1)

    monkeypatch.setattr(choose, "open_backend", lambda name: Full())
    FakeGpu.closed.clear()
    with pytest.raises(CamelidError, match="state pools"):
        camelid.load(path, backend="webgpu")
    assert len(FakeGpu.closed) == 1


def test_a_source_is_read_in_ranges_and_its_handle_passed_to_the_backend(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    handles: list[Any] = []

    class Remote:
        name, handle, size = "remote", object(), path.stat().st_size

        async def read(self, offset: int, length: int) -> bytes:
            asked.append(length)
            return await FileSource(path, self.size).read(offset, length)

        async def beside(self, name: str) -> ModelSource:
            raise AssertionError("a model in one file has no other")

    class Gpu(FakeGpu):
        async def load(self, weights: Any, sources: Any) -> None:
            handles.append(sources["model"])

    monkeypatch.setattr(choose, "open_backend", lambda name: Gpu())

    async def main() -> None:
        async with await camelid.aload(Remote(), backend="webgpu") as llm:
            assert llm.spec.n_layers == 2

    asyncio.run(main())
    assert handles == [Remote.handle]
    assert 0 < sum(asked) < Remote.size, "bytes besides the header were read; weights go to the backend"


def test_progress_reports_each_stage_in_order(path: Path) -> None:
    seen: list[tuple[int, int]] = []
    camelid.load(path, backend="reference", progress=lambda what, i, n: seen.append((i, n))).close()
    assert seen == [(i, 4) for i in range(5)]


def test_a_tokenizer_of_an_unknown_kind_fails_only_for_text(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "odd.gguf"
    place.write_bytes(path.read_bytes().replace(b"\4\0\0\0\0\0\0\0gpt2", b"\4\0\0\0\0\0\0\0gpt9"))
    with camelid.load(place, backend="reference", context=128) as odd:
        assert len(odd.generate([1, 2, 3], max_tokens=2).token_ids) == 2
        with pytest.raises(UnsupportedModelError, match="tokenizer kind 'gpt9' is not supported"):
            odd.generate("text")


def test_a_text_prompt_has_the_files_special_tokens(path: Path, tmp_path: Path) -> None:
    """The patch turns add_bos_token into add_eos_token, which has the same length, set to true."""
    place, flag = tmp_path / "eos.gguf", b"tokenizer.ggml.add_%s_token\7\0\0\0"
    no_bos, add_eos = flag % b"bos" + b"\0", flag % b"eos" + b"\1"
    assert path.read_bytes().count(no_bos) == 1
    place.write_bytes(path.read_bytes().replace(no_bos, add_eos))
    plain = camelid.load_tokenizer(path).encode("the llama")
    with camelid.load(place, backend="reference", context=128) as framed:
        assert framed.tokenizer.frame.after == (framed.tokenizer.eos_id,)
        done = framed.generate("the llama", max_tokens=1)
        assert done.usage.prompt_tokens == len(plain) + 1


@pytest.mark.parametrize(("reads_bos", "n_keep"), [(b"\0", 0), (b"\1", 1)])
def test_a_shift_keeps_the_opening_token(reads_bos: bytes, n_keep: int, path: Path, tmp_path: Path) -> None:
    """The end token opens a prompt instead, if the flag is set."""
    place, flag = tmp_path / "bos.gguf", b"tokenizer.ggml.add_bos_token\7\0\0\0"
    data = path.read_bytes().replace(b"ggml.eos_token_id", b"ggml.bos_token_id")
    assert data.count(flag + b"\0") == 1
    place.write_bytes(data.replace(flag + b"\0", flag + reads_bos))
    builder = RequestBuilder(asyncio.run(opening.open_model(place)))
    assert builder.request("the llama", {}).n_keep == n_keep
    assert builder.request("the llama", {"n_keep": 5}).n_keep == 5
