"""The choice of backend cuda: `auto` and `-ngl` prefer it where a driver is, after its gate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cuda.rig import open_rig
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.backends.common import gpus
from camelid.errors import BackendError
from camelid.loading import choose
from camelid.loading.forecast import likely_backend
from camelid.loading.model_file import open_model
from camelid.loading.options import LoadOptions
from camelid_native.cuda import backend, nvrtc

GREEDY: dict[str, Any] = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, n_layers=3, hidden=64, head_dim=32, ffn=96, context=256)
    return str(place)


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A machine with NVIDIA's driver (the rig), whose gates pass and are listed."""
    found: list[str] = []

    async def first_failure(opened: Any) -> None:
        found.append(opened.capabilities().name)

    monkeypatch.setenv("CAMELID_CACHE", str(tmp_path))
    monkeypatch.setattr(choose, "has_driver", lambda names: "NVIDIA" in names)
    monkeypatch.setattr(nvrtc, "is_installed", lambda: True)
    monkeypatch.setattr(backend, "open_backend", open_rig)
    monkeypatch.setattr("camelid.backends.proof.gate.first_failure", first_failure)
    return found


def likely(path: str, **options: Any) -> str:
    """The backend of a forecast."""
    model = asyncio.run(open_model(path)).model
    return likely_backend(model, LoadOptions(**options)).capabilities().name


def test_auto_prefers_cuda_after_its_gate_which_runs_once(path: str, gates: list[str]) -> None:
    for _ in range(2):
        with camelid.load(path) as llm:
            assert llm.backend_note == f"cuda on {llm.capabilities.device}"
    assert choose.auto_names()[:2] == ("cuda", "webgpu")
    assert gates == ["cuda"]  # not with the second load
    assert likely(path) == "cuda"


def test_a_failed_gate_chooses_another_backend(
    path: str, gates: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(opened: Any) -> Any:
        failure = type("Failure", (), {"error": None, "__str__": lambda self: "linear differs"})
        return failure() if opened.capabilities().name == "cuda" else None

    monkeypatch.setattr("camelid.backends.proof.gate.first_failure", fail)
    monkeypatch.setattr(choose, "auto_names", lambda: ("cuda", "cpu"))
    with camelid.load(path) as llm:
        assert llm.capabilities.name == "cpu" and "not cuda: it fails its gate" in llm.backend_note


def test_layers_go_to_cuda_after_its_gate(
    path: str, gates: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with camelid.load(path, gpu_layers=2) as llm:
            assert llm.capabilities.name == "cpu+cuda"
    assert gates == ["cuda"]
    assert likely(path, gpu_layers=2) == "cpu+cuda"

    def refuse() -> Any:
        raise BackendError("cuda: no compiler", backend="cuda")

    monkeypatch.setattr(backend, "open_backend", refuse)
    monkeypatch.setattr(choose, "_auto_gpus", lambda: ["cuda", "cpu"])
    reasons = asyncio.run(choose._proven_gpu(LoadOptions(gpu_layers=2)))
    assert reasons == ("cpu", ["not cuda: no compiler"])


def test_a_machine_without_a_driver_never_imports_the_backend(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "has_driver", lambda names: False)
    monkeypatch.setattr(backend, "open_backend", lambda: pytest.fail("opened"))
    monkeypatch.setattr(nvrtc, "is_installed", lambda: pytest.fail("probed"))
    assert choose.likely_gpu() == "webgpu"
    monkeypatch.setattr(choose, "may_have_gpu", lambda: False)
    assert likely(path) == "cpu"
    with camelid.load(path) as llm:
        assert llm.backend_note.endswith("; not cuda, webgpu: this machine has no GPU")


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("nvidia0", ["NVIDIA"]),
        ("dxg", ["NVIDIA"]),
        ("kfd", ["ROCm"]),
        ("nvidiactl", []),
        ("dri/renderD128", []),
    ],
)
def test_a_driver_has_a_device_file(
    file: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    monkeypatch.setattr("sys.platform", "linux")
    assert [name for name in gpus.DRIVERS if gpus.has_driver([name], tmp_path)] == names
    monkeypatch.setattr("sys.platform", "darwin")
    assert not gpus.has_driver(gpus.DRIVERS, tmp_path)
    assert "cuda" not in choose.auto_names()


def test_no_compiler_leaves_the_layers_to_another_backend(
    gates: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose.likely_gpu() == "cuda"
    monkeypatch.setattr(nvrtc, "is_installed", lambda: False)
    assert choose.likely_gpu() == "webgpu" and gates == []
