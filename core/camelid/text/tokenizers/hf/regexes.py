"""Patterns of a tokenizer.json: strings, known published regexes, and other regexes.

Known regexes are identified by their canonical spelling and run by splitting.py. Other regexes run on the
automaton of regex_dfa.py, which takes linear time or refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from camelid.text.tokenizers.hf.values import mapping, text
from camelid.text.tokenizers.pretokenize import SPLITTERS
from camelid.text.tokenizers.published import CONTRACTIONS
from camelid.text.tokenizers.regex_dfa import automaton
from camelid.text.tokenizers.splitting import Spans
from camelid.text.tokenizers.splitting import spans as published_spans

# Published spellings and their form in published.py.
SPELLINGS = (
    ("\r", r"\r"),
    ("\n", r"\n"),
    ("(?i:'s|'t|'re|'ve|'m|'ll|'d)", CONTRACTIONS),
    ("'(?i:[sdmt]|ll|ve|re)", CONTRACTIONS),
)


def canonical(regex: str) -> str:
    """The canonical spelling of a regex: escapes below U+0080 stay escaped, others become characters."""
    for published, ours in SPELLINGS:
        regex = regex.replace(published, ours)
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), regex)


@cache
def known() -> dict[str, str]:
    """Published regexes by canonical spelling."""
    return {canonical(pattern): pattern for row in SPLITTERS.values() for pattern in row.patterns}


def read_pattern(value: object, key: str) -> Spans:
    """A pattern given as {"String": …} or {"Regex": …}. Raises ModelFormatError, UnsupportedModelError."""
    pattern = mapping(value, key)
    if "String" in pattern:
        return literal_spans(text(pattern, "String"))
    regex = text(pattern, "Regex")
    if canonical(regex) in known():
        return published_spans(known()[canonical(regex)])
    return automaton(regex).spans


def literal_spans(string: str) -> Spans:
    """A function that finds a string; an empty string has no matches."""
    return published_spans(re.escape(string)) if string else lambda _: ()


def replace(text: str, spans: Iterable[tuple[int, int]], new: str) -> str:
    """The text with every match replaced by `new`."""
    parts: list[str] = []
    end = 0
    for start, stop in spans:
        parts += (text[end:start], new)
        end = stop
    return "".join((*parts, text[end:])) if parts else text
