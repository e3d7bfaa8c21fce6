"""The pre-tokenizer of a tokenizer.json as GGUF fields: tokenizer.ggml.model, .pre and .add_space_prefix.

GGUF names a pre-tokenizer where tokenizer.json writes out its regexes, so the regexes are compared with those
of tokenizers/pretokenize.py. Steps that GGUF cannot express are refused, except NFC normalization before
byte-level BPE, which converters and llama.cpp drop.
Source: huggingface/tokenizers, docs of `normalizers` and `pre_tokenizers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from camelid.errors import UnsupportedModelError
from camelid.text.to_gguf.losses import WAY_OUT, not_in_gguf
from camelid.text.tokenizers.hf.regexes import canonical
from camelid.text.tokenizers.hf.values import SHOWN, SPACE, Json, flag, mapping, steps, typed
from camelid.text.tokenizers.pretokenize import SPLITTERS
from camelid.text.tokenizers.published import GPT2, LLAMA3, QWEN2

T = TypeVar("T")

# The name that is written if several names stand for the same pre-tokenizer.
PREFERRED = ("gpt-2", "qwen2", "llama-bpe", "dbrx", "smollm", "falcon", "tekken", "gpt-4o", "deepseek-llm")
# Falcon's steps, in order. GGUF's "falcon" has no Digits step, which treats ² and similar characters of the
# byte alphabet as digits. Merges learned with these steps join no digit with other text.
FALCON: tuple[tuple[str, Json], ...] = (
    ("Punctuation", {"behavior": "Contiguous"}),
    ("ByteLevel", {"add_prefix_space": False, "use_regex": True}),
    ("Digits", {"individual_digits": False}),
    ("Split", {"pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}),
)
FALCON_LOSS = "GGUF cannot express that digits are cut off; merges of digits with other text would apply"
COVERING = {GPT2, LLAMA3, QWEN2}  # regexes that match every character, so no gaps are left to keep or drop


@dataclass(frozen=True, slots=True)
class Splitting:
    """The GGUF fields of a pre-tokenizer.

    `splits_words`: no token extends over the start of a word. `losses`: one sentence per loss.
    """

    model: str
    pre: str
    add_space_prefix: bool | None = None
    splits_words: bool = False
    losses: tuple[str, ...] = ()


def read_splitting(tokenizer: Json, model: Json) -> Splitting:
    """The pre-tokenizer of a tokenizer.json with this BPE model.

    Raises ModelFormatError for a value of a wrong type, UnsupportedModelError for a step without a GGUF name.
    """
    normalizers = steps(tokenizer, "normalizer", "normalizers")
    cuts = steps(tokenizer, "pre_tokenizer", "pretokenizers")
    if not normalizers and _is_falcon(cuts) and not flag(model, "ignore_merges"):
        return Splitting("gpt2", "falcon", losses=(FALCON_LOSS,))
    if any(kind == "ByteLevel" for kind, _ in cuts):
        return Splitting("gpt2", _byte_level_name(normalizers, cuts, flag(model, "ignore_merges")))
    if flag(model, "byte_fallback"):
        return _sentencepiece(normalizers, cuts)
    not_in_gguf(
        "BPE", "is neither byte-level nor has byte_fallback, so some texts would have no tokens", model
    )


def _is_falcon(cuts: list[tuple[str, Json]]) -> bool:
    defaults: Json = {"use_regex": True}
    steps = [(kind, {**defaults, **step}) for kind, step in cuts]
    return [kind for kind, _ in steps] == [kind for kind, _ in FALCON] and all(
        step.get(key) == value
        for (_, step), (_, expected) in zip(steps, FALCON, strict=True)
        for key, value in expected.items()
    )


def _byte_level_name(
    normalizers: list[tuple[str, Json]], cuts: list[tuple[str, Json]], ignore_merges: bool
) -> str:
    for kind, step in normalizers:
        if kind != "NFC":
            not_in_gguf("normalizer", "has no name in GGUF beside byte-level BPE", step)
    if [kind for kind, _ in cuts].index("ByteLevel") != len(cuts) - 1:
        not_in_gguf("pre-tokenizer", "has steps after ByteLevel", cuts[-1][1])
    patterns = tuple(p for kind, step in cuts for p in row_of(BYTE_LEVEL, kind)(step))
    same = {name: row for name, row in SPLITTERS.items() if tuple(map(canonical, row.patterns)) == patterns}
    fitting = [name for name, row in same.items() if row.ignore_merges == ignore_merges]
    if fitting:
        return next((name for name in PREFERRED if name in fitting), fitting[0])
    _refuse_regexes(patterns, ignore_merges, list(same))


def _refuse_regexes(patterns: Iterable[str], ignore_merges: bool, same: list[str]) -> NoReturn:
    shown = " then ".join(patterns)[:SHOWN]
    hint = f" (as in {', '.join(same)}, except for ignore_merges)" if same else ""
    raise UnsupportedModelError(
        f"the pre-tokenizer's regexes have no name: {shown!r}, ignore_merges {ignore_merges}{hint}; "
        f"add them as a row of SPLITTERS in text/tokenizers/pretokenize.py; {WAY_OUT}",
        kind="pre-tokenizer",
        name=shown,
        known=sorted(SPLITTERS),
    )


def _byte_level(step: Json) -> tuple[str, ...]:
    if flag(step, "add_prefix_space", default=True):
        not_in_gguf("pre-tokenizer", "puts a space before every text", step)
    return (GPT2,) if flag(step, "use_regex", default=True) else ()


def _split(step: Json) -> tuple[str, ...]:
    pattern = mapping(step.get("pattern"), "pre_tokenizer.pattern")
    if "Regex" not in pattern:
        not_in_gguf("pre-tokenizer", "splits at a fixed string, which no known splitter does", step)
    regex = canonical(typed(pattern["Regex"], str, "pre_tokenizer.pattern.Regex"))
    way = (step.get("behavior"), flag(step, "invert"))
    if way != ("Isolated", False) and not (way == ("Removed", True) and regex in COVERING):
        not_in_gguf("pre-tokenizer", "drops or joins pieces, which no known splitter does", step)
    return (regex,)


def _digits(step: Json) -> tuple[str, ...]:
    return (r"\p{N}" if flag(step, "individual_digits") else r"\p{N}+",)


BYTE_LEVEL: dict[str, Callable[[Json], tuple[str, ...]]] = {
    "ByteLevel": _byte_level,
    "Split": _split,
    "Digits": _digits,
}


def _sentencepiece(normalizers: list[tuple[str, Json]], cuts: list[tuple[str, Json]]) -> Splitting:
    """SentencePiece style: spaces become ▁, often with one ▁ in front; words are not cut."""
    found = [row_of(SENTENCEPIECE, kind)(step) for kind, step in (*normalizers, *cuts)]
    effects = {key: value for step in found for key, value in step.items() if value}
    if not effects.get("spaces"):
        not_in_gguf("normalizer", f"does not write {SPACE} for spaces, which is GGUF's kind 'llama'", effects)
    return Splitting("llama", "default", "prefix" in effects, "splits_words" in effects)


def prepend(step: Json) -> dict[str, bool]:
    """A step that puts ▁ in front of a text."""
    if step.get("prepend") != SPACE:
        not_in_gguf("normalizer", f"puts another text than {SPACE} before a text", step)
    return {"prefix": True}


def _replace(step: Json) -> dict[str, bool]:
    if step.get("pattern") != {"String": " "} or step.get("content") != SPACE:
        not_in_gguf("normalizer", f"does not replace spaces by {SPACE}", step)
    return {"spaces": True}


def metaspace(step: Json) -> dict[str, bool]:
    """The effects of a Metaspace step: ▁ for spaces, ▁ in front, cuts before ▁."""
    if step.get("replacement", SPACE) != SPACE:
        not_in_gguf("pre-tokenizer", f"does not write {SPACE} for a space", step)
    old = "always" if flag(step, "add_prefix_space", default=True) else "never"
    scheme = typed(step.get("prepend_scheme", old), str, "pre_tokenizer.prepend_scheme")
    split = flag(step, "split", default=True)
    return {"spaces": True, "prefix": scheme != "never", "splits_words": split}


def _space_split(step: Json) -> dict[str, bool]:
    """Gemma's file splits at spaces after it has replaced them all, which has no effect."""
    if step.get("pattern") != {"String": " "}:
        not_in_gguf("pre-tokenizer", "cuts words, which GGUF's kind 'llama' does not", step)
    return {}


SENTENCEPIECE: dict[str, Callable[[Json], dict[str, bool]]] = {
    "Prepend": prepend,
    "Replace": _replace,
    "Metaspace": metaspace,
    "Split": _space_split,
}


def row_of(table: Mapping[str, T], kind: str) -> T:
    """The row of a step's kind. Raises UnsupportedModelError."""
    if kind in table:
        return table[kind]
    raise UnsupportedModelError(
        f"the tokenizer's step {kind[:SHOWN]!r} has no name in GGUF; known here: {', '.join(table)}; "
        f"{WAY_OUT}",
        kind="tokenizer",
        name=kind,
        known=sorted(table),
    )
