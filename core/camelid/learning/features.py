"""The vector of a question: its tokens and pairs of tokens, hashed into a fixed number of floats.

Feature hashing with signs (Weinberger et al., arXiv 0902.2206) keeps inner products in expectation. The
weight of a token is the log of its id: tokenizers number their tokens by frequency, so by Zipf's law this is
its rarity up to a constant. No weights of the model are read and no program runs: a vector takes some 50 us.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from itertools import pairwise
from math import hypot, log

DIM = 256
EDGES = " \t\r\n?.!,;:\"'"
MOST_TOKENS = 512  # the last tokens of a long question


def question_text(question: str) -> str:
    """The text that is compared: small letters, without spaces and marks at the ends."""
    return f" {question.lower().strip(EDGES)}"


def question_vector(token_ids: Sequence[int]) -> array[float]:
    """The vector of a question's token ids: float32, [DIM], of length 1, or all 0 without a token."""
    ids = token_ids[-MOST_TOKENS:]
    sums = [0.0] * DIM
    for token_id in ids:
        _add(sums, b"%d" % token_id, log(2 + token_id))
    for a, b in pairwise(ids):
        _add(sums, b"%d,%d" % (a, b), (log(2 + a) + log(2 + b)) / 2)
    length = hypot(*sums)
    return array("f", [value / length for value in sums] if length else sums)


def _add(sums: list[float], gram: bytes, weight: float) -> None:
    code = zlib.crc32(gram)
    sums[code % DIM] += weight if code & 0x80000000 else -weight
