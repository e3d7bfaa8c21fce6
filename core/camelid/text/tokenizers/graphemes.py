"""Grapheme clusters: user-perceived characters, by which `tokenizers` applies character maps.

Source: Unicode Standard Annex 29, extended grapheme clusters, at version 16.0. Pairs of flag letters are not
joined, since no step treats a flag as one character.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate

from camelid.text.unicode_tables import ranges, rows

# A cluster begins with optional Prepend characters and continues with marks. `Extend` excludes linkers, and
# each repeat begins with a character that the previous one cannot match, so matching takes linear time.
CLUSTER = (
    r"\r\n|[{Control}]|[{Prepend}]*(?:"
    "[{Lead}]*(?:[{Vowel}{LeadVowel}][{Vowel}]*|[{LeadVowelTail}])[{Tail}]*|[{Lead}]+|[{Tail}]+"
    "|[{Pictographic}](?:[{Extend}{Linker}]*[{Joiner}][{Pictographic}])*"
    "|[{Consonant}](?:[{Extend}]*[{Linker}][{Extend}{Linker}]*[{Consonant}])*"
    "|[^{Control}])[{Joined}]*"
)
JOINER = "\u200d"


def clusters(text: str) -> list[str]:
    """The clusters of a text, in order; joined, they are the text."""
    return _cluster().findall(text)


@cache
def _cluster() -> re.Pattern[str]:
    sets = {name: _set(row) for name, row in rows("graphemes.txt").items()}
    return re.compile(CLUSTER.format(**sets, Joiner=JOINER))


def _set(row: str) -> str:
    borders = list(accumulate(int(delta, 36) for delta in row.split()))
    return ranges(zip(borders[::2], borders[1::2], strict=True))
