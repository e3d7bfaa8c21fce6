"""Routes of requests by the order of the version in use: the first actor in scope, as the gate has judged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

import pytest
from tests.learning.test_memory import vector_of
from tests.support.feedback import item

from camelid.engine.request import Request
from camelid.learning.learner import Asked, Learner, Turn
from camelid.learning.memory import Memory, Recall
from camelid.learning.orders import ORDERS, Order
from camelid.learning.rows import FORMS
from camelid.learning.space import Space
from camelid.learning.trained.acting import Acting
from camelid.learning.trained.memory_scope import Near
from camelid.learning.trained.routing import Candidates, Look, Router

NEWEST = 7  # item of the version
REQUEST = Request(prompt_ids=(1,))
MIXED, ADAPTED = (replace(REQUEST, **{name: cast("Any", name)}) for name in ("mixer", "adapter"))
CASES = list(product(ORDERS["mix"], (NEWEST, NEWEST + 1), (True, False), (True, False)))


class Words:
    """A model's side, as far as a question is looked at."""

    def vector(self, _: str) -> object:
        return vector_of(1)


@dataclass
class Scope:
    """A scope with or without the prompt."""

    inside: bool


@dataclass
class Items:
    """Memory's scope, and the item nearest to the prompt."""

    scope: Scope
    item: int

    def nearest(self, *_: object) -> list[int]:
        return [self.item, 1]


def acting(order: Order, inside: bool) -> Acting:
    return Acting(cast("Any", None), cast("Any", Scope(inside)), order, NEWEST)


def wanted(order: Order, item: int, in_memory: bool, in_version: bool) -> Request:
    """The request of the first in scope: memory's newer items, then by the order that the gate chose."""
    actors: Sequence[str] = ("memory", "adapter") if item > NEWEST else ORDERS["mix"][order]
    inside = {"memory": (in_memory, MIXED), "adapter": (in_version, ADAPTED)}
    return next((request for is_in, request in map(inside.__getitem__, actors) if is_in), REQUEST)


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_in(_: Look, scope: Scope) -> bool:
        return scope.inside

    async def features(_: Look) -> None:
        return None

    async def selected(*_: object) -> Request:
        return ADAPTED

    monkeypatch.setattr(Look, "is_in", is_in)
    monkeypatch.setattr(Look, "features", features)
    monkeypatch.setattr(Router, "_selected", selected)


@pytest.mark.parametrize(("order", "item", "in_memory", "in_version"), CASES)
@pytest.mark.usefixtures("patched")
def test_the_first_in_scope_acts(order: Order, item: int, in_memory: bool, in_version: bool) -> None:
    near = cast("Near", Items(Scope(in_memory), item))
    looked = Router(cast("Any", None), cast("Any", None)).looked
    found = Candidates(acting(order, in_version), near)
    want = wanted(order, item, in_memory, in_version)
    assert asyncio.run(looked(REQUEST, found, lambda _: MIXED)) == want
    alone = asyncio.run(looked(REQUEST, Candidates(None, near), lambda _: MIXED))
    assert alone == (MIXED if in_memory else REQUEST)
    # A request with speculation has no mixture: the version acts, whatever the order.
    assert asyncio.run(looked(REQUEST, found, lambda _: REQUEST)) == (ADAPTED if in_version else REQUEST)


def test_a_narrower_scope_by_the_similarity_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space(Memory())
    near = Recall((item(1), item(2), item(3)), (0.6, 0.52, 0.4))
    monkeypatch.setattr(Space, "nearest", lambda *_: near)
    learner, found = Learner(space, cast("Any", Words())), dict[str, int]()
    for form in FORMS:
        space.set_form(form)
        asked = learner.asked("who are you", {})
        assert asked
        found[form] = len(asked.recall.items)
    assert found == {"mix": 2, "narrow": 1, "turns": 2, "none": 2}


@pytest.mark.parametrize(("order", "number", "in_memory", "in_version"), CASES)
def test_the_first_in_scope_acts_by_the_similarity_of_words(
    order: Order, number: int, in_memory: bool, in_version: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "_mixed", lambda _, request, asked: MIXED if asked.recall else request)
    recall = Recall((item(1, id=number),), (0.9,)) if in_memory else Recall()
    asked = Asked((), (), vector_of(1), recall, recall)
    turn = Turn(asked, "", adapts=True, is_at_once=True, has_turns=False, is_undecided=False)
    learner = Learner(Space(Memory()), cast("Any", None))
    base, found = learner._by_words(turn, REQUEST, Candidates(acting(order, in_version), None))
    assert (ADAPTED if found and in_version else base) == wanted(order, number, in_memory, in_version)
    assert learner._by_words(turn, REQUEST, None) == (MIXED if in_memory else REQUEST, None)
