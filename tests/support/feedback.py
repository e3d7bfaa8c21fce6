"""Items of feedback for tests, each with words of its own."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from camelid.learning.items import Exchange, Item
from camelid.learning.store.store import Store

BASE = "ab" * 32
DIM = 4


def exchange(i: int, question: str = "", answer: str = "") -> Exchange:
    return Exchange(
        completion_id=f"cmpl-{i}",
        messages=({"role": "user", "content": question or f"what is the colour of llama number {i}?"},),
        answer={"role": "assistant", "content": answer or f"Llama number {i} is woolwhite{i}."},
        prompt_ids=(1, 2, 3, i),
        answer_ids=(4, 5, i),
    )


def item(i: int, rating: int = 1, **facts: Any) -> Item:
    words = {name: facts.pop(name) for name in ("question", "answer") if name in facts}
    return Item(exchange=exchange(i, **words), rating=rating, **facts)


def vector(*values: float) -> bytes:
    return array("f", [*values, *[0.0] * (DIM - len(values))]).tobytes()


def opened(folder: Path, space: str = "local", base: str = BASE) -> Store:
    return Store.open(space, base, folder)
