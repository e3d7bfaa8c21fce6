"""Execution of the published regexes in linear time.

Python's `re` does not recurse, and takes linear time for a regex without nested repeats that does not scan a
run again from each of its characters. Other regexes are rewritten with possessive repeats or replaced by a
function; tests compare both with the published regex. A repeated group is an atomic group instead of a
possessive repeat, which Python before 3.11.5 matches incorrectly (github.com/python/cpython/issues/106052).
An atomic group needs memory per round, so rounds are kept few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import pairwise

from camelid.text.tokenizers import published
from camelid.text.unicode_tables import N_CODE_POINTS, compile_published, end_of

Span = tuple[int, int]  # start and end of a match
Spans = Callable[[str], Iterable[Span]]  # the matches in a text, left to right
Cut = Callable[[str], list[str]]

SPACE_RUNS = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)


def camel_case(suffix: str = "", without: str = "") -> str:
    """The words of published.CAMEL_CASE, with each character scanned a fixed number of times.

    `both` are the characters of both classes. A word is capitals up to a small letter and its continuation;
    else it ends at the last character of `both` among the capitals, where backtracking would stop; if there
    is none, the capitals alone are a word.
    """
    both = rf"\p{{Lm{without}}}\p{{Lo{without}}}\p{{M{without}}}"
    first = r"[^\r\n\p{L}\p{N}]?"
    capitals = rf"[\p{{Lu}}\p{{Lt}}{both}]"
    mixed = rf"[\p{{Lu}}\p{{Lt}}]*+[{both}]++(?>(?:[\p{{Lu}}\p{{Lt}}]++[{both}]++)*)"
    return (
        rf"{first}(?:{capitals}*+\p{{Ll}}[\p{{Ll}}{both}]*+|{mixed}){suffix}"
        rf"|{first}{capitals}++{suffix}"
    )


# Parts of published regexes and their replacements, the longest first.
REWRITTEN = (
    (published.CAMEL_CASE_NOT_HAN, camel_case(published.CONTRACTIONS + "?", "-Han")),
    (published.CAMEL_CASE_CONTRACTED, camel_case(published.CONTRACTIONS + "?")),
    (published.CAMEL_CASE, camel_case()),
    (r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", r"\p{L}[\p{L}\p{M}]*+(?>(?: \p{L}[\p{L}\p{M}]*+)*)"),
    (r"\s+$", r"(?<!\s)\s++\Z"),  # \Z, since no text with line ends inside reaches this regex
    (published.LAGUNA_LINES, r"(?>(?:\r?+\n)+)[^\r\n]*+(?>(?:\r(?!\n)[^\r\n]*+)*)"),
    # Python has no nested sets.
    (r"[^(\s|[.,!?…。，、।۔،])]", r"[^(\s|.,!?…。，、।۔،)]"),
    # Capturing groups would change the result of findall.
    ("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "IMGIMG[A-I]{1,4}Z"),
    (r"([\t\n]|    |  )", r"[\t\n]|    |  "),
)


@cache
def compiled(regex: str, end: int = N_CODE_POINTS) -> re.Pattern[str]:
    """A published regex, rewritten for linear time and compiled for texts of this `end_of`."""
    for part, linear in REWRITTEN:
        regex = regex.replace(part, linear)
    return compile_published(regex, end)


@cache
def spans(regex: str) -> Spans:
    """A function that finds the matches of a published regex, which is compiled on first use."""
    return FUNCTIONS.get(regex) or partial(_spans, regex)


def _spans(regex: str, text: str) -> Iterator[Span]:
    return (match.span() for match in compiled(regex, end_of(text)).finditer(text))


@cache
def cutter(regex: str) -> Cut:
    """A function that cuts a text into the matches of a published regex and the gaps between them."""
    if regex in FUNCTIONS:
        return lambda text: _between(FUNCTIONS[regex](text), text)
    return partial(_cut, regex)


def _cut(regex: str, text: str) -> list[str]:
    rx = compiled(regex, end_of(text))
    found = rx.findall(text)
    if sum(map(len, found)) == len(text):  # no gaps, as for most regexes
        return found
    return _between((match.span() for match in rx.finditer(text)), text) if found else [text]


def _between(found: Iterable[Span], text: str) -> list[str]:
    borders = [0, *(border for span in found for border in span), len(text)]
    return [text[start:end] for start, end in pairwise(borders) if start < end]


def threes(run: str, text: str) -> Iterator[Span]:
    """Groups of three digits, counted from the right of every match of `run`."""
    for match in compile_published(run, end_of(text)).finditer(text):
        start, end = match.span()
        first = start + (end - start - 1) % 3 + 1
        yield from pairwise([start, *range(first, end + 1, 3)])


def borders_of_threes(text: str) -> Iterator[Span]:
    """Empty matches before each group of three digits, counted from the right of a run."""
    for match in compile_published(r"\d++", end_of(text)).finditer(text):
        start, end = match.span()
        yield from ((place, place) for place in range(start + (end - start) % 3, end, 3))


def runs_of_spaces(text: str) -> Iterator[Span]:
    """The matches of LLAMA3, with white space cut into runs of 512, 256 and so on, the longest first."""
    spaces = compile_published(r"\s*+(?<![\r\n])")
    for start, end in spans(published.LLAMA3)(text):
        for size in SPACE_RUNS if spaces.fullmatch(text, start, end) else (end - start,):
            for _ in range((end - start) // size):
                yield start, start + size
                start += size


# Published regexes that are replaced by a function.
FUNCTIONS: dict[str, Spans] = {
    published.AFMOE_DIGITS: partial(threes, r"\p{Nd}++"),
    published.TINY_AYA_DIGITS: partial(threes, r"(?<!\d)\d++(?!\w)"),
    published.SUPERBPE_DIGITS: borders_of_threes,
    published.JAIS2: runs_of_spaces,
}
