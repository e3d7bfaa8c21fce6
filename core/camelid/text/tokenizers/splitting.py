"""How the published regexes are run: in linear time, whatever the text.

Python's `re` does not recurse, and is linear on a regex that nests no repeat in a repeat and scans no run
from each of its characters. Regexes that do so are rewritten with possessive repeats, or a function of a few
lines stands for them; tests hold both to the published regex. A repeat of a group is an atomic group in place
of a possessive repeat, which Python before 3.11.5 matches wrong (github.com/python/cpython/issues/106052); it
takes some memory for each round, so that rounds are made few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import pairwise

from camelid.text.tokenizers import published
from camelid.text.unicode_tables import N_CODE_POINTS, compile_published, end_of

Span = tuple[int, int]  # where a match starts and ends
Spans = Callable[[str], Iterable[Span]]  # the matches in a text, left to right
Cut = Callable[[str], list[str]]

SPACE_RUNS = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)


def camel_case(suffix: str = "", without: str = "") -> str:
    """The words of published.CAMEL_CASE, each character scanned a fixed number of times.

    `both` are in the two classes. A word is capitals up to a small letter and what follows it; else it ends
    at the last character of `both` among the capitals, which is where backtracking would come to rest; and
    where there is none the capitals alone are one.
    """
    both = rf"\p{{Lm{without}}}\p{{Lo{without}}}\p{{M{without}}}"
    first = r"[^\r\n\p{L}\p{N}]?"
    capitals = rf"[\p{{Lu}}\p{{Lt}}{both}]"
    mixed = rf"[\p{{Lu}}\p{{Lt}}]*+[{both}]++(?>(?:[\p{{Lu}}\p{{Lt}}]++[{both}]++)*)"
    return (
        rf"{first}(?:{capitals}*+\p{{Ll}}[\p{{Ll}}{both}]*+|{mixed}){suffix}"
        rf"|{first}{capitals}++{suffix}"
    )


# Parts of published regexes and what is run in their place, the longest first.
REWRITTEN = (
    (published.CAMEL_CASE_NOT_HAN, camel_case(published.CONTRACTIONS + "?", "-Han")),
    (published.CAMEL_CASE_CONTRACTED, camel_case(published.CONTRACTIONS + "?")),
    (published.CAMEL_CASE, camel_case()),
    (r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", r"\p{L}[\p{L}\p{M}]*+(?>(?: \p{L}[\p{L}\p{M}]*+)*)"),
    (r"\s+$", r"(?<!\s)\s++\Z"),  # not at line ends too: no text with line ends in it comes to it
    (published.LAGUNA_LINES, r"(?>(?:\r?+\n)+)[^\r\n]*+(?>(?:\r(?!\n)[^\r\n]*+)*)"),
    # Python has no sets within sets.
    (r"[^(\s|[.,!?…。，、।۔،])]", r"[^(\s|.,!?…。，、।۔،)]"),
    # Groups that capture would change what findall gives.
    ("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "IMGIMG[A-I]{1,4}Z"),
    (r"([\t\n]|    |  )", r"[\t\n]|    |  "),
)


@cache
def compiled(regex: str, end: int = N_CODE_POINTS) -> re.Pattern[str]:
    """A published regex, rewritten to take linear time and compiled for texts of this `end_of`."""
    for part, linear in REWRITTEN:
        regex = regex.replace(part, linear)
    return compile_published(regex, end)


@cache
def spans(regex: str) -> Spans:
    """What finds the matches of a published regex. It is compiled when it is first used."""
    return FUNCTIONS.get(regex) or partial(_spans, regex)


def _spans(regex: str, text: str) -> Iterator[Span]:
    return (match.span() for match in compiled(regex, end_of(text)).finditer(text))


@cache
def cutter(regex: str) -> Cut:
    """What cuts a text into the matches of a published regex and the gaps between them, in order."""
    if regex in FUNCTIONS:
        return lambda text: _between(FUNCTIONS[regex](text), text)
    return partial(_cut, regex)


def _cut(regex: str, text: str) -> list[str]:
    rx = compiled(regex, end_of(text))
    found = rx.findall(text)
    if sum(map(len, found)) == len(text):  # no gaps, as with most regexes
        return found
    return _between((match.span() for match in rx.finditer(text)), text) if found else [text]


def _between(found: Iterable[Span], text: str) -> list[str]:
    borders = [0, *(border for span in found for border in span), len(text)]
    return [text[start:end] for start, end in pairwise(borders) if start < end]


def threes(run: str, text: str) -> Iterator[Span]:
    """Digits together by three, counted from the right of every match of `run`."""
    for match in compile_published(run, end_of(text)).finditer(text):
        start, end = match.span()
        first = start + (end - start - 1) % 3 + 1
        yield from pairwise([start, *range(first, end + 1, 3)])


def borders_of_threes(text: str) -> Iterator[Span]:
    """Where three digits, or six and so on, are left of a run: an empty match before each group of three."""
    for match in compile_published(r"\d++", end_of(text)).finditer(text):
        start, end = match.span()
        yield from ((place, place) for place in range(start + (end - start) % 3, end, 3))


def runs_of_spaces(text: str) -> Iterator[Span]:
    """As LLAMA3, with white space cut into runs of 512, 256 and so on, the longest first."""
    spaces = compile_published(r"\s*+(?<![\r\n])")
    for start, end in spans(published.LLAMA3)(text):
        for size in SPACE_RUNS if spaces.fullmatch(text, start, end) else (end - start,):
            for _ in range((end - start) // size):
                yield start, start + size
                start += size


# Published regexes that a function stands for.
FUNCTIONS: dict[str, Spans] = {
    published.AFMOE_DIGITS: partial(threes, r"\p{Nd}++"),
    published.TINY_AYA_DIGITS: partial(threes, r"(?<!\d)\d++(?!\w)"),
    published.SUPERBPE_DIGITS: borders_of_threes,
    published.JAIS2: runs_of_spaces,
}
