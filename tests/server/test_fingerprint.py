"""`system_fingerprint`: equal for services that answer alike, different for those that may not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from camelid.errors import ModelFormatError
from camelid.loading.model_file import FileSource, find_source, open_model
from camelid.loading.options import LoadOptions
from camelid.server.service import service as service_module
from camelid.server.service.admission import Admission
from camelid.server.service.fingerprint import model_mark
from camelid.server.service.host import EngineHost
from camelid.server.service.job import Job
from camelid.server.service.limits import Limits
from camelid.server.service.service import Service
from camelid.version import __version__

LOAD: dict[str, Any] = {"backend": "cpu", "context": 64, "parallel": 1}


@asynccontextmanager
async def service_of(file: str = "cria", settings: Any = None, **load: Any) -> AsyncGenerator[Service, None]:
    host = await EngineHost.open(file, LoadOptions.of(**(LOAD | load)))
    given: dict[str, Any] = {"limits": Limits(), **(settings or {})}
    service = Service("m", host, Admission(1, 1), **given)
    try:
        yield service
    finally:
        await service.close()


def fingerprint_of(file: str = "cria", settings: Any = None, **load: Any) -> str:
    async def work() -> str:
        async with service_of(file, settings, **load) as service:
            return service.fingerprint

    return asyncio.run(work())


@pytest.fixture(scope="module")
def ours() -> str:
    return fingerprint_of()


def cria_file(path: Path, at: int | None = None) -> str:
    """A copy of cria, with another byte at a place."""
    source = find_source("cria")
    assert isinstance(source, FileSource)
    data = bytearray(source.path.read_bytes())
    if at is not None:
        data[at] ^= 1
    path.write_bytes(data)
    return str(path)


def middle_of(name: str) -> int:
    """The place of a weight's middle in cria's file."""
    parts = asyncio.run(open_model("cria")).checkpoint.tensors[name].parts
    return parts[0].offset + parts[0].n_bytes // 2


def test_it_names_build_backend_model_and_promise(ours: str) -> None:
    assert ours.startswith(f"b{__version__}-cpu-m-A+B-")
    assert len(ours.rpartition("-")[2]) == 12
    assert " " not in ours


def test_equal_services_have_equal_fingerprints(ours: str, tmp_path: Path) -> None:
    assert fingerprint_of() == ours
    assert fingerprint_of(cria_file(tmp_path / "another-name.gguf")) == ours
    assert fingerprint_of(parallel=2, kv_rows=256) == ours


@pytest.mark.parametrize("weight", ["blk.0.attn_q.weight", "blk.1.ffn_down.weight", "output_norm.weight"])
def test_another_file_under_the_same_name_has_another(ours: str, tmp_path: Path, weight: str) -> None:
    assert fingerprint_of(cria_file(tmp_path / "m.gguf", middle_of(weight))) != ours


@pytest.mark.parametrize("load", [{"kv_type": "f16"}, {"kv_type": "q8_0"}, {"context": 32}])
def test_another_state_has_another(ours: str, load: dict[str, Any]) -> None:
    assert fingerprint_of(**load) != ours


@pytest.mark.parametrize(
    "settings",
    [
        {"defaults": {"temperature": 0.5}},
        {"template": "{{ messages[0]['content'] }}"},
        {"variables": {"enable_thinking": False}},
        {"limits": Limits(max_tokens=5)},
    ],
)
def test_other_settings_have_another(ours: str, settings: dict[str, Any]) -> None:
    assert fingerprint_of(settings=settings) != ours


@pytest.mark.parametrize("facts", [{"build": "other kernels"}, {"device": "avx9"}, {"activations": "f32"}])
def test_other_kernels_have_another(
    ours: str, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    async def work() -> str:
        async with service_of() as service:
            backend = service.host.running.backend
            here = backend.capabilities()
            monkeypatch.setattr(type(backend), "capabilities", lambda self: replace(here, **facts))
            return service.fingerprint

    assert asyncio.run(work()) != ours


def test_a_file_that_is_gone_has_a_mark_of_its_own(tmp_path: Path) -> None:
    path = cria_file(tmp_path / "m.gguf")
    file = asyncio.run(open_model(path))
    assert model_mark(file) == model_mark(file)
    Path(path).unlink()
    with pytest.raises(ModelFormatError):
        asyncio.run(open_model(path))
    assert model_mark(file) != model_mark(file)


def test_a_slow_disk_delays_the_first_answers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop goes on, and a client that leaves does not end the reading."""
    free = threading.Event()
    monkeypatch.setattr(service_module, "model_mark", lambda file: str(free.wait(20)))

    async def work() -> None:
        async with service_of() as service:
            gone = asyncio.ensure_future(service.start(Job(prompt="A", options={"max_tokens": 1})))
            await asyncio.sleep(0.05)
            gone.cancel()
            later = asyncio.ensure_future(service.start(Job(prompt="A", options={"max_tokens": 1})))
            await asyncio.sleep(0.05)
            assert (gone.cancelled(), later.done()) == (True, False)
            free.set()
            await (await later).completions()
            assert service.fingerprint == service.fingerprint

    asyncio.run(work())
