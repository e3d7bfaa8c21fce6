"""The `tokenizers` package as a fast path for long texts of byte-level BPE, with the same ids.

Other kinds do not use it: its Unigram and WordPiece make control tokens from text that spells them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from typing import TypeAlias

from camelid.text.tokenizers.merge import halves
from camelid.text.tokenizers.vocab import ALPHABET

# The text length from which a second copy of the vocabulary pays off: building the copy takes 0.4 s at
# 150,000 tokens.
FAST_CHARS = 32_768

# The bytes that occur in UTF-8; the other bytes need no token.
IN_UTF8 = [char for byte, char in enumerate(ALPHABET) if byte not in (0xC0, 0xC1) and byte < 0xF5]

Split: TypeAlias = Callable[[str], Iterable[str]]
Encode: TypeAlias = Callable[[str], list[int]]


def fast_byte_level(
    ids: Mapping[str, int], merges: Sequence[str], split: Split, *, ignore_merges: bool
) -> Encode | None:
    """An encoder of text without named tokens: `split` cuts it, the package merges each distinct word once.

    The package's own splitting is not used, since its regex engine backtracks: a megabyte of digits would
    take hours. None if the package is missing, as in a browser, or if a byte has no token, which it would
    drop.
    """
    if find_spec("tokenizers") is None or not all(char in ids for char in IN_UTF8):
        return None
    from tokenizers import Tokenizer

    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    pairs = [halves(pair) for pair in merges]
    model = {"type": "BPE", "vocab": ids, "merges": pairs, "ignore_merges": ignore_merges}
    made = Tokenizer.from_str(json.dumps({"version": "1.0", "pre_tokenizer": plain, "model": model}))

    def encode(text: str) -> list[int]:
        words = list(split(text))
        distinct = dict.fromkeys(words)
        found = made.encode(list(distinct), is_pretokenized=True, add_special_tokens=False)
        by_word: dict[int | None, list[int]] = {}
        for token_id, word in zip(found.ids, found.word_ids, strict=True):
            by_word.setdefault(word, []).append(token_id)
        # Every word has tokens, since every byte has one.
        ids_of = dict(zip(distinct, by_word.values(), strict=True))
        return list(chain.from_iterable(map(ids_of.__getitem__, words)))

    return encode
