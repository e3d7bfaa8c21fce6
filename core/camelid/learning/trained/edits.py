"""The replacement that most corrections share, and further corrections made with it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from random import Random
from typing import NamedTuple

SHARED = 0.6  # share of the corrections that the replacement explains exactly
LEAST_WORD, MOST_WORD = 3, 8  # letters of a word that takes another one's place
WORD = re.compile(r"[a-z]{3,}")


class Edit(NamedTuple):
    """Every `old` becomes `new`."""

    old: str
    new: str

    def __call__(self, text: str) -> str:
        return text.replace(self.old, self.new)


def shared_edit(pairs: Sequence[tuple[str, str]]) -> Edit | None:
    """The edit that explains most pairs of a given and a right answer; None unless they are SHARED of all."""
    found = Counter(edit for given, right in pairs for edit in set(_edits(given, right)))
    if not found:
        return None
    best = max(sorted(found), key=lambda edit: found[edit])
    n = sum(best(given) == right != given for given, right in pairs)
    return best if n >= SHARED * len(pairs) else None


def _edits(given: str, right: str) -> list[Edit]:
    codes = SequenceMatcher(None, given, right, autojunk=False).get_opcodes()
    return [Edit(given[a:b], right[c:d]) for tag, a, b, c, d in codes if tag == "replace"]


def answered_word(question: str, answer: str) -> str:
    """The longest word of the question that is in the answer's letters; "" if there is none."""
    letters = "".join(c for c in answer.lower() if c.isalpha())
    return max((word for word in WORD.findall(question.lower()) if word in letters), key=len, default="")


def swapped(question: str, word: str, words: Sequence[str], rng: Random) -> tuple[str, str]:
    """The question about another word, and that word."""
    other = rng.choice(words)
    return re.sub(re.escape(word), other, question, flags=re.IGNORECASE), other


def words_in(texts: Sequence[str]) -> list[str]:
    """All words that may take another one's place, in alphabetical order."""
    found = {word for text in texts for word in WORD.findall(text.lower())}
    return sorted(word for word in found if LEAST_WORD <= len(word) <= MOST_WORD)
