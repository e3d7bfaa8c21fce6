"""Writes core/camelid/data/unicode*.txt: character classes and mappings, equal to those of `tokenizers`.

The oracle is `tokenizers` itself, run on every code point, because models were trained on its ids. Its parts
use tables of different age: the regex engine Unicode 16.0, punctuation and control characters of the Bert
steps Unicode 8.0, composition 13.0. Run: python tests/tools/make_unicode.py
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import PreTokenizedString, Regex, normalizers, pre_tokenizers

DATA = Path(__file__).parents[2] / "core" / "camelid" / "data"
HEADS = {
    "unicode.txt": "# class, then gap and length of each range",
    "unicode_maps.txt": "# mapping, then gap and result (code points joined by dots) of each character",
}
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn"
REGEXES = {"Han": r"\p{Han}", "space": r"\s", "word": r"\w"}
# (code point, class, is a member): the first additions of Unicode 16.0 and 17.0.
WITNESSES = ((0x10D40, "Nd", True), (0x10D4A, "Lo", True), (0x323B0, "Lo", False))
BERT_OFF = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
HANGUL = range(0xAC00, 0xD7A4)
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
VALID = (range(0xD800), range(0xE000, 0x110000))  # valid text contains no surrogates, so classes contain none
BATCHES = [
    range(i, min(i + 0x4000, part.stop)) for part in VALID for i in range(part.start, part.stop, 0x4000)
]
CODE_POINTS = [code_point for batch in BATCHES for code_point in batch]
SEPARATOR = "\ua000"  # the letter YI IT: no step produces, changes, or joins it

Runs = list[tuple[int, int]]


def runs_of(members: Iterable[int]) -> Runs:
    """First and one past the last of each run of consecutive integers; `members` ascends."""
    return joined((member, member + 1) for member in members)


def joined(runs: Iterable[tuple[int, int]]) -> Runs:
    """The same ranges, adjacent ones merged."""
    found: Runs = []
    for start, end in runs:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def words(step: pre_tokenizers.PreTokenizer, text: str) -> list[tuple[str, int]]:
    """The step's words with their byte offsets in UTF-8: the oracle counts characters slowly."""
    cut = PreTokenizedString(text)
    step.pre_tokenize(cut)
    found = cut.get_splits(offset_referential="original", offset_type="byte")
    return [(word, start) for word, (start, _), _ in found]


def starts(step: pre_tokenizers.PreTokenizer, text: str) -> set[int]:
    """Character offsets of the step's words."""
    is_first = np.frombuffer(text.encode(), np.uint8) & 0xC0 != 0x80  # byte of a character
    before = np.concatenate([[0], np.cumsum(is_first)])
    return set(before[[start for _, start in words(step, text)]].tolist())


def matched(regex: str) -> Runs:
    """Members of the class in the oracle's regex engine."""
    split = pre_tokenizers.Split(Regex(f"(?:{regex})+"), "removed", invert=True)
    return joined(
        (ord(word[0]), ord(word[-1]) + 1)
        for part in BATCHES
        for word, _ in words(split, "".join(map(chr, part)))
    )


def categories() -> dict[str, Runs]:
    """Every category, by five regexes on the binary digits of its number instead of 29 regexes."""
    names = CATEGORIES.split()
    numbers = bytearray(0x110000)
    for bit in range(5):
        regex = "".join(rf"\p{{{name}}}" for number, name in enumerate(names) if number >> bit & 1)
        for code_point in (c for start, end in matched(f"[{regex}]") for c in range(start, end)):
            numbers[code_point] |= 1 << bit
    members: dict[str, list[int]] = {name: [] for name in names}
    for code_point in CODE_POINTS:
        members[names[numbers[code_point]]].append(code_point)
    return {name: runs_of(code_points) for name, code_points in members.items()}


@cache
def mapped(normalizer: normalizers.Normalizer) -> dict[int, str]:
    """The step's result for each single code point that it changes."""
    found: dict[int, str] = {}
    for batch in BATCHES:
        code_points = [code_point for code_point in batch if code_point != ord(SEPARATOR)]
        text = SEPARATOR.join(map(chr, code_points))
        result = normalizer.normalize_str(text)
        if result != text:
            results = zip(code_points, result.split(SEPARATOR), strict=True)
            found |= {c: after for c, after in results if after != chr(c)}
    return found


def set_apart(pre_tokenizer: pre_tokenizers.PreTokenizer) -> Iterator[int]:
    """Code points that the step makes a separate word, or drops, between two letters."""
    for part in BATCHES:
        borders = starts(pre_tokenizer, "a" + "a".join(map(chr, part)) + "a")
        yield from (part[i] for i in range(len(part)) if 2 * i + 2 in borders)


NFC, NFD, NFKD = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()


def combining_classes() -> dict[str, list[int]]:
    """Canonical combining classes, from the oracle's order of each mark beside a mark of each class.

    `unicodedata` only selects one witness per class; the oracle's order alone decides.
    """
    marks = [chr(c) for c in moved() if c not in mapped(NFD)]
    witnesses = {unicodedata.combining(mark): mark for mark in reversed(marks)}
    found: dict[str, list[int]] = {f"ccc{n}": [] for n in sorted(witnesses)}
    for mark in marks:
        same = [n for n, witness in witnesses.items() if not moves(mark, witness, witness)]
        found[f"ccc{same[0]}"].append(ord(mark))
    return found


def moved() -> Iterator[int]:
    """Code points that NFD reorders before a mark of class 240, the highest, or after a mark of class 1."""
    for batch in BATCHES:
        code_points = [code_point for code_point in batch if code_point != ord(SEPARATOR)]
        pairs = [(f"\u0345{chr(code_point)}", f"{chr(code_point)}\u0334") for code_point in code_points]
        results = [
            NFD.normalize_str(SEPARATOR.join(side)).split(SEPARATOR) for side in zip(*pairs, strict=True)
        ]
        yield from (
            code_point
            for code_point, pair, result in zip(code_points, pairs, zip(*results, strict=True), strict=True)
            if pair != result
        )


def moves(mark: str, first: str, last: str) -> bool:
    """True if NFD moves `mark` before `last` or after `first`."""
    before, after = last + mark, mark + first
    return NFD.normalize_str(before) != before or NFD.normalize_str(after) != after


def scripts() -> dict[str, list[int]]:
    """The classes that UnicodeScripts separates, numbered. Characters in no class, such as a space, separate
    nothing.
    """
    step = pre_tokenizers.UnicodeScripts()
    found: dict[str, list[int]] = {}
    firsts: list[str] = []  # one character per script
    for batch in BATCHES:
        for run, _ in words(step, "".join(map(chr, of_scripts(batch)))):
            cuts = starts(step, "".join(first + run[0] for first in firsts))
            same = [i for i in range(len(firsts)) if 2 * i + 1 not in cuts]
            number = same[0] if same else len(firsts)
            firsts += [] if same else [run[0]]
            found.setdefault(f"script{number}", []).extend(map(ord, run))
    return found


def of_scripts(batch: range) -> Iterator[int]:
    """Code points that UnicodeScripts separates from a Latin letter or from a Greek letter."""
    cuts = starts(pre_tokenizers.UnicodeScripts(), "".join(f"a{c}\u03b1{c}" for c in map(chr, batch)))
    yield from (c for i, c in enumerate(batch) if not cuts.isdisjoint((4 * i + 1, 4 * i + 3)))


def sets() -> dict[str, Runs]:
    """Every class, by its name in the data file."""
    found = categories() | {name: matched(regex) for name, regex in REGEXES.items()}
    for code_point, name, inside in WITNESSES:
        if any(first <= code_point < end for first, end in found[name]) != inside:
            raise SystemExit(f"the oracle's regex engine is not Unicode 16.0: U+{code_point:04X} and {name}")
    bert = {key: normalizers.BertNormalizer(**{**BERT_OFF, key: True}) for key in BERT_OFF}
    members: dict[str, Iterable[int]] = {
        "Punctuation": set_apart(pre_tokenizers.Punctuation()),
        "Digits": set_apart(pre_tokenizers.Digits(individual_digits=True)),
        "Whitespace.word": sorted({*CODE_POINTS}.difference(set_apart(pre_tokenizers.Whitespace()))),
        "StripAccents": mapped(normalizers.StripAccents()),
        "Bert.removed": (c for c, result in mapped(bert["clean_text"]).items() if not result),
        "Bert.accents": (c for c, result in mapped(bert["strip_accents"]).items() if not result),
        "Bert.chinese": mapped(bert["handle_chinese_chars"]),
        "Nmt.removed": (c for c, result in mapped(normalizers.Nmt()).items() if not result),
        "Nmt.spaces": (c for c, result in mapped(normalizers.Nmt()).items() if result),
        "uncomposed": (c for c, result in mapped(NFD).items() if len(result) > 1 and c in mapped(NFC)),
        **combining_classes(),
        **scripts(),
    }
    return found | {name: runs_of(code_points) for name, code_points in members.items()}


def maps() -> dict[str, dict[int, str]]:
    """Every mapping, by its name in the data file; NFKD only where it differs from NFD."""
    canonical = {c: result for c, result in mapped(NFD).items() if c not in HANGUL}
    compatible = {c: result for c, result in mapped(NFKD).items() if result != mapped(NFD).get(c)}
    return {"NFD": canonical, "NFKD": compatible, "Lowercase": mapped(normalizers.Lowercase())}


def base36(number: int) -> str:
    head, tail = divmod(number, 36)
    return (base36(head) if head else "") + DIGITS[tail]


def set_row(name: str, runs: Runs) -> str:
    borders = [0, *(border for run in runs for border in run)]
    return " ".join([name, *(base36(b - a) for a, b in pairwise(borders))])


def map_row(name: str, mapping: Mapping[int, str]) -> str:
    tokens = [name]
    for before, code_point in pairwise([0, *mapping]):
        tokens += [base36(code_point - before), ".".join(base36(ord(char)) for char in mapping[code_point])]
    return " ".join(tokens)


def files() -> dict[str, str]:
    """The text of each data file, by its name."""
    rows = {
        "unicode.txt": [set_row(name, runs) for name, runs in sets().items()],
        "unicode_maps.txt": [map_row(name, mapping) for name, mapping in maps().items()],
    }
    return {
        name: "\n".join([f"{HEADS[name]}, in base 36 (make_unicode.py)", *rows[name], ""]) for name in rows
    }


if __name__ == "__main__":
    for name, text in files().items():
        (DATA / name).write_text(text, "utf-8")
        print(f"{name}: {len(text)} bytes")
