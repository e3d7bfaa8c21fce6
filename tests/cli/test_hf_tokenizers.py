"""Directories with tokenizers other than BPE, on the command line: they run; conversion reports
every loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.hf_models import load_case, write_hf
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from camelid.cli.main import main

LETTERS = "abcdefghijklmnopqrstuvwxyz.,"
TEXT = "a llama, na ma."


def call(*words: object) -> Result:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


def unigram() -> Tokenizer:
    scores = [*((char, -4.0) for char in f"▁{LETTERS}"), ("▁lla", -5.5), ("ma", -5.0)]
    made = Tokenizer(models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *scores], 0, False))
    made.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return special(made, "<s>", "</s>")


def word_piece() -> Tokenizer:
    names = ["[UNK]", "[CLS]", "[SEP]", *LETTERS, *(f"##{char}" for char in LETTERS), "##ma"]
    made = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return special(made, "[CLS]", "[SEP]")


def word_level() -> Tokenizer:
    names = ["[UNK]", "[CLS]", "[SEP]", "a", "llama", ",", "."]
    made = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return special(made, "[CLS]", "[SEP]")


def special(made: Tokenizer, opens: str, ends: str) -> Tokenizer:
    made.add_special_tokens([opens, ends])
    made.post_processor = processors.TemplateProcessing(
        single=f"{opens} $A {ends}", special_tokens=[(name, made.get_vocab()[name]) for name in (opens, ends)]
    )
    return made


MADE: dict[str, Callable[[], Tokenizer]] = {
    "Unigram": unigram, "WordPiece": word_piece, "WordLevel": word_level,
}  # fmt: skip
LOSSES = {
    "Unigram": ["begins with a space or ▁", "spaces at the ends of a text"],
    "WordPiece": ["more than 100 characters", "▁ within a word of the text"],
}


def written(folder: Path, kind: str) -> Path:
    write_hf(folder, load_case("llama31"))
    (folder / "tokenizer.json").write_text(MADE[kind]().to_str())
    return folder


def ids_of(model: Path) -> list[int]:
    return json.loads(call("tokenize", model, TEXT, "--json").stdout)


@pytest.mark.e2e
@pytest.mark.parametrize("kind", MADE)
def test_a_directory_runs_and_shows_its_kind(kind: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "hf", kind)
    assert ids_of(folder) == MADE[kind]().encode(TEXT, add_special_tokens=False).ids
    assert call("run", folder, "-p", TEXT, "-n", 4, "--backend", "reference").stdout
    for command in ("info", "inspect"):
        tokenizer = json.loads(call(command, folder, "--json").stdout)["tokenizer"]
        assert tokenizer == {"kind": kind, "n_tokens": MADE[kind]().get_vocab_size(), "reason": None}


@pytest.mark.e2e
@pytest.mark.parametrize("kind", LOSSES)
def test_conversion_reports_each_loss_and_keeps_the_ids(kind: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "hf", kind)
    notes = [
        line for line in call("convert", folder, tmp_path / "m.gguf").stderr.splitlines() if "note: " in line
    ]
    assert len(notes) == len(LOSSES[kind])
    assert all(said in note for said, note in zip(LOSSES[kind], notes, strict=True))
    assert ids_of(tmp_path / "m.gguf") == ids_of(folder)


def test_tokenizers_beyond_gguf_are_not_converted(tmp_path: Path) -> None:
    folder = written(tmp_path / "hf", "WordLevel")
    done = CliRunner().invoke(main, ["convert", str(folder), str(tmp_path / "m.gguf")])
    assert done.exit_code == 1
    assert "'WordLevel' cannot be written as GGUF" in done.stderr
    assert "the directory itself works" in done.stderr
    assert not (tmp_path / "m.gguf").exists()


def test_an_unsupported_tokenizer_states_the_reason(tmp_path: Path) -> None:
    folder = written(tmp_path / "hf", "WordLevel")
    made = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**made, "normalizer": {"type": "Rot13"}}))
    assert "unsupported: " in call("info", folder).stdout
    assert "'Rot13'" in json.loads(call("inspect", folder, "--json").stdout)["tokenizer"]["reason"]
