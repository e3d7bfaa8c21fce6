"""Normalizers: text to text, before it is cut. The steps of tokenizer.json that need Unicode tables.

Each function reproduces the step of the same name in huggingface/tokenizers, with the tables of that step.
All take linear time, except that the marks on one letter are sorted in O(n log n). Text without an affected
character is detected by one search and returned unchanged.
Source: Unicode Standard Annex 15 (normalization forms), and chapter 3.12 for Hangul.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from camelid.text.unicode_tables import char_set, combining_classes, joined, mapping, members, ranges

HANGUL_FIRST, HANGUL_LAST = 0xAC00, 0xD7A3
LEADS, VOWELS, TAILS = 0x1100, 0x1161, 0x11A7  # the first jamo of each kind; TAILS itself means no tail
N_VOWELS, N_TAILS = 21, 28


def nfd(text: str) -> str:
    """Canonical decomposition."""
    return _decomposed(text, "NFD")


def nfkd(text: str) -> str:
    """Compatibility decomposition."""
    return _decomposed(text, "NFKD")


def nfc(text: str) -> str:
    """Canonical decomposition, then composition."""
    return _composed(text, "NFD")


def nfkc(text: str) -> str:
    """Compatibility decomposition, then composition."""
    return _composed(text, "NFKD")


def lowercase(text: str) -> str:
    """Lower case by character: Σ becomes σ also at the end of a word, İ becomes i and a dot above."""
    return text.lower() if text.isascii() else text.translate(mapping("Lowercase"))


def strip_accents(text: str) -> str:
    """Removes combining marks. Marks within composed letters stay, so NFD must come first."""
    return _run_of("StripAccents").sub("", text)


def nmt(text: str) -> str:
    """Removes most control characters; turns most spaces and some invisible characters into a space."""
    return _one_of("Nmt.spaces").sub(" ", _run_of("Nmt.removed").sub("", text))


def strip(text: str, *, left: bool = True, right: bool = True) -> str:
    """Removes white space at the start and at the end."""
    spaces = _spaces()
    text = text.lstrip(spaces) if left else text
    return text.rstrip(spaces) if right else text


def bert(
    text: str,
    *,
    clean_text: bool = True,
    handle_chinese_chars: bool = True,
    strip_accents: bool | None = None,
    lowercase: bool = True,
) -> str:
    """BertNormalizer; its fields are the arguments. `strip_accents` None means the value of `lowercase`."""
    enabled = {
        _cleaned: clean_text,
        _chinese_apart: handle_chinese_chars,
        _without_accents: lowercase if strip_accents is None else strip_accents,
        NORMALIZERS["Lowercase"]: lowercase,
    }
    for step in (step for step, is_enabled in enabled.items() if is_enabled):
        text = step(text)
    return text


# The steps without fields, by their names in tokenizer.json.
NORMALIZERS: dict[str, Callable[[str], str]] = {
    "NFC": nfc,
    "NFD": nfd,
    "NFKC": nfkc,
    "NFKD": nfkd,
    "Lowercase": lowercase,
    "StripAccents": strip_accents,
    "Nmt": nmt,
}


def _cleaned(text: str) -> str:
    """Removes control, format, private-use and unassigned characters; white space becomes a space."""
    return _one_of("space").sub(" ", _run_of("Bert.removed").sub("", text))


def _chinese_apart(text: str) -> str:
    return _one_of("Bert.chinese").sub(r" \g<0> ", text)


def _without_accents(text: str) -> str:
    return _run_of("Bert.accents").sub("", nfd(text))


@cache
def _one_of(name: str) -> re.Pattern[str]:
    return re.compile(f"[{char_set(name)}]")


@cache
def _run_of(name: str) -> re.Pattern[str]:
    return re.compile(f"[{char_set(name)}]+")


@cache
def _spaces() -> str:
    return "".join(members("space"))


def _decomposed(text: str, form: str) -> str:
    if text.isascii():
        return text
    table = _decompositions(form)
    return _decomposable(form).sub(lambda match: _ordered(match[0].translate(table)), text)


def _composed(text: str, form: str) -> str:
    if text.isascii() or not _unstable(form)[0].search(text):
        return text
    table = _decompositions(form)
    return _unstable(form)[1].sub(lambda match: _joined(_ordered(match[0].translate(table))), text)


def _ordered(text: str) -> str:
    """Canonical order: adjacent marks sorted by combining class, stable within a class."""
    class_of = combining_classes().__getitem__
    return _marks().sub(lambda match: "".join(sorted(match[0], key=class_of)), text)


def _joined(text: str) -> str:
    """Composition of decomposed text.

    A mark joins the preceding starter unless a mark of at least its class is between.
    """
    pairs, classes = _pairs(), combining_classes()
    chars: list[str] = []
    starter, last_class = -1, 0
    for char in text:
        char_class = classes.get(char, 0)
        if starter >= 0 and (starter == len(chars) - 1 or last_class < char_class):
            composite = pairs.get(chars[starter] + char)
            if composite:
                chars[starter] = composite
                continue
        chars.append(char)
        last_class = char_class
        if char_class == 0:
            starter = len(chars) - 1
    return "".join(chars)


@cache
def _decompositions(form: str) -> dict[int, str]:
    """The full decomposition of each character, and each mark itself, as `str.translate` expects."""
    marks = {ord(mark): mark for mark in combining_classes()}
    hangul = {code: _jamo(code - HANGUL_FIRST) for code in range(HANGUL_FIRST, HANGUL_LAST + 1)}
    compatible = mapping("NFKD") if form == "NFKD" else {}
    return marks | hangul | mapping("NFD") | compatible


def _jamo(index: int) -> str:
    """The letters of a Hangul syllable: two or three."""
    lead_and_vowel, tail = divmod(index, N_TAILS)
    lead, vowel = divmod(lead_and_vowel, N_VOWELS)
    return chr(LEADS + lead) + chr(VOWELS + vowel) + (chr(TAILS + tail) if tail else "")


@cache
def _pairs() -> dict[str, str]:
    """The composition of a starter and the character after it."""
    excluded = set(members("uncomposed"))
    whole = {
        letters: chr(code_point)
        for code_point, letters in _decompositions("NFD").items()
        if len(letters) > 1 and chr(code_point) not in excluded
    }
    return {whole.get(letters[:-1], letters[:-1]) + letters[-1]: char for letters, char in whole.items()}


@cache
def _marks() -> re.Pattern[str]:
    return re.compile(f"{_set_of(combining_classes())}{{2,}}")


@cache
def _decomposable(form: str) -> re.Pattern[str]:
    return re.compile(f"{_set_of(map(chr, _decompositions(form)))}+")


@cache
def _unstable(form: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of the characters that composition may change: a search, and runs with the preceding starter.

    All other characters compose with nothing before them and stay unchanged, so a run may end at one of them.
    """
    pairs = _pairs()
    changed = {chr(code_point) for code_point in _decompositions(form)}.difference(pairs.values())
    if form == "NFKD":
        changed.update(map(chr, mapping("NFKD")))
    unstable = _set_of(changed.union(pair[1] for pair in pairs))
    return re.compile(unstable), re.compile(f"(?s:.)?{unstable}+")


def _set_of(chars: Iterable[str]) -> str:
    return f"[{ranges(joined((ord(char), ord(char) + 1) for char in chars))}]"
