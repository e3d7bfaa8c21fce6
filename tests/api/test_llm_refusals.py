"""Refusals of the Python API, and its errors for a failing file or driver."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.api.llm import LLM
from camelid.backends.base import Program
from camelid.backends.null.backend import NullBackend
from camelid.backends.reference.backend import ReferenceBackend
from camelid.engine.speculative import NgramLookup
from camelid.errors import BackendError, ModelFormatError, RequestError
from camelid.loading import choose
from camelid.plan.plan import Plan
from camelid.requests import build


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=5, hidden=64, head_dim=16, ffn=96)
    return place


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with camelid.load(path, backend="reference", context=128) as loaded:
        yield loaded


@pytest.mark.parametrize("prompt", [b"the llama", bytearray(b"x"), memoryview(b"x")])
def test_bytes_are_refused_as_a_prompt(llm: LLM, prompt: Any) -> None:
    with pytest.raises(RequestError, match="expected text, token ids or messages"):
        llm.generate(prompt)
    assert llm.is_idle


@pytest.mark.parametrize("prompt", [[1, 2], [{"role": "user", "content": "a"}]])
def test_special_is_for_text_only(llm: LLM, prompt: Any) -> None:
    with pytest.raises(RequestError, match="special applies to a text prompt"):
        llm.generate(prompt, special=True)


@pytest.mark.parametrize("backend", ["reference", "null"])
def test_adapter_needs_a_backend_that_has_some(path: Path, backend: str) -> None:
    with pytest.raises(
        RequestError, match="has no adapters; only cpu, webgpu, cuda, mlx, vulkan, metal, dx12"
    ):
        camelid.load(path, backend=backend, adapter="nvidia")


def test_depth_is_checked_when_loading(path: Path) -> None:
    with pytest.raises(RequestError, match="max_in_flight is 3, expected an integer from 1 to 1"):
        camelid.load(path, backend="reference", max_in_flight=3)


@pytest.mark.parametrize(
    "size", [{"parallel": "4"}, {"parallel": 0}, {"chunk": 8.0}, {"context": True}, {"kv_rows": "all"}]
)
def test_sizes_are_integers(path: Path, size: dict[str, Any]) -> None:
    (name,) = size
    with pytest.raises(RequestError, match=f"{name} is .*, expected an integer"):
        camelid.load(path, backend="reference", **size)


def test_a_chunk_is_capped_at_all_contexts(path: Path) -> None:
    """A chunk bounds the memory of a step: capacity that no step can fill is not allocated."""
    with camelid.load(path, backend="reference", context=32, parallel=2, chunk=10**12) as llm:
        assert llm.plan("mixed").key.capacity.rows == 64
        assert len(llm.generate([1, 2, 3], max_tokens=4, temperature=0).token_ids) <= 4


def test_a_model_cannot_be_its_own_draft(path: Path, llm: LLM) -> None:
    with pytest.raises(RequestError, match="cannot be its own draft"):
        llm.generate([1, 2, 3], max_tokens=4, speculate=llm)
    asked: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    with camelid.load(path, backend="reference", context=128) as draft:
        drafted = llm.counters.drafted
        ids = llm.generate([1, 2, 3], speculate=draft, **asked).token_ids
        assert ids == llm.generate([1, 2, 3], **asked).token_ids
        assert llm.counters.drafted > drafted


def test_a_draft_model_has_the_same_vocabulary(llm: LLM) -> None:
    class Draft(NgramLookup):
        spec = replace(llm.spec, vocab_size=7)

    with pytest.raises(RequestError, match="the draft model has a vocabulary of 7 tokens, expected"):
        llm.generate([1, 2, 3], max_tokens=4, speculate=Draft())


def test_a_hook_must_be_callable(llm: LLM) -> None:
    hook: Any = "print"
    with pytest.raises(RequestError, match="the hook is 'print', expected a function"):
        llm.on_step(hook)


def test_a_tape_must_be_recorded_before_saving(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Taping(NullBackend):
        def save_tape(self, path: str) -> None:
            raise AssertionError("nothing to save")

    monkeypatch.setattr(choose, "open_backend", lambda name: Taping())
    with (
        camelid.load(path, backend="null") as llm,
        pytest.raises(RequestError, match="record_tape=True"),
    ):
        llm.save_tape("never")


def test_null_has_no_logits(path: Path) -> None:
    with camelid.load(path, backend="null") as llm:
        with pytest.raises(BackendError, match="'null' computes no logits"):
            llm.logits([1, 2])
        assert llm.is_idle


def test_concurrent_logits_calls_compile_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    class Slow(ReferenceBackend):
        async def compile(self, plan: Plan) -> Program:
            compiled.append(plan.key.entry)
            await asyncio.sleep(0.01)
            return await super().compile(plan)

    monkeypatch.setattr(choose, "open_backend", lambda name: Slow())

    async def main() -> None:
        async with await camelid.aload(path, backend="reference") as llm:
            before = len(compiled)
            first, second = await asyncio.gather(llm.alogits([1, 2]), llm.alogits([1, 2]))
            assert first == second
            assert len(compiled) == before + 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("errors", "chosen"),
    [
        ({"webgpu": ImportError("libvulkan")}, "cpu"),
        ({"webgpu": OSError("libwgpu_native.so"), "cpu": ImportError("native")}, "reference"),
    ],
)
def test_auto_falls_back_to_an_importable_backend(
    path: Path, monkeypatch: pytest.MonkeyPatch, errors: dict[str, Exception], chosen: str
) -> None:
    real = choose.open_backend

    def opened(name: str) -> Any:
        if name in errors:
            raise errors[name]
        return real(name)

    monkeypatch.setattr(choose, "may_have_gpu", lambda: True)
    monkeypatch.setattr(choose, "open_backend", opened)
    with camelid.load(path) as llm:
        assert llm.capabilities.name == chosen
        for name, error in errors.items():
            assert f"not {name}: {type(error).__name__}: {error}" in llm.backend_note


def test_a_prompt_passed_as_a_model_is_a_clear_error() -> None:
    with pytest.raises(ModelFormatError, match="cannot be read") as caught:
        camelid.load("tell me about llamas " * 500)
    assert len(caught.value.message) < 300


def test_an_unreadable_file_is_named_with_the_reason(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelFormatError, match=r"tiny\.gguf: cannot be read: Permission denied"):
        camelid.load(path, backend="reference")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("call", ["generate", "stream", "logits"])
def test_the_synchronous_api_is_refused_in_an_event_loop(llm: LLM, call: str) -> None:
    async def inside() -> None:
        result: Any = getattr(llm, call)([1, 2, 3])
        if call == "stream":
            next(result)

    with pytest.raises(RequestError, match="already runs an event loop; use the asynchronous twin"):
        asyncio.run(inside())
    gc.collect()  # a coroutine that was never awaited warns here
    assert llm.is_idle


def test_an_error_after_loading_closes_the_backend(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's sampling defaults are read once the engine runs."""
    closed: list[object] = []
    close = ReferenceBackend.close

    async def counted(backend: ReferenceBackend) -> None:
        closed.append(backend)
        await close(backend)

    def refused(gguf: object) -> None:
        raise ModelFormatError("general.sampling.top_k is text")

    monkeypatch.setattr(ReferenceBackend, "close", counted)
    monkeypatch.setattr(build, "file_defaults", refused)
    with pytest.raises(ModelFormatError, match="top_k"):
        camelid.load(path, backend="reference", context=16)
    assert len(closed) == 1
