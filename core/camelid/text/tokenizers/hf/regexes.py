"""Patterns of a tokenizer.json: strings, regexes that models are known to publish, and other regexes.

The known ones are found by their text, in one spelling, and run as text/splitting.py does. Others are run by
the automaton of text/regex_dfa.py, which takes linear time or refuses them.
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

# Other spellings of what text/published.py writes out.
SPELLINGS = (
    ("\r", r"\r"),
    ("\n", r"\n"),
    ("(?i:'s|'t|'re|'ve|'m|'ll|'d)", CONTRACTIONS),
    ("'(?i:[sdmt]|ll|ve|re)", CONTRACTIONS),
)


def canonical(regex: str) -> str:
    """One spelling for all: escapes below U+0080 stay written out, those above become characters."""
    for published, ours in SPELLINGS:
        regex = regex.replace(published, ours)
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), regex)


@cache
def known() -> dict[str, str]:
    """Published regexes by their canonical spelling."""
    return {canonical(pattern): pattern for row in SPLITTERS.values() for pattern in row.patterns}


def read_pattern(value: object, key: str) -> Spans:
    """A pattern as {"String": …} or {"Regex": …}. Raises ModelFormatError, UnsupportedModelError."""
    pattern = mapping(value, key)
    if "String" in pattern:
        return literal_spans(text(pattern, "String"))
    regex = text(pattern, "Regex")
    if canonical(regex) in known():
        return published_spans(known()[canonical(regex)])
    return automaton(regex).spans


def literal_spans(string: str) -> Spans:
    """The matches of a string; none for an empty one."""
    return published_spans(re.escape(string)) if string else lambda _: ()


def replace(text: str, spans: Iterable[tuple[int, int]], new: str) -> str:
    """The text with `new` in place of every match."""
    parts: list[str] = []
    end = 0
    for start, stop in spans:
        parts += (text[end:start], new)
        end = stop
    return "".join((*parts, text[end:])) if parts else text
