"""quantize --format mlx on the command line: output, wrong usage, and no output after a stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.hf_models import load_case, write_hf

from camelid.cli import quantize
from camelid.cli.main import main
from camelid.loading import convert_mlx as converting
from camelid.loading.convert import Conversion


def call(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_hf(tmp_path / "hf", load_case("llama31"), dtype="bf16", n_shards=2)


def test_a_directory_is_quantized_and_runs(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call("quantize", model, out, "Q4", "--format", "mlx", "--group-size", 32, "-v")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split() == ["q4", "15", "tensors", "bf16", "5", "tensors", "q8", "1", "tensors"]
    assert f"wrote {out}, " in done.stderr and "% of the source)" in done.stderr
    inspected = call("inspect", out)
    assert inspected.exit_code == 0 and "q4_1" in inspected.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("q4", "--format", "gguf"), 2, "--format gguf has no q4; choose one of f32, f16, bf16, q8_0"),
        (("q4",), 2, "or --format mlx"),
        (("q4_0", "--format", "mlx"), 2, "--format mlx has no q4_0; choose one of q2, q3"),
        (("q4_0", "--group-size", "32"), 2, "--group-size is for --format mlx"),
        (
            ("mxfp4", "--format", "mlx", "--group-size", "32"),
            2,
            "groups of mxfp4 always have 32 values; leave",
        ),
        (("q4", "--format", "mlx", "--group-size", "48"), 2, "no groups of 48 values; known: 32, 64, 128"),
        (("q7", "--format", "mlx"), 2, "'q7' is not one of"),
        (("q4", "--format", "onnx"), 2, "'onnx' is not one of 'gguf', 'mlx'"),
    ],
)
def test_wrong_usage_names_the_way_out(words: tuple[str, ...], code: int, said: str, model: Path) -> None:
    done = call("quantize", model, model.with_name("out"), *words)
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert [path.name for path in model.parent.iterdir()] == ["hf"]


def test_a_gguf_is_an_error_of_one_line(tmp_path: Path) -> None:
    done = call("quantize", "cria", tmp_path / "out", "q4", "--format", "mlx")
    assert done.exit_code == 1
    assert done.stderr.startswith("camelid: error: ") and "a GGUF has no config.json" in done.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="not on this platform: Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_stop_leaves_nothing(name: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = int(getattr(signal, name))

    def stopped(*words: Any, progress: Any, **options: Any) -> Conversion:
        def stop(tensor: str, done: int, total: int) -> None:
            assert list(model.parent.glob(".*.part")), "the directory is not being written"
            os.kill(os.getpid(), number)

        return converting.convert_mlx(*words, progress=stop, **options)

    monkeypatch.setattr(quantize, "convert_mlx", stopped)
    done = call("quantize", model, model.with_name("out"), "q4", "--format", "mlx")
    assert done.exit_code == 128 + number
    assert [path.name for path in model.parent.iterdir()] == ["hf"]
