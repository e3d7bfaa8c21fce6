"""A directory's tokenizer and its converted GGUF file: equal ids, or a reported loss."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.cria_hf import write_cria_hf
from tests.support.text.hf_families import FAMILIES, family, published
from tests.support.text.texts import random_texts
from tokenizers import Tokenizer

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.formats.gguf_writer import write_gguf
from camelid.formats.hf_config import open_hf
from camelid.loading.model_file import open_model, open_tokenizer
from camelid.text.to_gguf.tokenizer import TokenizerMetadata, tokenizer_metadata
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

ASCII = ["".join(random.Random(n).choices("aehlmnt <sTE>.19 ", k=20)) for n in range(60)]
TEXTS = [*random_texts(200, seed=21), *ASCII, "", " ", "a<|im_end|>b", "<s>a</s> b", "don't  stop [INST] x"]
# Family -> the losses that its conversion reports, and the affected texts.
LOST = {
    "qwen2": (["NFC normalization"], r"[^\t -~]"),
    "phi3": (
        ["the spaces beside them", "single_word", "as a space in added tokens"],
        r"<\||\[|don't|  |(^|>) ",
    ),
    "mistral": (["before the start of a text", "begins with a space"], r"<|\[|^[ ▁]"),
    "metaspace": (["begins with a space"], r"(^|>|\])[ ▁]"),
    "llama2": (["as a space in added tokens"], r"▁|   |^  "),
    "falcon": (["that digits are cut off"], r"(?!)"),
    "t5": (["at whitespace other than spaces", "float32"], r"[^\S ]|▁"),
    "xlm-r": (["spaces at the ends", "begins with a space", "spaces beside them"], r" (?=<|$)|▁|<mask>"),
    "mt5": (["of the character map", "spaces at the ends"], r"[^ -~]| (?=<|$)"),
    "bert": (["more than 100 characters", "▁ within a word"], r"▁|\S{100}"),
    "bert-cased": (["more than 100 characters", "▁ within a word"], r"▁|\S{100}"),
}
REFUSED = {
    "roberta": "puts a space before every text", "glm4": "is not .BOS. text", "clip": "end_of_word_suffix",
    "openai-gpt": "end_of_word_suffix", "subword-bpe": "continuing_subword_prefix", "albert": "'Lowercase'",
    "word-level": "'WordLevel'", "deepseek": "regexes have no name",
}  # fmt: skip


def words(name: str) -> TokenizerMetadata:
    made: Any = published(name)
    files = TokenizerFiles(made)
    return tokenizer_metadata(files, tokenizer_from_json(files).vocab_size)


@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - REFUSED.keys()))
def test_ids_are_equal_except_reported_losses(name: str, tmp_path: Path) -> None:
    found = words(name)
    told, touched = LOST.get(name, ([], r"(?!)"))
    assert all(part in " ".join(found.losses) for part in told)
    assert bool(told) == bool(found.losses)
    ways = tokenizer_from_json(TokenizerFiles(published(name))), tokenizer_from_gguf(stored(found, tmp_path))
    texts = [text for text in TEXTS if not re.search(touched, text)]
    assert len(texts) > 50
    for text in texts:
        for special in (False, True):
            first, second = (way.frame.around(way.encode(text, special)) for way in ways)
            assert first == second, repr(text)
        if name != "metaspace":  # its decoder keeps byte tokens unchanged
            assert ways[0].decode(first) == ways[1].decode(first)


def stored(found: TokenizerMetadata, folder: Path) -> dict[str, Any]:
    """The metadata in a file's form."""
    write_gguf(folder / "m.gguf", metadata=found.metadata, kinds=found.kinds, tensors=[])
    return open_gguf(folder / "m.gguf").metadata


def test_the_character_map_is_carried_over(tmp_path: Path) -> None:
    made = published("mt5")
    plain, ours = (tokenizer_from_json(TokenizerFiles(each)) for each in ({**made, "normalizer": None}, made))
    ways = ours, tokenizer_from_gguf(stored(words("mt5"), tmp_path))
    for text in ("\ufb01 lla\uff4d\uff41", "\u2460\u00bd\tx", "a\u00a0\u3000b", "e\u0301a"):
        assert ways[0].encode(text) == ways[1].encode(text), repr(text)
        assert ways[0].encode(text) != plain.encode(text)


def test_word_pieces_with_a_custom_prefix_stay_distinct() -> None:
    """A continuing token with ▁ would be spelled like one that begins words; [UNK] is the default."""
    made: Any = published("bert")
    vocab = {"##▁a": 0, "a": 1, "[CLS]": 2, "[UNK]": 3, "[SEP]": 4}
    model = {"type": "WordPiece", "vocab": vocab}
    found = tokenizer_metadata(TokenizerFiles({**made, "model": model, "added_tokens": []}), 5)
    assert tokenizer_from_gguf(found.metadata).encode("a b a") == [1, 3, 1]


@pytest.mark.parametrize("name", REFUSED)
def test_tokenizers_beyond_gguf_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"{REFUSED[name]}.*the directory itself works"):
        words(name)


@pytest.mark.parametrize("name", ["qwen2", "t5", "glm4", "mistral"])
def test_a_directory_encodes_by_its_tokenizer_json(name: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(published(name)))
    opened = asyncio.run(open_tokenizer(tmp_path))
    family(name).encode_special_tokens = False
    for text in ("e\u0301 <s>a  b</s>", "[INST] the llama"):
        assert opened.frame.around(opened.encode(text, special=True)) == family(name).encode(text).ids


def test_a_directory_with_weights_encodes_by_its_tokenizer_json_too(tmp_path: Path) -> None:
    """Not by its translation, which would lose Mistral's space handling."""
    folder = write_cria_hf(tmp_path / "hf")
    (folder / "tokenizer_config.json").write_text("{}")
    rows = asyncio.run(open_model(folder)).model.spec.vocab_size
    (folder / "tokenizer.json").write_text(json.dumps(made := mistral_of(rows)))
    opened = asyncio.run(open_model(folder)).tokenizer()
    assert opened and opened.vocab_size == rows
    judge = Tokenizer.from_str(json.dumps(made))
    for text in (" the", "<s>the", "the <s> the"):
        assert opened.encode(text, special=True) == judge.encode(text, add_special_tokens=False).ids


def mistral_of(n_tokens: int) -> dict[str, Any]:
    """The family's tokenizer without its last tokens and their merges."""
    made: Any = published("mistral")
    vocab = {token: i for token, i in made["model"]["vocab"].items() if i < n_tokens}
    merges = [pair for pair in made["model"]["merges"] if "".join(pair) in vocab]
    added = [item for item in made["added_tokens"] if item["id"] < n_tokens]
    return {**made, "added_tokens": added, "model": {**made["model"], "vocab": vocab, "merges": merges}}


def test_chat_templates_of_separate_files_take_precedence(tmp_path: Path) -> None:
    listed = [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    assert open_hf(tmp_path, with_weights=False).chat_templates == {"default": "d", "rag": "r"}
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "j"}))
    assert open_hf(tmp_path, with_weights=False).chat_templates == {"default": "j"}
    (tmp_path / "chat_template.jinja").write_text("f")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("t")
    assert open_hf(tmp_path, with_weights=False).chat_templates == {"default": "f", "tool_use": "t"}
