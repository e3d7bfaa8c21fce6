"""Control tokens that a file types as text: untrusted text never becomes such a token.

The oracle is the same vocabulary with each of the tokens typed as a control token: all ids must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.text.hf_families import FAMILIES, published
from tests.support.text.made import byte_level, rwkv, sentencepiece_bpe
from tests.support.text.texts import random_texts

from camelid.errors import TemplateError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.requests.chat import ChatTemplate
from camelid.text.templates.template import Template, compile_template
from camelid.text.to_gguf.tokenizer import tokenizer_metadata
from camelid.text.tokenizers.control_tokens import control_texts
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json
from camelid.text.tokenizers.pipeline import Pipeline
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf
from camelid.text.tokenizers.vocab import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from camelid.text.toolcalls.parts import CallStart, Reasoning

TYPES = (NORMAL, USER_DEFINED)
# Vocabulary of the shared data -> its end, begin, padding and infill tokens, by its publisher.
VOCABS = {
    "bert-bge": ["[PAD]", "[CLS]", "[SEP]", "[MASK]"],
    "deepseek-coder": [
        "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<pad>", "<|User|>", "<|Assistant|>", "<|EOT|>",
        "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>",
    ],
    "falcon": ["<|endoftext|>", ">>PREFIX<<", ">>SUFFIX<<", ">>MIDDLE<<"],
    "gpt-2": ["<|endoftext|>"],
    "llama-spm": ["<s>", "</s>"],
}  # fmt: skip
MARKERS = re.compile(r"<[^<>\s'\"]+>|\[/?[A-Z_]+\]")
TEXTS = random_texts(120, seed=19)


@pytest.fixture(scope="module")
def templates(shared: Path) -> dict[str, str]:
    paths = sorted((shared / "data" / "templates").glob("*.jinja"))
    return {path.stem: path.read_text("utf-8") for path in paths}


@cache
def stored(shared: Path, name: str) -> Mapping[str, Any]:
    return open_gguf(shared / "data" / "vocab" / f"{name}.gguf").metadata


def changed(metadata: Mapping[str, Any], markers: list[str], texts: set[str], kind: int) -> dict[str, Any]:
    """The metadata with more tokens, and one type for all of `texts`.

    Prefixes of a marker become tokens too: SentencePiece joins them letter by letter.
    """
    begun = {text[:end] for text in texts for end in range(2, len(text))}
    tokens, types = (metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type"))
    more = [token for token in [*markers, *sorted(begun)] if token not in set(tokens)]
    kinds = [*types, *[NORMAL] * len(more)]
    kinds = [kind if token in texts else old for token, old in zip([*tokens, *more], kinds, strict=True)]
    found = {**metadata, "tokenizer.ggml.tokens": [*tokens, *more], "tokenizer.ggml.token_type": kinds}
    if "tokenizer.ggml.scores" in metadata:
        found["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], *[1e6] * len(more)]
    return found


@cache
def compiled(source: str) -> Template:
    return compile_template(source)


def ids_of(tokenizer: Pipeline, texts: set[str]) -> set[int]:
    return {i for i, token in enumerate(tokenizer.vocab.tokens) if token in texts}


@pytest.mark.conformance
@pytest.mark.parametrize("name", VOCABS)
def test_text_never_becomes_a_control_token(name: str, shared: Path, templates: dict[str, str]) -> None:
    """All templates' markers are added to the vocabulary, and `.inp` holds llama.cpp's texts."""
    markers = sorted({marker for source in templates.values() for marker in MARKERS.findall(source)})
    control = {*VOCABS[name], *markers}
    sources = {f"tokenizer.chat_template.{key}": source for key, source in templates.items()}
    metadata = {**stored(shared, name), **sources, "general.architecture": "none"}
    oracle = tokenizer_from_gguf(changed(metadata, markers, control, CONTROL))
    ordinary = (shared / "data" / "vocab" / f"{name}.gguf.inp").read_bytes().decode()
    ids = ids_of(oracle, control)
    assert len(ids) == len(control) > 50
    spelled = [f"{text}a {text} b{text}{text}" for text in control]
    for kind in TYPES:
        ours = tokenizer_from_gguf(changed(metadata, markers, control, kind))
        for text in [*ordinary.split("\n__ggml_vocab_test__\n"), *spelled]:
            assert ours.encode(text) == oracle.encode(text), repr(text)
        for text in spelled:
            assert not ids & set(ours.encode(text)), text
            assert ours.encode(text, special=True) == oracle.encode(text, special=True)
            assert len(ids.intersection(ours.encode(text, special=True))) == 1, text
        assert ours.eos_ids == oracle.eos_ids
        for source in templates.values():
            check_conversation(ours, source, "".join(control), ids)


def check_conversation(ours: Pipeline, source: str, hostile: str, ids: set[int]) -> None:
    """The template's own tokens equal those of a harmless conversation, for any user text."""

    def written(content: str) -> list[int]:
        message = {"role": "user", "content": content}
        facts = {"bos_token": "", "eos_token": "", "strftime_now": lambda form: "today"}
        spans = compiled(source).render([message], add_generation_prompt=True, **facts)
        return [i for i in ours.encode_spans(spans) if i in ids]

    try:
        harmless = written("hi")
    except TemplateError:  # it needs tools
        return
    assert written(hostile) == harmless != []


@pytest.mark.conformance
def test_each_template_suffices_for_its_own_tokens(templates: dict[str, str]) -> None:
    for name, source in templates.items():
        comments = re.compile(r"\{#.*?#\}", re.DOTALL)
        markers = sorted(set(MARKERS.findall(comments.sub("", source))))
        for kind in (*TYPES, UNUSED):
            found = control_texts(markers, [kind] * len(markers), [], [source])
            assert found == set(markers), name
    assert len(templates) >= 12


def flipped(made: Any) -> Any:
    """The file with each special token typed as ordinary, except the unknown token."""
    added = [{**one, "special": one["content"] in ("<unk>", "[UNK]")} for one in made["added_tokens"]]
    return {**made, "added_tokens": added}


# A chat format that no row publishes.
WRITES = {"default": "{{ '[INST]' ~ messages[0].content }}<tool_call>{{ '[INST]</tool_call>' }}"}


@pytest.mark.conformance
@pytest.mark.parametrize("name", FAMILIES)
def test_a_tokenizer_json_with_ordinary_types_gives_equal_ids(name: str) -> None:
    made: Any = published(name)
    oracle, ours = (tokenizer_from_json(TokenizerFiles(each)) for each in (made, flipped(made)))
    assert any(one["special"] for one in made["added_tokens"])
    assert [oracle.is_control(i) for i in range(oracle.vocab_size)] == [
        ours.is_control(i) for i in range(ours.vocab_size)
    ]
    for text in TEXTS:
        for special in (False, True):
            assert ours.encode(text, special) == oracle.encode(text, special), repr(text)
    size = oracle.vocab_size
    try:
        want, got = (
            tokenizer_metadata(TokenizerFiles(each, chat_templates=WRITES), size).metadata
            for each in (made, flipped(made))
        )
    except UnsupportedModelError:  # beyond GGUF
        return
    assert got["tokenizer.ggml.token_type"] == want["tokenizer.ggml.token_type"]


def test_a_templates_text_is_a_control_token_in_a_directory_too() -> None:
    made: Any = published("qwen2")
    files = TokenizerFiles(made, chat_templates=WRITES)
    plain, ours = tokenizer_from_json(TokenizerFiles(made)), tokenizer_from_json(files)
    words = tokenizer_metadata(files, ours.vocab_size)
    calls = ids_of(ours, {"<tool_call>", "</tool_call>"})
    assert len(calls) == 2
    for tokenizer in (ours, tokenizer_from_gguf(words.metadata)):
        assert calls <= set(plain.encode("<tool_call></tool_call>"))
        assert not calls & set(tokenizer.encode("<tool_call></tool_call>"))
        assert calls == set(tokenizer.encode("<tool_call></tool_call>", special=True))
        assert tokenizer.encode("a tEST é") == plain.encode("a tEST é")


def test_a_config_alone_names_a_control_token() -> None:
    made: Any = flipped(published("gemma"))
    added = [*made["added_tokens"], {"id": 2000, "content": "STOP", "special": False}]
    stop = {"eos_token_id": [2, 2000], "pad_token_id": 2001}  # the padding is beyond the vocabulary
    ours = tokenizer_from_json(TokenizerFiles({**made, "added_tokens": added}, generation=stop), 2001)
    assert 2000 in ours.encode("STOP", special=True)
    assert 2000 not in ours.encode("STOP")


def test_merges_into_a_control_token_are_dropped() -> None:
    tokens = ["<unk>", "<", "s", ">", "<s", "<s>", "<s>s"]
    facts = {"merges": ["< s", "<s >", "<s> s"], "bos_token_id": 5, "add_space_prefix": False}
    stored = sentencepiece_bpe(tokens, [0.0] * 7, types=[UNKNOWN, *[NORMAL] * 6], **facts)
    assert (stored.encode("<s>s"), stored.encode("<s>s", special=True)) == ([4, 3, 2], [5, 2])
    made: Any = flipped(published("gemma"))
    merges = [*made["model"]["merges"], ["<", "s"], ["<s", ">"]]
    model = {**made["model"], "vocab": {**made["model"]["vocab"], "<s": 2000}, "merges": merges}
    files = TokenizerFiles({**made, "model": model})
    ways = [tokenizer_from_json(files), tokenizer_from_gguf(tokenizer_metadata(files, 2001).metadata)]
    assert [way.encode("<s>") for way in ways] == [[2000, ways[0].vocab.tokens.index(">")]] * 2


def test_ordinary_text_keeps_its_ids() -> None:
    lines = rwkv(["<s>", "\\n", "\\n\\n", "a"], eot_token_id=2)
    assert (lines.encode("a\n\na"), lines.eos_ids) == ([3, 2, 3], {2})
    facts = {"tokens": [*"a!<s>x[] ", "ab"], "merges": ["a b"], "padding_token_id": 1, "eos_token_id": 9}
    made = byte_level(facts["tokens"] + ["b"], ["a b"], types=[NORMAL] * 11)
    assert made.encode("ab!") == [9, 1]


def test_prose_of_a_template_is_no_control_token() -> None:
    """Words in a template, a list's checkbox, and HTML tags beside BOS and EOS."""
    words = ["user", "\n", "[x]", "<b>", "<0x0A>", "Human:", "->", "<s>", "</s>", "<bos>", "<eos>", "<|x|>"]
    words += ["<end>", "[last]", "['role']"]
    source = "{{ 'user' }}\n- [x] <b>Human:</b> -> <0x0A> {# <end> #}{{ messages[last].content['role'] }}"
    kinds = [USER_DEFINED] * len(words)
    assert control_texts(words, kinds, [], [source]) == {"<bos>", "<eos>", "<|x|>"}
    assert control_texts(["<s>", "</s>"], [USER_DEFINED] * 2, [], []) == {"<s>", "</s>"}
    assert control_texts(["<s>", "</s>", "[INST]"], [NORMAL] * 3, [1], []) == {"</s>"}
    twice = ["<|im_end|>"] * 2
    assert control_texts(twice, [CONTROL, NORMAL], [], []) == set()
    assert (
        control_texts(twice, [CONTROL, USER_DEFINED], [], [])
        == control_texts(twice, [3, 1], [1], [])
        != set()
    )


def test_a_parser_sees_the_markers_that_a_template_made_control_tokens() -> None:
    """Cria's file types <tool_call> as user-defined, and its template writes it."""
    gguf = open_gguf(Path(__file__).parents[3] / "core" / "camelid" / "data" / "cria.gguf")
    tokenizer = tokenizer_from_gguf(gguf.metadata)
    call = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    token_ids = tokenizer.encode(call, special=True)
    assert [tokenizer.is_control(i) for i in token_ids][:: len(token_ids) - 1] == [True, True]
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    chat = ChatTemplate.of(gguf, tokenizer)
    sink = chat.prompt([{"role": "user", "content": call}], tools=[tool]).answer(())
    text = "".join(map(sink.push, token_ids)) + sink.flush()
    parts = sink.take()
    assert (text, [part.name for part in parts if isinstance(part, CallStart)]) == ("", ["add"])
    assert not any(isinstance(part, Reasoning) for part in parts)
