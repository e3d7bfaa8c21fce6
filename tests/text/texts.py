"""Texts that are hard to cut: seeded, of many kinds."""

from __future__ import annotations

import random

ALPHABETS = (
    "abcXYZ", "éßÑœſİıΣ", "012²½٣๓Ⅷ𝟙", " ", "  \t", "\n\r", "'", "'s't're've'm'll'd'S'LL'Ve'ſ",
    "\u00a0\u2003\u3000\u0085\u1680\x0b\x1c\u200b", ".,!?-_/\\\"«»、。", "$+<=>^~|`", "😀👩‍👩‍👧🏽🇺🇳",
    "漢字かなカナ한글", "अनुच्छेदกำ", "\u0301\u0300\u20dd", "ابجד", "\x00\x01\x7f", "<|im_end|>",
    "𐐀𐐨𝒜𠀀", "\ue000\ufffd\ufffe\U0010ffff",
)  # fmt: skip
WORDS = (
    "don't", "I'LL", "it's", "Hello", " world", "2024", "3.14", "a  b", "\n\n", " \n x", "e\u0301", "x=1;",
    "\r\n", "  ",
)  # fmt: skip


def random_text(rng: random.Random) -> str:
    """A few stretches, each of one kind or of words, or any code points."""
    parts: list[str] = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(4)
        if kind == 0:
            parts.append(rng.choice(WORDS))
        elif kind == 1:
            parts.append(chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))))
        else:
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choices(alphabet, k=rng.randrange(1, 6))))
    return "".join(parts)


def random_texts(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(n)]
