"""Pre-tokenizers of tokenizer.json that cut text into words by character classes.

Matches and the gaps between them are pieces; a behavior keeps, drops or joins them. Byte-level tokenizers
cut by the regexes of pretokenize.py instead.
Source: huggingface/tokenizers, docs of `pre_tokenizers` and of SplitDelimiterBehavior.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise

from camelid.text.unicode_tables import char_set, rows, runs

Piece = tuple[str, bool]  # text, never empty; True for a match


def pieces(rx: re.Pattern[str], text: str) -> list[Piece]:
    """The matches of `rx` and the gaps between them, in order. An empty match only cuts."""
    found: list[Piece] = []
    end = 0
    for match in rx.finditer(text):
        found += ((text[end : match.start()], False), (match.group(), True))
        end = match.end()
    return [piece for piece in (*found, (text[end:], False)) if piece[0]]


def isolated(found: Iterable[Piece]) -> list[str]:
    return [piece for piece, _ in found]


def removed(found: Iterable[Piece]) -> list[str]:
    return [piece for piece, is_match in found if not is_match]


def merged_with_previous(found: Iterable[Piece]) -> list[str]:
    """Appends a match to the piece before it; of consecutive matches only the first."""
    return _grouped(found, lambda last, this: this and not last)


def merged_with_next(found: Iterable[Piece]) -> list[str]:
    """Prepends a match to the piece after it; of consecutive matches only the last."""
    return _grouped(found, lambda last, this: last and not this)


def contiguous(found: Iterable[Piece]) -> list[str]:
    """Joins consecutive matches to one piece."""
    return _grouped(found, lambda last, this: last == this)


# By their names in tokenizer.json.
BEHAVIORS: dict[str, Callable[[Iterable[Piece]], list[str]]] = {
    "Isolated": isolated,
    "Removed": removed,
    "MergedWithPrevious": merged_with_previous,
    "MergedWithNext": merged_with_next,
    "Contiguous": contiguous,
}


def split(text: str, rx: re.Pattern[str], behavior: str = "Isolated", *, invert: bool = False) -> list[str]:
    """Cuts at the matches of `rx`, or with `invert` at the gaps."""
    found = pieces(rx, text)
    return BEHAVIORS[behavior]([(piece, not is_match) for piece, is_match in found] if invert else found)


def whitespace_split(text: str) -> list[str]:
    """The text between white space."""
    return _find("[^{space}]+").findall(text)


def whitespace(text: str) -> list[str]:
    """Runs of word characters, and runs of other characters except white space."""
    return _find("[{Whitespace.word}]+|[^{Whitespace.word}{space}]+").findall(text)


def bert_words(text: str) -> list[str]:
    """The text between white space, each punctuation mark on its own."""
    return _find("[^{space}{Punctuation}]+|[{Punctuation}]").findall(text)


def punctuation(text: str, behavior: str = "Isolated") -> list[str]:
    """Cuts at every punctuation mark."""
    return split(text, _find("[{Punctuation}]"), behavior)


def digits(text: str, *, individual_digits: bool = False) -> list[str]:
    """Cuts off runs of numeric characters, or each of them."""
    return split(text, _find("[{Digits}]" if individual_digits else "[{Digits}]+"))


def char_delimiter_split(text: str, delimiter: str) -> list[str]:
    """The text between the delimiters, which are dropped."""
    return [word for word in text.split(delimiter) if word]


def fixed_length(text: str, length: int = 5) -> list[str]:
    """Words of `length` characters; the last may be shorter."""
    return [text[start : start + length] for start in range(0, len(text), length)]


def unicode_scripts(text: str) -> list[str]:
    """Cuts where the script changes; characters without a script, such as spaces, stay with the word before.

    Han, Hiragana and Katakana count as one script. Text before the first character with a script is dropped,
    as in `tokenizers`.
    """
    starts: list[int] = []
    script = None
    for i, char in enumerate(text):
        last, script = script, _script(char) or script
        if script != last:
            starts.append(i)
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


# The steps that need no field, by their names in tokenizer.json.
PRE_TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "WhitespaceSplit": whitespace_split,
    "Whitespace": whitespace,
    "BertPreTokenizer": bert_words,
    "Punctuation": punctuation,
    "Digits": digits,
    "FixedLength": fixed_length,
    "UnicodeScripts": unicode_scripts,
}


def _grouped(found: Iterable[Piece], joins: Callable[[bool, bool], bool]) -> list[str]:
    """Groups of pieces: a piece joins its group while `joins`(last is match, this is match) is True."""
    groups: list[list[str]] = []
    last = False
    for piece, is_match in found:
        if groups and joins(last, is_match):
            groups[-1].append(piece)
        else:
            groups.append([piece])
        last = is_match
    return ["".join(group) for group in groups]


@cache
def _find(pattern: str) -> re.Pattern[str]:
    """Compiles a regex with the classes of its sets named in braces."""
    return re.compile(re.sub(r"\{([A-Za-z.]+)\}", lambda match: char_set(match[1]), pattern))


@cache
def _scripts() -> tuple[list[int], list[str]]:
    """The starts of runs of a script, ascending, and the script of each, "" for none."""
    names = [name for name in rows("unicode.txt") if name.startswith("script")]
    found = {start: name for name in names for start, _ in runs(name)}
    gaps = {end: "" for name in names for _, end in runs(name) if end not in found}
    starts = sorted({0: "", **gaps, **found}.items())
    return [start for start, _ in starts], [name for _, name in starts]


def _script(char: str) -> str:
    starts, names = _scripts()
    return names[bisect_right(starts, ord(char)) - 1]
