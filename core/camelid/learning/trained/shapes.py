"""Shapes of texts, and the draft check: the base's own answer tells what kind of answer a prompt asks for.

Its first words do for a scope near its feedback. A preference of form reaches far, to prompts whose answers
begin alike and end otherwise (`l-e-m-o-n.` and `l-e-m-o-n has 5 letters.`): there the whole answer counts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

DRAFT_TOKENS = 4  # of the base's greedy answer,
WHOLE_TOKENS = 64  # or, of a wide scope, at most so many
FOUND = 0.9  # share of the feedback that must find its own shape at other feedback

DIGITS = re.compile(r"\d+")
LETTER = re.compile(r"\b[a-z]\b")
LETTERS = re.compile(r"x(?:\W+x\b)+")


def shape_of(text: str) -> str:
    """The text with every number as 0, every single letter as x, and letters in a row as x*."""
    return LETTERS.sub("x*", LETTER.sub("x", DIGITS.sub("0", text))).strip()


def shape_hash(text: str) -> str:
    """A hash of the text's shape: what is kept of an answer has none of its words."""
    return hashlib.sha256(shape_of(text).encode()).hexdigest()[:16]


def draft_shapes(drafts: Sequence[str]) -> frozenset[str] | None:
    """The hashed shapes that a draft in scope has; None if the feedback's drafts are too unlike to tell."""
    shapes = [shape_hash(draft) for draft in drafts]
    n_found = sum(shapes.count(shape) > 1 for shape in shapes)
    return frozenset(shapes) if n_found >= FOUND * len(shapes) else None
