"""The `tokenizers` package as a fast path for long texts, where it gives the same ids: byte-level BPE.

Other kinds are not handed over: its Unigram and WordPiece make control tokens of text that spells them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TypeAlias

from camelid.text.vocab import ALPHABET

# A stretch of text is worth the second copy of a vocabulary from this length on: below, building it (0.4 s at
# 150,000 tokens) takes longer than the words do here.
FAST_CHARS = 32_768

# What UTF-8 is made of: the other bytes need no token.
IN_UTF8 = [char for byte, char in enumerate(ALPHABET) if byte not in (0xC0, 0xC1) and byte < 0xF5]

Encode: TypeAlias = Callable[[str], list[int]]


def fast_byte_level(
    ids: Mapping[str, int], merges: Sequence[str], patterns: Sequence[str], *, ignore_merges: bool
) -> Encode | None:
    """Encodes a stretch of text without named tokens, split by these published regexes.

    None where the package is absent, as in a browser, or a byte has no token: it would be dropped.
    """
    if find_spec("tokenizers") is None or not all(char in ids for char in IN_UTF8):
        return None
    from tokenizers import Tokenizer

    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    ]
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {"type": "BPE", "vocab": ids, "merges": merges, "ignore_merges": ignore_merges}
    words = {"type": "Sequence", "pretokenizers": [*splits, plain]}
    made = Tokenizer.from_str(json.dumps({"version": "1.0", "pre_tokenizer": words, "model": model}))
    return lambda text: made.encode(text, add_special_tokens=False).ids
