"""-ngl on the command line: its values, the layers' devices, its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama
from tests.support.parity.adapters import need_driver

import camelid
from camelid.cli.main import main
from camelid.errors import BackendError, RequestError

COMMANDS = ("run", "chat", "bench", "perplexity")  # that load a model for a backend
NAMES = ("-ngl", "--gpu-layers", "--n-gpu-layers")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, n_layers=3, hidden=64, head_dim=16, ffn=96, context=512)
    return str(place)


def call(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, words, input=stdin)


def run(path: str, *words: str) -> Result:
    return call("run", path, "--raw", "-p", "the llama", "-n", "6", "--temp", "0", *words)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_it(command: str) -> None:
    text = " ".join(call(command, "--help").stdout.split())
    assert ", ".join(NAMES) in text and "the output head is the first of the K" in text


@pytest.mark.parametrize("word", ["-2", "-17", "some", "1.5", ""])
def test_invalid_numbers_of_layers(path: str, word: str) -> None:
    result = run(path, "-ngl", word)
    assert result.exit_code == 2
    assert f"{word!r} is not a number of layers; expected 0 or more, -1 or all" in result.stderr


@pytest.mark.parametrize("name", NAMES)
def test_zero_layers_is_cpu_alone(path: str, name: str) -> None:
    result = run(path, name, "0")
    assert result.exit_code == 0 and result.stdout == run(path, "--backend", "cpu").stdout
    assert "thread" in result.stderr and "which has all 3 layers" in result.stderr.splitlines()[0]


@pytest.mark.parametrize(("backend", "layers"), [("cpu", "2"), ("reference", "0"), ("reference", "all")])
def test_backends_without_a_gpu_are_refused(path: str, backend: str, layers: str) -> None:
    result = run(path, "--backend", backend, "-ngl", layers)
    assert result.exit_code == 2
    assert f"but backend '{backend}' is no GPU; leave the backend out or name one of webgpu" in result.stderr


def test_threads_apply_to_cpu(path: str) -> None:
    result = run(path, "--backend", "webgpu", "-ngl", "all", "-t", "1")
    assert result.exit_code == 1 and "backend 'webgpu' has no threads to set" in result.stderr


def test_a_missing_device_is_an_error_without_fallback(path: str) -> None:
    result = run(path, "-ngl", "2", "--adapter", "no such device")
    assert result.exit_code == 1 and "no adapter matches 'no such device'" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpu_layers": -2}, "gpu_layers is -2, expected a number of layers, or -1 for all 3 and the head"),
        ({"gpu_layers": "2"}, "gpu_layers is '2'"),
        ({"gpu_layers": True}, "gpu_layers is True"),
        ({"gpu_layers": 2, "backend": "null"}, "backend 'null' is no GPU"),
    ],
)
def test_load_refuses_the_same_values(path: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        camelid.load(path, **options)
    assert caught.value.field == "gpu_layers"


@pytest.mark.parity
@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ("2", ("1 of 3 layers and the head on webgpu (llvmpipe", "2 of 3 layers on cpu (", "0.256 kB a row")),
        ("1", ("the head on webgpu (llvmpipe", "3 of 3 layers on cpu (")),
        ("all", ("webgpu on llvmpipe", "which has all 3 layers")),
        ("99", ("webgpu on llvmpipe", "which has all 3 layers")),
    ],
)
def test_layers_on_a_gpu(path: str, layers: str, words: tuple[str, ...]) -> None:
    result = run(path, "-ngl", layers, "--adapter", need_driver("llvmpipe"))
    assert result.exit_code == 0 and result.stdout == run(path, "--backend", "cpu").stdout
    assert all(word in result.stderr.splitlines()[0] for word in words), result.stderr


@pytest.mark.parity
def test_threads_apply_to_the_other_layers(path: str) -> None:
    result = run(path, "-ngl", "2", "--adapter", need_driver("llvmpipe"), "-t", "1")
    assert result.exit_code == 0 and ", 1 thread)" in result.stderr


@pytest.mark.parity
def test_a_tape_needs_one_device(path: str, tmp_path: Path) -> None:
    tape = tmp_path / "tape.json"
    result = run(path, "-ngl", "2", "--adapter", need_driver("llvmpipe"), "--save-tape", str(tape))
    assert result.exit_code == 1 and "has no tape to record" in result.stderr


@pytest.mark.parity
def test_a_device_without_memory_names_its_stage(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BackendError("it is full", backend="webgpu")

    monkeypatch.setattr("camelid.backends.webgpu.backend.load_section", refuse)
    result = run(path, "-ngl", "2", "--adapter", need_driver("llvmpipe"))
    assert "stage 2 of 2, 1 of 3 layers and the head on webgpu: it is full" in result.stderr
    assert result.exit_code == 1
