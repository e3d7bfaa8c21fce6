"""The command line with backend cuda on the rig, and on a machine without a driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cuda.rig import open_rig
from tests.support.gguf_files import write_tiny_llama

from camelid.cli import doctor_machine
from camelid.cli.main import main
from camelid_native.cuda import backend, nvrtc, speed
from camelid_native.cuda.nvrtc import HIPRTC, NVRTC


@pytest.fixture(autouse=True)
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lets `cuda` name the rig."""
    monkeypatch.setenv("CAMELID_CACHE", str(tmp_path))
    monkeypatch.setattr(backend, "open_backend", open_rig)
    monkeypatch.setattr(speed, "COPY_BYTES", 1 << 20)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, n_layers=3, hidden=64, head_dim=32, ffn=96, context=256)
    return str(place)


def call(*words: str) -> Any:
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_doctor_runs_the_gate() -> None:
    (found,) = call("doctor", "--backend", "cuda", "--quick")["backends"]
    assert found["verdict"] == "passed" and "emulator" in found["device"]


def test_bench_has_the_device_s_yardsticks(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "copy_gbps", lambda device: 7.0)
    done = call("bench", path, "--backend", "cuda", "-p", "4", "-n", "2", "-r", "1")
    assert [(row["read_gbps"], row["gflops"]) for row in done["rows"]] == [(7.0, 32768.0)] * 2


def test_info_and_explain_know_the_devices(path: str) -> None:
    memory = call("info", path, "--memory", "--backend", "cuda", "-ngl", "2")["memory"]
    assert [(each["backend"], each["part"]) for each in memory["devices"]] == [
        ("cpu", "2 of 3 layers"), ("cuda", "1 of 3 layers and the head"),
    ]  # fmt: skip
    assert "norm_qkv" in call("explain", path, "--backend", "cuda")["plan"]


def test_the_extra_is_installed_if_a_compiler_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package of the folder `nvidia` does not install it."""
    monkeypatch.setattr(doctor_machine, "find_spec", lambda name: True)
    monkeypatch.setattr(nvrtc, "candidates", lambda api: iter(()))
    assert doctor_machine.extras()["cuda"] == "pip install 'camelid[cuda]'"
    for api in (NVRTC, HIPRTC):
        monkeypatch.setattr(nvrtc, "candidates", lambda each, api=api: iter(["libc.so.6"] * (each is api)))
        assert doctor_machine.extras()["cuda"] != "", "a library without a compiler's functions"
        with monkeypatch.context() as patch:
            patch.setattr(nvrtc, "_version_of", lambda *_: (12, 0))
            assert doctor_machine.extras()["cuda"] == ""
