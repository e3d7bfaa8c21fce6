"""Byte-pair merging, shared by byte-level BPE and SentencePiece BPE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from camelid.errors import ModelFormatError


def merge(symbols: list[str], ranks: Mapping[str, float | None], joiner: str = "") -> list[str]:
    """Merges the pair of lowest rank, leftmost first, until no pair has a rank. O(n log n).

    A pair's rank is that of `left + joiner + right`; None means no rank. Positions wait in one heap per rank
    and are valid only while they still begin a pair of that rank. The list `symbols` is overwritten.
    """
    n, rank_of = len(symbols), ranks.get
    after, before = list(range(1, n + 1)), list(range(-1, n - 1))
    waiting: dict[float, list[int]] = {}
    for i, (left, right) in enumerate(pairwise(symbols)):
        if (rank := rank_of(left + joiner + right)) is not None:
            waiting.setdefault(rank, []).append(i)
    queue = sorted(waiting)
    while queue:
        rank = queue[0]
        if not waiting[rank]:
            del waiting[heappop(queue)]
            continue
        i = heappop(waiting[rank])
        j = after[i]
        if j >= n or not symbols[i] or rank_of(symbols[i] + joiner + symbols[j]) != rank:
            continue
        symbols[i] += symbols[j]
        symbols[j] = ""
        after[i] = after[j]
        for left, right in ((before[i], i), (i, after[i])):
            if left >= 0 and right < n:
                before[right] = left
                if (rank := rank_of(symbols[left] + joiner + symbols[right])) is not None:
                    if rank not in waiting:
                        waiting[rank] = []
                        heappush(queue, rank)
                    heappush(waiting[rank], left)
    return [symbol for symbol in symbols if symbol]


def halves(pair: str) -> tuple[str, str]:
    """The two tokens of a listed merge.

    The left token may begin with a space, which also separates the tokens.
    """
    border = pair.find(" ", 1)
    return (pair[:border], pair[border + 1 :]) if border > 0 else (pair, "")


def text_merges(
    merges: Sequence[str], ids: Mapping[str, int], control: Container[str] = frozenset()
) -> list[str]:
    """The merges of text tokens, without the merges that make or need a token in `control`.

    Raises ModelFormatError for a repeated merge and for a token outside the vocabulary.
    """
    kept: list[str] = []
    if len(set(merges)) < len(merges):
        pair = Counter(merges).most_common(1)[0][0]
        raise ModelFormatError(f"tokenizer: the merge {pair!r:.80} is listed twice", merge=pair)
    for rank, pair in enumerate(merges):
        left, right = halves(pair)
        if left in ids and right in ids and left + right in ids:
            kept.append(pair)
            continue
        unknown = [token for token in (left, right, left + right) if token not in ids]
        if not all(token in control for token in unknown):
            raise ModelFormatError(
                f"tokenizer: merge {rank} is {pair!r:.80}, but {unknown[0]!r:.80} is not a text token of the "
                "vocabulary",
                merge=pair,
                token=unknown[0],
            )
    return kept
