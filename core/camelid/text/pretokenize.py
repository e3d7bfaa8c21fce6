"""Pre-tokenizers: how text is cut into words before byte-pair merges. One row a way to cut.

A row holds the regexes that the model publishes (its tokenizer.json; llama.cpp src/llama-vocab.cpp names the
rows), expanded to explicit code points. None nests a repeat in a repeat and every run is consumed by the
first or second alternative that scans it, so Python's engine, which does not recurse, is linear on them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from camelid.errors import UnsupportedModelError
from camelid.text.unicode_tables import compile_published

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# (?i:'s|…) written out, because re.IGNORECASE follows the interpreter's tables; ſ folds to s.
CONTRACTIONS = "'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
LLAMA3 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
ASCII_TRIPLE = "[0-9][0-9][0-9]"


@dataclass(frozen=True, slots=True)
class Splitter:
    """Regexes applied in turn, each to the pieces that the ones before it left."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is a token is taken whole, whatever the merges say
    add_bos: bool = False  # what the family does when the file does not say

    def split(self, text: str) -> list[str]:
        """Cut `text` into words; joined, they are `text` again."""
        words = [text] if text else []
        for pattern in self.patterns:
            rx = compile_published(pattern)
            words = [part for word in words for part in cut(rx, word)]
        return words


def cut(rx: re.Pattern[str], text: str) -> list[str]:
    """The matches of `rx` and the gaps between them, in order."""
    parts: list[str] = []
    end = 0
    for match in rx.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        parts.append(match.group())
        end = match.end()
    if end < len(text):
        parts.append(text[end:])
    return parts


def rows(names: str, splitter: Splitter) -> dict[str, Splitter]:
    return dict.fromkeys(names.split(), splitter)


# tokenizer.ggml.pre -> its row. Qwen's tokenizer.json also normalises to NFC, which GGUF cannot say;
# llama.cpp leaves it out, and so does this table.
SPLITTERS: dict[str, Splitter] = {
    **rows("gpt-2 phi-2 mpt olmo jais roberta-bpe", Splitter((GPT2,))),
    **rows("smollm starcoder refact codeshell exaone minerva-7b", Splitter((r"\p{N}", GPT2))),
    **rows("qwen2 stablelm2 deepseek-r1-qwen", Splitter((QWEN2,))),
    **rows(
        "llama-bpe llama3 llama-v3 falcon3 pixtral", Splitter((LLAMA3,), ignore_merges=True, add_bos=True)
    ),
    **rows("dbrx smaug-bpe glm4 chatglm-bpe", Splitter((LLAMA3,))),
    **rows("falcon", Splitter((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, ASCII_TRIPLE))),
    **rows("default", Splitter((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", ASCII_TRIPLE))),
    **rows(
        "deepseek-coder",
        Splitter(
            (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}")
        ),
    ),
}


def splitter(name: str) -> Splitter:
    """The row called `name`, as tokenizer.ggml.pre has it. Raises UnsupportedModelError."""
    if name not in SPLITTERS:
        known = sorted(SPLITTERS)
        raise UnsupportedModelError(
            f"pre-tokenizer {name!r:.80} is not known; known: {', '.join(known)}; "
            "add its regexes as a row of SPLITTERS in text/pretokenize.py",
            kind="pre-tokenizer",
            name=name,
            known=known,
        )
    return SPLITTERS[name]
