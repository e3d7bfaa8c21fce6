"""Tokenizers of every kind, and token ids that end within characters."""

from __future__ import annotations

import random

from tests.support.text.made import byte_level, rwkv, sentencepiece_bpe

from camelid.text.tokenizers.pipeline import Pipeline
from camelid.text.tokenizers.vocab import ALPHABET

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
BYTES = byte_level([*ALPHABET, "<|x|>"], types=[1] * 256 + [CONTROL])
TEXT = "aé漢😀\u0301\ufffd"
ALL_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["▁", "▁▁", "▁a", "a", "▁é", "é▁", "漢", "😀", "▁\ufffd"]
NAMED = ["<unk>", "<s>", "", "<tool>", " ", "[PAD]"]
NAMED_TYPES = [UNKNOWN, CONTROL, NORMAL, USER_DEFINED, USER_DEFINED, UNUSED]


def sentencepiece_like(**facts: object) -> Pipeline:
    tokens = [*NAMED, *PIECES, *ALL_BYTES]
    types = [*NAMED_TYPES, *[NORMAL] * len(PIECES), *[BYTE] * 256]
    return sentencepiece_bpe(tokens, [0.0] * len(tokens), types=types, **facts)


# One tokenizer of every kind; add new kinds here.
TOKENIZERS = {
    "byte-level": byte_level(
        [*ALPHABET, "Ã©", "æ¼", "Ġa", "Ġ", "<|x|>", " "], types=[*[1] * 260, CONTROL, USER_DEFINED]
    ),
    "sentencepiece": sentencepiece_like(),
    "sentencepiece without prefix": sentencepiece_like(add_space_prefix=False),
    "rwkv": rwkv(
        ["<s>", *(f"\\x{byte:02x}" for byte in range(256)), "\\xc3\\xa9", " a", "漢", "\\xe6\\xbc"],
        [CONTROL, *[NORMAL] * 260],
    ),
}


def some_ids(tokenizer: Pipeline, rng: random.Random) -> list[int]:
    """Ids of text, random ids, and bytes of characters one by one, mixed."""
    tokens = tokenizer.vocab.tokens
    pieces = {tokenizer.token_bytes(i): i for i in reversed(range(len(tokens)))}
    spelled = [pieces[bytes((byte,))] for byte in "".join(rng.choices(TEXT, k=2)).encode()]
    parts = [
        tokenizer.encode("".join(rng.choices(" aé漢😀", k=4))),
        rng.choices(range(len(tokens)), k=3),
        spelled,
        spelled[: rng.randrange(len(spelled))],
        rng.choices(range(min(12, len(tokens))), k=3),
    ]
    return [token_id for part in rng.sample(parts, 3) for token_id in part]
