"""Past requests that a shared correction may be meant for: no negatives of memory's scope."""

from __future__ import annotations

from dataclasses import replace

from tests.support import feedback

from camelid.learning.items import Exchange, Item, Message, answer_key
from camelid.learning.trained.memory_scope import _wanted


def answer(text: str) -> Message:
    return {"role": "assistant", "content": text}


def exchange(id: str, text: str) -> Exchange:
    return replace(feedback.exchange(1), completion_id=id, answer=answer(text))


def corrected(*pairs: tuple[str, str]) -> list[Item]:
    return [
        Item(exchange=exchange(f"item-{i}", refused), rating=-1, correction=answer(right))
        for i, (refused, right) in enumerate(pairs)
    ]


def test_a_correction_is_shared_by_three_items_without_another_right_answer() -> None:
    pico, four = ("I am cria.", "I am Pico."), ("Four.", "Five.")
    reds = [("Red.", "Blue."), ("Red.", "Green."), ("Red.", "Green.")]
    past = [exchange(text, text) for text in ("I am cria. ", "Red.", "Four.", "I am Pico.")]
    found = _wanted(corrected(pico, pico, pico, four, four, *reds), past)
    assert found == {"I am cria. ": answer_key(answer("I am Pico."))}
    assert set(_wanted(corrected(pico, pico, pico, four, four, four), past)) == {"I am cria. ", "Four."}
    assert _wanted(corrected(pico, pico), past) == {}
