"""The shipped file: metadata, vocabulary, tensors, size; training text equals its template's output."""

from itertools import islice
from pathlib import Path

import pytest

from cria import conversations

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")
tokenizer = pytest.importorskip("cria.tokenizer")

FILE = Path(__file__).resolve().parents[2] / "core/camelid/data/cria.gguf"
WANT = {
    "general.architecture": "llama", "general.name": "cria", "general.license": "mit", "general.file_type": 7,
    "llama.block_count": 4, "llama.context_length": 1024, "llama.embedding_length": 256,
    "llama.feed_forward_length": 768,
    "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.attention.key_length": 64,
    "llama.attention.value_length": 64, "llama.attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
    "general.sampling.temp": 0.0,
    "llama.rope.freq_base": 10000.0, "llama.rope.dimension_count": 64, "llama.vocab_size": 1088,
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": tokenizer.CHAT_TEMPLATE,
}  # fmt: skip


@pytest.fixture(scope="module")
def reader():
    if not FILE.exists():
        pytest.skip("core/camelid/data/cria.gguf is not made yet: python -m cria.export")
    return gguf.GGUFReader(FILE)


def test_metadata(reader):
    assert {key: reader.fields[key].contents() for key in WANT} == WANT


def test_vocabulary(reader):
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert len(tokens) == len(set(tokens)) == len(kinds) == 1088
    assert alphabet < set(tokens)
    assert {token for token, kind in zip(tokens, kinds, strict=True) if kind == 3} == set(tokenizer.SPECIALS)
    assert {token for token, kind in zip(tokens, kinds, strict=True) if kind == 4} == set(tokenizer.TAGS)
    assert set(kinds) == {1, 3, 4}
    own = {*alphabet, *tokenizer.SPECIALS, *tokenizer.TAGS}
    assert len(merges) == 1088 - len(own)
    assert {merge.replace(" ", "") for merge in merges} == set(tokens) - own
    assert tokens[reader.fields["tokenizer.ggml.eos_token_id"].contents()] == tokenizer.IM_END
    assert tokens[reader.fields["tokenizer.ggml.padding_token_id"].contents()] == tokenizer.END_OF_TEXT


def test_tensors(reader):
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert len(kinds) == 2 + 9 * 4
    assert {name: kind == "F32" for name, kind in kinds.items()} == {name: "norm" in name for name in kinds}
    assert {kind for kind in kinds.values() if kind != "F32"} == {"Q8_0"}


def test_size(reader):
    assert FILE.stat().st_size <= 4_000_000


def test_training_text_equals_the_template_output():
    for talk in islice(conversations.conversations("template"), 200):
        text = "".join(piece for piece, _ in tokenizer.pieces(talk)).removesuffix(tokenizer.END_OF_TEXT)
        assert text + "<|im_start|>assistant\n" == tokenizer.render(talk)
