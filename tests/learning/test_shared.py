"""Past requests that a shared correction may be meant for."""

from __future__ import annotations

from array import array
from dataclasses import replace

from tests.support import feedback
from tests.support.lesson import vector

from camelid.learning.items import Exchange, Item, Message, answer_key
from camelid.learning.shared import wanted


def answer(text: str) -> Message:
    return {"role": "assistant", "content": text}


def exchange(id: str, text: str, question: str = "who are you") -> Exchange:
    messages = ({"role": "user", "content": question},)
    return replace(feedback.exchange(1), completion_id=id, messages=messages, answer=answer(text))


def corrected(*pairs: tuple[str, str]) -> list[Item]:
    return [
        Item(exchange=exchange(f"item-{i}", refused), rating=-1, correction=answer(right))
        for i, (refused, right) in enumerate(pairs)
    ]


def vector_of(each: Exchange) -> array[float]:
    return vector(each.question)


def test_a_correction_is_shared_by_three_items_without_another_right_answer() -> None:
    pico, four = ("I am cria.", "I am Pico."), ("Four.", "Five.")
    reds = [("Red.", "Blue."), ("Red.", "Green."), ("Red.", "Green.")]
    past = [exchange(text, text) for text in ("I am cria. ", "Red.", "Four.", "I am Pico.")]
    found = wanted(corrected(pico, pico, pico, four, four, *reds), past, vector_of)
    assert found == {"I am cria. ": answer_key(answer("I am Pico."))}
    both = wanted(corrected(pico, pico, pico, four, four, four), past, vector_of)
    assert set(both) == {"I am cria. ", "Four."}
    assert wanted(corrected(pico, pico), past, vector_of) == {}


def test_a_request_for_something_else_keeps_its_answer() -> None:
    """An answer to many questions is refused for those near feedback alone."""
    items = corrected(*[("I do not know.", "I am Pico.")] * 3)
    past = [
        exchange("near", "I do not know.", "tell me who you are"),
        exchange("far", "I do not know.", "what white llama eats in summer"),
    ]
    assert set(wanted(items, past, vector_of)) == {"near"}
