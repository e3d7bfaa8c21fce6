"""Small tokenizers in published file formats, trained with `tokenizers` on random texts."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

from tests.support.text.texts import random_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, PreTokenizer, Split

from camelid.text.to_gguf.tokenizer import tokenizer_metadata
from camelid.text.tokenizers.hf.files import TokenizerFiles

# The published pattern.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+")
# Metadata -> the GGUF type: by key, else by the value's type.
KIND_OF = {
    str: "string", bool: "bool", int: "uint32",
    "tokens": "array[string]", "merges": "array[string]", "token_type": "array[int32]",
    "scores": "array[float32]", "chat_templates": "array[string]",
}  # fmt: skip
CONTROLS = ("<s>", "</s>", "<|im_end|>")
NAMED = ("<tool>", "   ")  # user-defined: matched in every text
LETTERS = "the llama and the alpaca walked over the mountain where the grass was green, and 12 stayed. "


def cuts(*steps: PreTokenizer) -> PreTokenizer:
    return pre_tokenizers.Sequence(list(steps))


def splits(*patterns: str) -> list[PreTokenizer]:
    return [Split(Regex(pattern), "isolated") for pattern in patterns]


BYTES_ONLY = ByteLevel(add_prefix_space=False, use_regex=False)
# tokenizer.ggml.pre -> the published pre_tokenizer.
BYTE_LEVEL: dict[str, PreTokenizer] = {
    "gpt-2": ByteLevel(add_prefix_space=False),
    "qwen2": cuts(*splits(QWEN2), BYTES_ONLY),
    "llama-bpe": cuts(*splits(LLAMA3), BYTES_ONLY),
    "dbrx": cuts(*splits(LLAMA3), BYTES_ONLY),
    "smollm": cuts(Digits(individual_digits=True), ByteLevel(add_prefix_space=False)),
    "deepseek-coder": cuts(*splits(*DEEPSEEK_CODER), Digits(individual_digits=True), BYTES_ONLY),
}


@cache
def byte_level(pre: str) -> Tokenizer:
    """Byte-level BPE of about 700 tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = BYTE_LEVEL[pre]
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=ByteLevel.alphabet(), show_progress=False, special_tokens=["<s>"]
    )
    made.train_from_iterator([LETTERS * 20, *random_texts(1500, seed=3)], trainer)
    if pre == "llama-bpe":  # has a token that no merge makes
        model = json.loads(made.to_str())["model"]
        vocab = {**model["vocab"], "Ġxyzzy": len(model["vocab"])}
        made.model = models.BPE(vocab, [tuple(pair) for pair in model["merges"]], ignore_merges=True)
    return with_added(made)


def with_added(made: Tokenizer) -> Tokenizer:
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROLS])
    made.add_tokens([AddedToken(t, special=False, normalized=False) for t in NAMED])
    return made


# Published normalizers that turn spaces into ▁, and True if ▁ is prepended to the text.
SPACES: dict[str, tuple[normalizers.Normalizer | None, PreTokenizer | None, bool]] = {
    "llama-2": (
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, True
    ),
    "mistral": (None, Metaspace(prepend_scheme="first", split=False), True),
    "no prefix": (None, Metaspace(prepend_scheme="never", split=False), False),
    "gemma": (normalizers.Replace(" ", "▁"), Split(" ", "merged_with_previous"), False),
}  # fmt: skip


def crowded(n: int, seed: int) -> list[str]:
    """Texts of few letters, in which many pairs overlap: the order of merges decides."""
    rng = random.Random(seed)
    return ["".join(rng.choices("aab cé", k=rng.randrange(4, 40))) for _ in range(n)]


@cache
def sentencepiece(spaces: str, complete: bool) -> Tokenizer:
    """BPE with byte_fallback. `complete`: merges are all pairs that make a token, best token first, as in
    files converted from SentencePiece; else the trained merges.
    """
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"]
    )
    trained.train_from_iterator(crowded(300, seed=2), trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    pieces = tokens[3:]
    vocab = {
        token: i for i, token in enumerate([*tokens[:3], *(f"<0x{b:02X}>" for b in range(256)), *pieces])
    }
    merges = [tuple(pair) for pair in model["merges"]]
    if complete:
        order = list(dict.fromkeys(left + right for left, right in merges))
        ways = [(t[:i], t[i:]) for t in order for i in range(1, len(t))]
        merges = [way for way in ways if way[0] in pieces and way[1] in pieces]
    made = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    normalizer, pre, _ = SPACES[spaces]
    if normalizer:
        made.normalizer = normalizer
    if pre:
        made.pre_tokenizer = pre
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    made.add_tokens([AddedToken("▁▁", special=False, normalized=False)])
    return made


def published(made: Tokenizer, **changes: Any) -> dict[str, Any]:
    """The tokenizer.json, with some top-level values changed."""
    return {**json.loads(made.to_str()), **changes}


def read(
    tokenizer: Any,
    tokenizer_config: Any = None,
    *,
    special_tokens: Any = None,
    config: Any = None,
    generation: Any = None,
    vocab_size: Any = None,
    chat_templates: Any = None,
) -> dict[str, Any]:
    """The metadata without the common key prefix; also checks the values' kinds."""
    size = n_tokens(tokenizer) if vocab_size is None else vocab_size
    beside = (tokenizer_config, special_tokens, config, generation, chat_templates)
    words = tokenizer_metadata(TokenizerFiles(tokenizer, *(value or {} for value in beside)), size)
    facts, kinds = words.metadata, words.kinds
    assert facts.keys() == kinds.keys()
    short = {key.removeprefix("tokenizer.").removeprefix("ggml."): key for key in facts}
    for name, key in short.items():
        assert kinds[key] == (KIND_OF[name] if name in KIND_OF else KIND_OF[type(facts[key])])
    return {name: facts[key] for name, key in short.items()}


def n_tokens(tokenizer: Any) -> int:
    ids = {*tokenizer["model"]["vocab"].values(), *(item["id"] for item in tokenizer["added_tokens"])}
    return max(ids) + 1
