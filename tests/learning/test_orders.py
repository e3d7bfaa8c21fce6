"""Orders of memory and a version, against counts by hand over every combination of scopes and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from tests.support.scope_features import fit

from camelid.learning.gate import Report, Trial
from camelid.learning.items import Exchange, Item, Message, answer_key
from camelid.learning.orders import ORDERS, Choice, Side, chosen, with_order
from camelid.learning.retention import Retention
from camelid.learning.rows import FORMS, MIXTURES, PastRequest
from camelid.learning.trained.acting import Acting, PromptScope
from camelid.learning.trained.adapter_bytes import adapter_to_bytes
from camelid.learning.training import Given
from camelid.model.adapter import Adapter

RIGHT, WRONG, OLD = "right", "wrong", "old"
ADAPTER = adapter_to_bytes(Adapter(name="x", terms={}))


def answer(text: str) -> Message:
    return {"role": "assistant", "content": text}


def exchange(id: str) -> Exchange:
    return Exchange(completion_id=id, messages=({"role": "user", "content": id},), answer=answer(OLD))


def given(text: str | None, *, is_excused: bool = False) -> Given:
    """An answer in scope; None is out of scope, where the base answers."""
    return Given(answer=answer(text or OLD), bits=b"", in_scope=text is not None, is_excused=is_excused)


def side(held: Sequence[str | None], kept: Sequence[str | None] = (), *, is_excused: bool = False) -> Side:
    rows = [
        (
            Item(exchange=exchange(f"{i}"), rating=-1, correction=answer(RIGHT), id=i + 1),
            given(None),
            given(text),
        )
        for i, text in enumerate(held)
    ]
    return Side(Trial(Report(name="x"), tuple(rows)), [given(text, is_excused=is_excused) for text in kept])


def retention(n: int) -> Retention:
    kept = [(PastRequest(exchange(f"past-{i}"), b""), None) for i in range(n)]
    return Retention(kept, before=[given(None)] * n)


def test_each_form_of_memory_has_orders_and_mixtures_share_theirs() -> None:
    assert set(ORDERS) == set(FORMS)
    assert len({id(ORDERS[form]) for form in MIXTURES}) == 1
    head = fit().head
    heads = PromptScope(head, None).to_bytes()
    for form, order in (("mix", "first"), ("narrow", "first"), ("turns", "after")):
        config = {"shapes": None, "order": "first", "form": form}
        assert Acting.of("x", ADAPTER, heads, config).order == order


@pytest.mark.parametrize(
    ("memory", "adapter", "want"),
    [
        ((RIGHT, RIGHT, WRONG), (RIGHT, WRONG, RIGHT), ("first", 2)),
        ((RIGHT, RIGHT, None), (RIGHT, WRONG, RIGHT), ("first", 3)),
        ((RIGHT, WRONG, WRONG), (RIGHT, None, RIGHT), ("after", 2)),
        ((None, WRONG, WRONG), (RIGHT, RIGHT, RIGHT), ("after", 3)),
        ((RIGHT, None, None), (WRONG, RIGHT, RIGHT), ("first", 3)),
    ],
)
def test_the_order_with_most_right_answers_is_chosen(
    memory: Sequence[str | None], adapter: Sequence[str | None], want: tuple[str, int]
) -> None:
    found = chosen("mix", side(memory), side(adapter), retention(0))
    assert (found.order, found.n_right) == want


def test_every_combination_of_scopes_and_answers() -> None:
    """The first actor in scope decides; without one the base, whose answer is wrong."""
    for memory, adapter in product((RIGHT, WRONG, None), repeat=2):
        found = {order: chosen_alone(order, memory, adapter) for order in ORDERS["mix"]}
        assert found["after"] == ((adapter or memory) == RIGHT)
        assert found["first"] == ((memory or adapter) == RIGHT)
        assert found["alone"] == (adapter == RIGHT)


def chosen_alone(order: str, memory: str | None, adapter: str | None) -> bool:
    only = {"mix": {order: ORDERS["mix"][order]}}  # type: ignore[index]  # a parameter of a test is a str
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("camelid.learning.orders.ORDERS", only)
        found = chosen("mix", side([memory]), side([adapter]), retention(0))
    assert found.order == order
    return bool(found.n_right)


def test_an_order_that_loses_more_than_two_past_requests_is_none() -> None:
    """Memory changes four past requests, of which the adapter has two in scope and keeps their answers."""
    memory = side([RIGHT] * 3, [WRONG] * 4)
    adapter = side([RIGHT, RIGHT, None], [OLD, OLD, None, None])
    found = chosen("mix", memory, adapter, retention(4))
    assert found == Choice("after", 3, ("past-2", "past-3"))
    adapter = side([RIGHT, RIGHT, None], [OLD, None, None, None])
    assert chosen("mix", memory, adapter, retention(4)) == Choice("alone", 2, ())


def test_what_an_adapter_is_excused_from_is_lost_by_memory() -> None:
    adapter = side([RIGHT], [WRONG] * 3, is_excused=True)
    assert chosen("mix", side([None], [None] * 3), adapter, retention(3)).lost == ()
    adapter = side([WRONG], [WRONG] * 3, is_excused=True)
    first = chosen("turns", side([RIGHT], [WRONG] * 3), adapter, retention(3))
    assert (first.order, first.n_right) == ("after", 0)
    first = chosen("turns", side([RIGHT], [WRONG] * 3, is_excused=True), adapter, retention(3))
    assert (first.order, first.n_right) == ("first", 1)


def test_the_answer_of_a_shared_correction_is_no_loss() -> None:
    meant = replace(retention(2), wanted={"past-0": answer_key(answer(RIGHT))})
    assert meant.lost([given(RIGHT), given(RIGHT)]) == ("past-1",)
    assert meant.lost([given(WRONG), given(None)]) == ("past-0",)


def test_earlier_turns_act_first_or_not_at_all() -> None:
    """A prompt has its turns before its scope is known: where an adapter acts first, there are none."""
    assert chosen("turns", side([RIGHT, RIGHT]), side([WRONG, None]), retention(0)) == Choice("first", 2, ())
    assert chosen("turns", side([RIGHT, WRONG]), side([None, RIGHT]), retention(0)) == Choice("after", 1, ())
    assert chosen("none", side([RIGHT]), side([RIGHT]), retention(0)).order == "after"


def test_a_version_with_fewer_right_answers_than_memory_is_refused() -> None:
    report = Report(name="adapter", is_accepted=True, why="good", n_items=12)
    worse = with_order(report, Choice("alone", 8, ()), "mix", 9)
    assert (worse.is_accepted, worse.n_memory, worse.n_together) == (False, 9, 8)
    assert worse.why == ("memory alone has 9 held-out items right, adapter without memory 8, 0 lost")
    equal = with_order(report, Choice("first", 9, ("past-1",)), "none", 9)
    assert equal == replace(
        report, order="first", n_memory=9, n_together=9, lost=("past-1",),
        why="good; the base has 9 held-out items right, memory before adapter 9, 1 lost",
    )  # fmt: skip
