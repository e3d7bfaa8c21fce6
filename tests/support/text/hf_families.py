"""Small tokenizers in the configurations of model families, trained with `tokenizers` on random texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tests.support.text import charsmaps
from tests.support.text.texts import random_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers as train
from tokenizers.normalizers import NFC, NFKD, Lowercase, Prepend, Replace, StripAccents
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, Punctuation, Split, WhitespaceSplit

TEXTS = [
    "the llama and the alpaca walked over the mountain where the grass was green, and 12 stayed. " * 20,
    *random_texts(1000, seed=3),
]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"{1,3}", "")
DEEPSEEK = (
    "[\r\n]",
    "\\s?\\p{L}+",
    "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "\\s+$",
    "[一-龥ࠀ-一가-퟿]+",
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
PLAIN = ByteLevel(add_prefix_space=False, use_regex=False)
SPACED = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def special(*names: str, **flags: bool) -> list[AddedToken]:
    return [AddedToken(name, special=True, normalized=False, **flags) for name in names]


def user(*names: str, **flags: bool) -> list[AddedToken]:
    return [AddedToken(name, special=False, **{"normalized": False, **flags}) for name in names]


def sequence(*steps: Any) -> Any:
    return pre_tokenizers.Sequence(list(steps))


def template(made: Tokenizer, single: str) -> Any:
    names = {part for part in single.split() if part != "$A"}
    ids = [(name, made.get_vocab()[name]) for name in sorted(names)]
    return processors.TemplateProcessing(single=single, special_tokens=ids)


def byte_level(
    pre: Any, added: Sequence[AddedToken], *, normalizer: Any = None, frame: str = "$A", **model: Any
) -> Tokenizer:
    """Byte-level BPE."""
    made = Tokenizer(models.BPE(**model))
    made.normalizer, made.pre_tokenizer, made.decoder = normalizer, pre, decoders.ByteLevel()
    suffix = {"end_of_word_suffix": model["end_of_word_suffix"]} if "end_of_word_suffix" in model else {}
    unknown = [model["unk_token"]] if "unk_token" in model else []
    trainer = train.BpeTrainer(
        vocab_size=600, initial_alphabet=ByteLevel.alphabet(), special_tokens=unknown, show_progress=False,
        **suffix,
    )  # fmt: skip
    made.train_from_iterator(TEXTS, trainer)
    made.add_tokens(list(added))
    made.post_processor = template(made, frame)
    return made


def sentencepiece(
    normalizer: Any, pre: Any, decoder: Any, added: Sequence[AddedToken], *, frame: str = "<s> $A"
) -> Tokenizer:
    """BPE with byte fallback, as converted from SentencePiece."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = Replace(" ", "▁")
    trained.train_from_iterator(TEXTS, train.BpeTrainer(vocab_size=900, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens = [*first, *(t for t in sorted(model["vocab"], key=model["vocab"].get) if t not in first)]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(pair) for pair in model["merges"]]
    made = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer, made.pre_tokenizer, made.decoder = normalizer, pre, decoder
    made.add_tokens([*special("<unk>", "<s>", "</s>"), *added])
    made.post_processor = template(made, frame)
    return made


def unigram(normalizer: Any, pre: Any, frame: str, added: Sequence[AddedToken] = ()) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer, made.decoder = normalizer, pre, decoders.Metaspace()
    specials = ["<pad>", "</s>", "<unk>", "<s>"]
    trainer = train.UnigramTrainer(
        vocab_size=500, special_tokens=specials, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator([text for text in TEXTS if text.isascii()], trainer)
    made.add_tokens([*special(*specials), *added])
    made.post_processor = template(made, frame)
    return made


def word_piece(*, lowercase: bool) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = train.WordPieceTrainer(vocab_size=900, special_tokens=specials, show_progress=False)
    made.train_from_iterator(TEXTS, trainer)
    made.post_processor = template(made, "[CLS] $A [SEP]")
    return made


def roberta() -> Tokenizer:
    made = byte_level(ByteLevel(add_prefix_space=True), special("<s>", "</s>"))
    made.add_tokens(special("<mask>", lstrip=True))
    ids = made.get_vocab()
    made.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
    return made


def clip() -> Tokenizer:
    pre = sequence(Split(Regex(CLIP), "removed", invert=True), ByteLevel(add_prefix_space=False))
    forms = normalizers.Sequence([NFC(), Replace(Regex(r"\s+"), " "), Lowercase()])
    names = [AddedToken("<|startoftext|>", special=True, normalized=True), *special("<|endoftext|>")]
    frame = "<|startoftext|> $A <|endoftext|>"
    words: Any = {"end_of_word_suffix": "</w>", "unk_token": "<|endoftext|>"}
    return byte_level(pre, names, normalizer=forms, frame=frame, **words)


def openai_gpt() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder("</w>")
    trainer = train.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False,
        limit_alphabet=300,
    )  # fmt: skip
    made.train_from_iterator(TEXTS, trainer)
    return made


def subword_bpe() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=False))
    made.pre_tokenizer, made.decoder = WhitespaceSplit(), decoders.WordPiece(cleanup=False)
    trainer = train.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>"], continuing_subword_prefix="##", show_progress=False,
        limit_alphabet=300,
    )  # fmt: skip
    made.train_from_iterator(TEXTS, trainer)
    return made


def word_level() -> Tokenizer:
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([NFKD(), StripAccents(), normalizers.Strip()])
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = train.WordLevelTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False)
    made.train_from_iterator(TEXTS, trainer)
    return made


LLAMA2 = normalizers.Sequence([Prepend("▁"), Replace(" ", "▁")])
STRIPPED = decoders.Sequence([*SPACED, decoders.Strip(" ", 1, 0)])
CONTROLS = special("<|im_start|>", "<|im_end|>")
FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": lambda: byte_level(ByteLevel(add_prefix_space=False), special("<|endoftext|>")),
    "roberta": roberta,
    "llama3": lambda: byte_level(
        sequence(Split(Regex(LLAMA3), "isolated"), PLAIN), [*CONTROLS, *special("<s>")],
        frame="<s> $A", ignore_merges=True,
    ),
    "qwen2": lambda: byte_level(
        sequence(Split(Regex(QWEN2), "isolated"), PLAIN),
        [*CONTROLS, *user("<tool_call>", "</tool_call>"), *user("é", "tEST", normalized=True)],
        normalizer=NFC(),
    ),
    "glm4": lambda: byte_level(
        sequence(Split(Regex(LLAMA3), "removed", invert=True), PLAIN),
        [*special("[gMASK]", "<sop>"), *user("<|", single_word=True)], frame="[gMASK] <sop> $A",
    ),
    "starcoder": lambda: byte_level(
        sequence(Digits(individual_digits=True), ByteLevel(add_prefix_space=False)),
        special("<|endoftext|>", "<s>"),
    ),
    "falcon": lambda: byte_level(
        sequence(
            Punctuation("contiguous"), ByteLevel(add_prefix_space=False), Digits(individual_digits=False),
            Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ),
        special("<|endoftext|>"),
    ),
    "deepseek": lambda: byte_level(
        sequence(
            *(Split(Regex(regex), "isolated") for regex in DEEPSEEK), Digits(individual_digits=True), PLAIN
        ),
        [*special("<｜begin▁of▁sentence｜>"), *user("<think>", normalized=True)],
        normalizer=normalizers.Sequence([]), frame="<｜begin▁of▁sentence｜> $A",
    ),
    "bloom": lambda: byte_level(sequence(Split(Regex(BLOOM), "isolated"), PLAIN), special("<s>", "</s>")),
    "clip": clip,
    "llama2": lambda: sentencepiece(LLAMA2, None, STRIPPED, user("▁▁▁")),
    "phi3": lambda: sentencepiece(
        LLAMA2, None, STRIPPED,
        [*special("<|im_end|>", rstrip=True), *special("[INST]", lstrip=True, rstrip=True),
         *user("don't", single_word=True), *user("  ", rstrip=True)],
    ),
    "mistral": lambda: sentencepiece(
        None, Metaspace(prepend_scheme="first", split=False), STRIPPED, special("[INST]")
    ),
    "metaspace": lambda: sentencepiece(
        None, Metaspace(prepend_scheme="always", split=True), decoders.Metaspace(), special("[INST]")
    ),
    "gemma": lambda: sentencepiece(
        Replace(" ", "▁"), Split(" ", "merged_with_previous"), decoders.Sequence(SPACED),
        [*special("<|im_end|>"), *user("\n\n", "   ")],
    ),
    "t5": lambda: unigram(None, sequence(WhitespaceSplit(), Metaspace()), "$A </s>"),
    "xlm-r": lambda: unigram(
        Replace(Regex(" {2,}"), " "), Metaspace(), "<s> $A </s>", special("<mask>", lstrip=True)
    ),
    "mt5": lambda: unigram(
        normalizers.Sequence(
            [normalizers.Precompiled(charsmaps.published("nmt_nfkc")), Replace(Regex(" {2,}"), " ")]
        ),
        Metaspace(), "$A </s>",
    ),
    "albert": lambda: unigram(
        normalizers.Sequence([Replace("``", '"'), Replace("''", '"'), NFKD(), StripAccents(), Lowercase()]),
        Metaspace(), "<s> $A </s>",
    ),
    "bert": lambda: word_piece(lowercase=True),
    "bert-cased": lambda: word_piece(lowercase=False),
    "openai-gpt": openai_gpt,
    "subword-bpe": subword_bpe,
    "word-level": word_level,
}  # fmt: skip


@cache
def family(name: str) -> Tokenizer:
    """A family's tokenizer, cached. Tests may set its `encode_special_tokens`."""
    return FAMILIES[name]()


@cache
def published(name: str) -> dict[str, Any]:
    """The family's tokenizer.json."""
    return json.loads(family(name).to_str())
