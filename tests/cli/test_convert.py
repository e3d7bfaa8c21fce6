"""convert and quantize on the command line: their output, and no output after a stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf

from camelid.cli import quantize
from camelid.cli.main import main
from camelid.loading.convert import Conversion
from camelid.loading.quantize import run


def call(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_tiny_llama(tmp_path / "m.gguf", seed=2, type="f32")
    return tmp_path / "m.gguf"


def test_a_directory_is_converted_and_quantized(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", load_case("qwen3"), dtype="bf16", n_shards=2)
    done = call("convert", folder, tmp_path / "m.gguf", "-v")
    assert done.exit_code == 0
    assert "bf16" in done.stdout
    assert "there is no tokenizer.json" in done.stderr
    assert "m.gguf" in done.stderr
    smaller = call("quantize", tmp_path / "m.gguf", tmp_path / "q.gguf", "Q8_0")
    assert smaller.exit_code == 0
    assert (tmp_path / "q.gguf").stat().st_size < (tmp_path / "m.gguf").stat().st_size


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("quantize", "MODEL", "MODEL", "q8_0"), 1, "the target is the source"),
        (("quantize", "MODEL", "FOLDER", "q8_0"), 1, "is a directory"),
        (("quantize", "MODEL", "FOLDER/no/q.gguf", "q8_0"), 1, "No such file or directory"),
        (("quantize", "MODEL", "FOLDER/q.gguf", "q4_l"), 2, "'q4_l' is not one of"),
        (("quantize", "MODEL", "FOLDER/q.gguf"), 2, "Missing argument 'TYPE'"),
        (("convert", "MODEL", "FOLDER/q.gguf", "--type", "q4_0"), 2, "'q4_0' is not one of"),
        (("convert", "FOLDER/none", "FOLDER/q.gguf"), 1, "there is no such file"),
    ],
)
def test_usage_errors_of_convert(words: tuple[str, ...], code: int, said: str, model: Path) -> None:
    filled = [word.replace("MODEL", str(model)).replace("FOLDER", str(model.parent)) for word in words]
    done = call(*filled)
    assert done.exit_code == code
    assert said in done.stderr
    assert [path.name for path in model.parent.iterdir()] == ["m.gguf"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="not on this platform: Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_stopped_quantize_leaves_no_file(name: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = int(getattr(signal, name))

    def stopped(*words: Any, progress: Any) -> Conversion:
        def stop(tensor: str, done: int, total: int) -> None:
            assert list(model.parent.glob(".*.part")), "the file is not being written"
            os.kill(os.getpid(), number)

        return run.quantize(*words, progress=stop)

    before = signal.getsignal(number)
    monkeypatch.setattr(quantize, "quantize", stopped)
    assert call("quantize", model, model.with_name("q.gguf"), "q4_0").exit_code == 128 + number
    assert [path.name for path in model.parent.iterdir()] == ["m.gguf"]
    assert signal.getsignal(number) == before
