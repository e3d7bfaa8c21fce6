"""adapter info, convert, export, merge and compose on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.adapter_files import last_rows, load_adapter_case, write_case
from tests.support.hf_models import nmse, write_hf
from tests.support.model.file_runs import load_gguf

from camelid.cli.main import main

CASE = load_adapter_case("qwen2_layer")


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["adapter", *(str(word) for word in words)])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_hf(tmp_path / "base", CASE.model)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write_case(tmp_path / "a", CASE)


def test_info(base: Path, adapter: Path) -> None:
    shown = call("info", adapter)
    assert shown.exit_code == 0, shown.output
    lines = {line[:18].strip(): line[18:].strip() for line in shown.stdout.splitlines()}
    assert lines["format"] == "peft" and lines["ranks"] == "4" and lines["scales"] == "1.5"
    assert lines["targets"] == "q_proj x 1, v_proj x 1" and "sha256" in lines
    facts = json.loads(call("info", adapter, "--json", "-m", base).stdout)
    assert facts["weights"] == 2 and len(facts["digest"]) == 64 and facts["invocation_tokens"] == []
    assert facts["parameters"] == sum(value.size for value in CASE.numbers().values())


def test_formats_have_one_digest(base: Path, adapter: Path, tmp_path: Path) -> None:
    assert call("convert", adapter, tmp_path / "b.gguf", "-m", base).exit_code == 0
    assert (
        call("export", tmp_path / "b.gguf", tmp_path / "c", "-m", base, "--peft", "--base", "x/y").exit_code
        == 0
    )
    assert call("export", tmp_path / "c", tmp_path / "d.bin", "-m", base, "--gguf").exit_code == 0
    paths = (adapter, tmp_path / "b.gguf", tmp_path / "c", tmp_path / "d.bin")
    facts = [json.loads(call("info", path, "--json", "-m", base).stdout) for path in paths]
    assert len({each["digest"] for each in facts}) == 1
    assert [each["format"] for each in facts] == ["peft", "gguf", "peft", "gguf"]
    assert facts[2]["base"] == "x/y"


def test_merge(base: Path, adapter: Path, tmp_path: Path) -> None:
    done = call("merge", base, f"{adapter}:2", f"{adapter}:-1", tmp_path / "m.gguf", "--type", "f32")
    assert done.exit_code == 0 and "m.gguf" in done.stderr, done.output
    assert nmse(last_rows(load_gguf(tmp_path / "m.gguf"), CASE.model), CASE.logits) <= 1e-10


def test_compose(adapter: Path, tmp_path: Path) -> None:
    done = call("compose", f"{adapter}:0.5", f"{adapter}:0.5", tmp_path / "b", "--method", "cat")
    assert done.exit_code == 0 and "ranks up to 8" in done.stderr, done.output
    again = call("compose", f"{adapter}:0.5", f"{adapter}:0.5", tmp_path / "c", "--rank", 2)
    assert again.exit_code == 0 and "ranks up to 2" in again.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("info", "FOLDER/x"), 1, "there is no such file"),
        (("info", "FOLDER/base"), 1, "neither adapter_model.safetensors nor"),
        (("convert", "ADAPTER", "FOLDER/b"), 2, "Missing option '-m'"),
        (("export", "ADAPTER", "FOLDER/b", "-m", "FOLDER/base"), 2, "give --peft or --gguf"),
        (("convert", "ADAPTER", "ADAPTER", "-m", "FOLDER/base"), 1, "the target is the source"),
        (("merge", "FOLDER/base", "FOLDER/m.gguf"), 2, "Missing argument"),
        (("merge", "FOLDER/base", "ADAPTER:nan", "FOLDER/m.gguf"), 2, "a finite number is expected"),
        (("merge", "FOLDER/base", "FOLDER/x:2", "FOLDER/m.gguf"), 1, "there is no such file"),
        (("compose", "ADAPTER", "FOLDER/b"), 2, "at least two adapters"),
        (
            ("compose", "ADAPTER", "ADAPTER", "FOLDER/b", "--density", "0.5"),
            2,
            "a density is for ties and dare",
        ),
        (("compose", "ADAPTER", "ADAPTER", "FOLDER/b", "--method", "cat", "--rank", "2"), 2, "use svd"),
    ],
)
def test_errors_are_one_line(
    words: tuple[str, ...], code: int, said: str, base: Path, adapter: Path, tmp_path: Path
) -> None:
    found = [word.replace("FOLDER", str(tmp_path)).replace("ADAPTER", str(adapter)) for word in words]
    done = call(*found)
    assert (done.exit_code, said in " ".join(done.stderr.split())) == (code, True), done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "base"], base
