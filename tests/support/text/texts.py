"""Texts that are hard to split: seeded, of twelve kinds, each mixed with ordinary letters."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

Kind = Sequence[str]  # units to join at random; a str's units are its characters


def span(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


KINDS: dict[str, Kind] = {
    "whitespace": [
        *"  \t\n\r\u00a0\u2003\u3000\u0085\u1680\x0b\x0c\x1c\u2028\u2029\u202f", "\r\n", "   ", "\n\n",
    ],
    "marks": "aeoश" + span(0x300, 0x36F)
        + "\u0483\u0591\u064b\u093f\u094d\u0bcd\u0e33\u0e49\u20dd\u3099\ufe0f\U0001d165",
    "emoji": [
        *"😀🏽❤☎™", "\u200d", "\ufe0f", "\u20e3", "👩\u200d👩\u200d👧", "🇺🇳", "🇩", "1\ufe0f\u20e3", "👍🏿",
        "🏴\U000e0067\U000e007f",
    ],
    "controls": span(0, 31) + "\x7f\x80\x85\x9f\xad\u061c\u180e\u200b\u200e\u202e\u2060\u2066\ufeff\ufff9"
        + "\ue000\ufffd\ufffe\U000e0001\U0010ffff",
    "right_to_left": "אבגדה״׳־ابتثج،؛؟ـ٠١٢۱۲ܐܒ߀ߊ\u05b0\u0651\u200f𞤀𞤢",
    "cjk": "漢字々〆かなカナｶﾅー一龥㐀豈𠀀\u3006、。「」！～ㄅㄯ〇\u3021\u3220\u2f00",
    "digits": [*"0123456789²½³٣๓Ⅷ一𝟙①", ".", ",", "-", "1234567", "3.14", "²½"],
    "contractions": [
        *"'’ſK", "'s", "'S", "'t", "'LL", "'ll", "'Ve", "'re", "'D", "'ſ", "it's", "don't", "I'LL", "''s",
        "x's's",
    ],
    "specials": [
        "<|im_end|>", "<s>", "</s>", "<|endoftext|>", "[INST]", "<unk>", "<|", "|>", "<", ">", "▁", "Ġ",
        "<0x0A>",
    ],
    "hangul": "한글가힣각갂\u1100\u1161\u11a8\u1112\u1175\u11c2ㄱㅎㆎ\uffa1\ua960\ud7b0\u302e",
    "cased": "ΑΒΓΣςσάΌἀᾳᾼЯяЁжԱաևႠᲐაჯⴀ𐐀𐐨ĲǅǈİıßẞŒſﬁﬀŉꞀꙀᏣꭰʰªº𝒜",
    "punctuation": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡«»‘’“”…–—‿⁀₠€©®±×÷∑√①☃、。।؟՞𐄀",
}  # fmt: skip
WORDS = (
    "don't", "I'LL", "it's", "Hello", " world", "2024", "3.14", "a  b", "\n\n", " \n x", "e\u0301", "x=1;",
    "\r\n", "  ", "XMLHttpRequest", "HTTPs", "Ünïcödé", "tEST", " \t",
)  # fmt: skip


def any_code_point(rng: random.Random) -> str:
    return chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))))


def text_of(kind: Kind, rng: random.Random) -> str:
    """Runs of one kind, some separated by a word, ASCII letters or a random code point."""
    fillers = (lambda: rng.choice(WORDS), lambda: rng.choice("aZ 7.\n"), lambda: any_code_point(rng))
    parts: list[str] = []
    for _ in range(rng.randrange(1, 9)):
        parts += rng.choices(kind, k=rng.randrange(1, 6))
        if rng.random() < 0.5:
            parts.append(rng.choice(fillers)())
    return "".join(parts)


def kinds() -> dict[str, Callable[[random.Random], str]]:
    """A text generator for each of the twelve kinds; equal seeds give equal texts."""
    return {name: partial(text_of, kind) for name, kind in KINDS.items()}


def mixed(rng: random.Random) -> str:
    """Up to four runs, each of a random kind."""
    return "".join(text_of(rng.choice(list(KINDS.values())), rng) for _ in range(rng.randrange(1, 4)))


def random_texts(n: int, seed: int) -> list[str]:
    """`n` texts: the kinds in turn, and every thirteenth text mixed of several."""
    rng = random.Random(seed)
    makers = [*kinds().values(), mixed]
    return [makers[i % len(makers)](rng) for i in range(n)]
