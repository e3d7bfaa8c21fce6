"""The size of text work: short work runs on the event loop, long work in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

INLINE_CHARS = 8 << 10  # longer prompts are rendered and tokenized in a thread


def size_of(texts: object) -> int:
    """Characters of texts, token ids, messages, tools and variables, roughly.

    Stops counting beyond INLINE_CHARS: a million token ids took 0.2 s.
    """
    if isinstance(texts, str):
        return len(texts)
    if texts is None or isinstance(texts, int | float):
        return 1
    if isinstance(texts, Mapping):
        items = cast("Mapping[object, object]", texts)
        texts = (*items, *items.values())
    size = 1
    for item in cast("Sequence[object]", texts) if isinstance(texts, list | tuple) else ():
        size += size_of(item) or 1
        if size > INLINE_CHARS:
            break
    return size
