"""Memory: vectors, scope, votes, mixtures and turns; and the space that keeps it equal to its store."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
import pytest
from tests.support.feedback import BASE, exchange, item, opened

from camelid.errors import LearningError, RequestError
from camelid.learning.contexts import DIM as KEY_DIM
from camelid.learning.contexts import WEIGHT, NearestContexts
from camelid.learning.features import DIM, question_text, question_vector
from camelid.learning.items import Item
from camelid.learning.learner import Asked, Learner
from camelid.learning.memory import Memory, Recall
from camelid.learning.model_side import ModelSide
from camelid.learning.numpy_kernels import NumpyKernels
from camelid.learning.recorder import Recorder
from camelid.learning.robust import Quota, trusted, verdict
from camelid.learning.rows import NO_FORM, Contexts, PastRequest
from camelid.learning.scope import KEPT, LEAST, NARROW, START, Scope
from camelid.learning.signs import signs_of
from camelid.learning.space import Space
from camelid.learning.store.store import Store
from camelid.learning.store.versions import BASE as NO_VERSION
from camelid.learning.store.versions import Version, item_hashes, publish, undo, use
from camelid.learning.trained.memory_scope import MemoryScope
from camelid.learning.turns import with_turns
from camelid.learning.vectors import Kernels, PythonKernels, Rows

BOTH = pytest.mark.parametrize("kernels", [PythonKernels(), NumpyKernels()], ids=["python", "numpy"])


def view(values: np.ndarray) -> memoryview[float]:
    """A row of logits as a backend returns it."""
    return cast("memoryview[float]", memoryview(array("f", values.tolist())))


def unit(rng: np.random.Generator, n: int, dim: int = DIM) -> np.ndarray:
    rows = rng.normal(size=(n, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@BOTH
def test_nearest_is_the_exact_nearest(kernels: Kernels) -> None:
    values = unit(np.random.default_rng(0), 120)
    rows = Rows(DIM, kernels)
    for name, row in enumerate(values):
        rows.add(1000 + name, row.tobytes())
    for name in (1003, 1119, 1000):
        rows.remove(name)
    left = [i for i in range(120) if i not in (3, 119, 0)]
    for query in unit(np.random.default_rng(1), 5):
        found = rows.nearest(array("f", query.tobytes()), 7)
        products = values[left].astype(np.float64) @ query.astype(np.float64)
        order = np.argsort(-products)[:7]
        assert [name for _, name in found] == [1000 + left[i] for i in order]
        assert np.allclose([product for product, _ in found], products[order], atol=1e-6)


@BOTH
def test_of_equal_products_the_newest_comes_first(kernels: Kernels) -> None:
    rows = Rows(2, kernels)
    for name in range(9):
        rows.add(name, array("f", [1.0, name % 2]))
    assert [name for _, name in rows.nearest(array("f", [1.0, 0.0]), 3)] == [8, 7, 6]
    assert [name for _, name in rows.nearest(array("f", [0.0, 1.0]), 1)] == [7]
    assert Rows(2, kernels).nearest(array("f", [1.0, 0.0]), 3) == []


@BOTH
@pytest.mark.parametrize("n", [100, 512, 1000])
def test_a_sketch_is_that_of_its_definition(kernels: Kernels, n: int) -> None:
    """Centred logits, signs, sums of every DIM-th one, length 1: in NumPy float64."""
    logits = np.random.default_rng(n).normal(size=n).astype(np.float32) * 5
    logits[3] = -np.inf
    centred = np.where(np.isfinite(logits), logits - logits[np.isfinite(logits)].mean(dtype=np.float64), 0)
    padded = np.zeros(-(-n // 64) * 64)
    padded[:n] = centred * np.array(signs_of(n))
    want = padded.reshape(-1, 64).sum(0)
    found = kernels.sketch(view(logits), 64)
    assert np.allclose(found, want / np.linalg.norm(want), atol=1e-6)


def test_signs_are_the_same_for_ever() -> None:
    """A store's keys are compared with those of later processes."""
    assert "".join("+-"[s < 0] for s in signs_of(24)) == "+--+-+++++-------++--+-+"


def test_sketches_keep_similarities() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=4096).astype(np.float32)
    kernels = NumpyKernels()
    for noise in (0.1, 0.5, 2.0):
        b = a + noise * rng.normal(size=4096).astype(np.float32)
        x, y = (np.array(kernels.sketch(view(v), KEY_DIM)) for v in (a, b))
        want = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert abs(x @ y - want) < 4 / KEY_DIM**0.5


def test_the_vector_of_a_question_has_length_1_and_its_words() -> None:
    vector = np.array(question_vector([5, 6, 7, 900]))
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
    alike, other = (np.array(question_vector(ids)) for ids in ([5, 6, 7, 901], [21, 22, 23, 24]))
    assert vector @ alike > 0.2 > abs(vector @ other)
    assert not any(question_vector([]))
    assert question_text("  Who are YOU?! ") == " who are you"


def context(tokens: Sequence[int], keys: np.ndarray) -> Contexts:
    return Contexts(tuple(tokens), keys.astype(np.float32).tobytes())


@BOTH
def test_the_mixture_follows_its_definition(kernels: Kernels) -> None:
    """A softmax over the three nearest keys, weighted by the nearest; none where no key is near."""
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(6, 700)).astype(np.float32) * 4
    rows = [view(row) for row in logits]
    keys = np.frombuffer(
        b"".join(kernels.sketch(row, KEY_DIM).tobytes() for row in rows[:5]), np.float32
    ).reshape(5, KEY_DIM)
    mixer = NearestContexts.of([context([1, 2], keys[:2]), context([2, 3, 4], keys[2:])], kernels)
    for i, token in enumerate([1, 2, 2, 3, 4]):
        found = mixer.mixing(rows[i], ())
        assert found is not None
        assert found.weight == pytest.approx(WEIGHT)
        assert found.tokens[token] > 0.99
        assert sum(found.tokens.values()) == pytest.approx(1.0)
    assert mixer.mixing(rows[5], ()) is None
    near = logits[0] + 0.9 * logits[5]
    similarities = keys.astype(np.float64) @ np.array(kernels.sketch(view(near), KEY_DIM), np.float64)
    found = mixer.mixing(view(near), ())
    share = (similarities.max() - 0.6) / 0.15
    if share <= 0:
        assert found is None
    else:
        assert found is not None
        assert found.weight == pytest.approx(WEIGHT * min(share, 1.0), abs=1e-4)


def test_scope_adapts_to_items_and_requests() -> None:
    scope = Scope()
    assert scope.threshold == START
    for value in (0.5, 0.6, 0.7, 0.8, 0.9):
        scope.items.add(value)
    assert scope.threshold == scope.narrow == 0.6  # the nearest 80 of 100
    for i in range(2 * KEPT):
        scope.requests.add(0.55 * (i % 100) / 100)
    assert len(scope.requests) == KEPT
    assert scope.threshold == pytest.approx(0.539)  # 99 of 100 requests stay out
    for _ in range(KEPT):
        scope.requests.add(0.0)
    assert (scope.threshold, scope.narrow) == (LEAST, NARROW)


def voice(id: int, source: str, answer: str, rating: int = 1, right: str = "") -> Item:
    correction = {"role": "assistant", "content": right} if right else None
    return item(1, rating, question="who?", answer=answer, source=source, correction=correction, id=id)


@pytest.mark.parametrize(
    ("voices", "want"),
    [
        ([voice(1, "a", "x")], 1),
        ([voice(1, "a", "x"), voice(2, "a", "y")], 2),  # a changed mind
        ([voice(1, "a", "x"), voice(2, "a", "x", -1)], None),  # approval withdrawn
        ([voice(1, "a", "x"), voice(2, "b", "y")], None),  # a contradiction
        ([voice(1, "a", "x"), voice(2, "b", "x", -1)], None),
        ([voice(1, "a", "x"), voice(2, "b", "x"), voice(3, "c", "y")], 2),  # two against one
        ([voice(1, "a", "x"), voice(2, "b", "x"), *(voice(i, "c", "y") for i in range(3, 99))], 2),  # a flood
        ([voice(1, "a", "x", -1, right="z")], 1),
        ([voice(1, "a", "x", -1, right="x")], 1),  # an answer corrected to itself is right
        ([voice(1, "a", "x", -1)], None),
    ],
)
def test_voices_are_counted_once_each(voices: list[Item], want: int | None) -> None:
    found = verdict(voices)
    assert (found and found.id) == want


def test_no_source_outweighs_all_others() -> None:
    mine = [item(i, id=i, source="a") for i in range(1, 4)]
    flood = [item(i, id=i, source="b") for i in range(10, 90)]
    chosen = trusted([*mine, *flood])
    assert [each.source for each in chosen] == ["a"] * 3 + ["b"] * 3
    assert [each.id for each in chosen][3:] == [87, 88, 89]  # the newest
    assert trusted(flood) == flood  # alone, a source is its own majority


def test_a_quota_refills_by_a_monotonic_clock() -> None:
    now = [0.0]
    quota = Quota(per_minute=6, now=lambda: now[0])
    for _ in range(6):
        quota.spend("a")
    with pytest.raises(RequestError, match="within a minute; wait 10 s") as caught:
        quota.spend("a")
    assert caught.value.facts["reason"] == "quota"
    quota.spend("b")
    now[0] = 10.0
    quota.spend("a")
    with pytest.raises(RequestError):
        quota.spend("a")


def vector_of(i: int) -> array[float]:
    return array("f", unit(np.random.default_rng(i), 1)[0].tobytes())


def test_memory_recalls_what_acts() -> None:
    memory = Memory(PythonKernels())
    for i in range(1, 30):
        memory.add(item(i, id=i), vector_of(i).tobytes())
    found = recalled(memory, vector_of(7))
    assert (found.items[0].id, len(found.items)) == (7, 1)
    assert found.similarities[0] == pytest.approx(1.0, abs=1e-5)
    assert not recalled(memory, vector_of(999))
    memory.add(item(7, -1, id=30), vector_of(7).tobytes())  # the same prompt, refused by the same source
    assert not recalled(memory, vector_of(7))
    memory.remove(30)
    assert recalled(memory, vector_of(7)).items[0].id == 7
    memory.remove(7)
    assert not recalled(memory, vector_of(7))
    assert (len(memory), memory.n_acting) == (28, 28)


def test_earlier_turns_stand_before_the_conversation() -> None:
    right = {"role": "assistant", "content": "right"}
    near, far = (item(i, -1, id=i, correction=right) for i in (1, 2))
    told = replace(item(3, id=3), exchange=replace(exchange(3), messages=({"role": "assistant"},) * 3))
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    found = with_turns(messages, Recall((near, told, far), (0.9, 0.8, 0.7)))
    assert [message.get("content") for message in found] == [
        "s", "what is the colour of llama number 2?", "right", "what is the colour of llama number 1?",
        "right", "q",
    ]  # fmt: skip
    assert with_turns(messages, Recall()) == messages


def test_what_the_version_in_use_has_learnt_is_no_turn(tmp_path: Path) -> None:
    store = opened(tmp_path)
    items = [store.add(item(i), vector_of(i).tobytes()) for i in (1, 2)]
    space = Space(Memory(), store)
    recall = Recall(tuple(items), (0.9, 0.8))
    assert (space.replaced, recall.without(space.replaced)) == (frozenset(), recall)
    made = Version(adapter=b"a", scope=b"s", config={}, items=item_hashes(store, [1]))
    publish(store, made)
    assert recall.without(space.replaced) == Recall((items[1],), (0.8,))
    space.set_form("turns")
    asked = Asked(({"role": "user", "content": "q"},), (), vector_of(1), recall, recall, space.form)
    learner = Learner(space, cast("ModelSide", None))
    assert [len(learner.prompt(asked, names_adapter=names)) for names in (False, True)] == [3, 5]
    use(store, NO_VERSION)
    assert space.replaced == frozenset()
    config = {"form": "turns", "order": "first"}  # memory acts before the version
    publish(store, Version(adapter=b"b", scope=b"s", config=config, items=item_hashes(store, [1])))
    assert space.replaced == frozenset()
    space.close()


def test_the_form_of_memory_belongs_to_the_version_in_use(tmp_path: Path) -> None:
    """The form that a run chose with its version goes with the version, and comes back with it."""
    store = opened(tmp_path)
    stored = store.add(item(1), vector_of(1).tobytes())
    space, other = Space(Memory(), store), Space(Memory(), Store.open("local", BASE, tmp_path))

    def form() -> str:
        other.refresh()
        space.refresh()
        assert space.form == other.form
        return space.form

    for form_of_it in ("none", "turns"):
        config = {"form": form_of_it, "order": "after"}
        made = Version(adapter=b"a", scope=b"s", config=config, items=item_hashes(store, [stored.id]))
        publish(store, made)
        assert form() == form_of_it
    assert (undo(store), form()) == ("v1", "none")
    assert (undo(store), form()) == ("base", "mix")
    space.set_form("none")  # chosen by a run without a version
    assert (use(store, "v2"), form()) == ("v2", "turns")
    assert (use(store, "base"), form()) == ("base", "none")
    other.close()
    space.close()


class FailingScope:
    """A scope of memory that never gets whole, as on a store that was closed meanwhile."""

    is_whole = False

    async def fit(self, *_: object) -> None:
        raise LearningError("the store is closed")


def test_a_fit_that_fails_is_no_reason_to_settle_again(tmp_path: Path) -> None:
    space = Space(Memory(), opened(tmp_path))
    learner = Learner(space, cast("ModelSide", None), None, cast("MemoryScope", FailingScope()))
    assert not learner.is_settled
    asyncio.run(learner.settle())
    assert (learner.is_settled, space.failure) == (True, "the store is closed")
    space.close()


def spaces(folder: Path, n: int) -> list[Space]:
    found: list[Space] = []
    for _ in range(n):
        store = Store.open("local", BASE, folder)
        found.append(Space(Memory(PythonKernels()), store, Recorder(store)))
    return found


def recalled(where: Space | Memory, vector: array[float]) -> Recall:
    """The items in scope by the similarity of words."""
    memory = where.memory if isinstance(where, Space) else where
    return where.nearest(vector).within(memory.scope.threshold)


def test_two_spaces_on_one_store_agree(tmp_path: Path) -> None:
    a, b = spaces(tmp_path, 2)
    first = a.feedback(item(1), vector_of(1))
    assert recalled(b, vector_of(1)).items[0].id == first.id
    b.set_contexts(first, Contexts((1,), bytes(4 * KEY_DIM)))
    second = b.feedback(item(2), vector_of(2))
    assert recalled(a, vector_of(2)).items[0].id == second.id
    assert a.memory.mixer(recalled(a, vector_of(1))) is not None
    b.set_contexts(second, Contexts((1, 2), bytes(4 * KEY_DIM)))  # a key is missing
    assert [each.id for each in b.memory.without_contexts()] == [second.id]
    assert recalled(a, vector_of(2)).items[0].id == second.id
    assert a.memory.mixer(recalled(a, vector_of(2)).without({first.id})) is None
    a.forget(first.id)
    assert not recalled(b, vector_of(1))
    b.set_form("turns")
    a.refresh()
    assert a.form == "turns"
    for space in (a, b):
        space.close()
    (again,) = spaces(tmp_path, 1)
    assert [each.id for each in again.memory.items] == [second.id]
    again.close()


def test_past_requests_are_written_by_the_recorder(tmp_path: Path) -> None:
    (space,) = spaces(tmp_path, 1)
    for i in range(50):
        space.note(exchange(i), vector_of(i))
    end = time.monotonic() + 30
    assert space.store
    while space.store.n_requests() < 50:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert space.store.requests()[7] == PastRequest(exchange(7), vector_of(7).tobytes())
    space.note(exchange(77), vector_of(7))
    space.close()
    store = Store.open("local", BASE, tmp_path)
    assert store.request("cmpl-77") == exchange(77)
    store.close()


def test_a_page_keeps_feedback_in_memory() -> None:
    space = Space(Memory(PythonKernels()))
    ids = [space.feedback(item(i), vector_of(i)).id for i in (1, 2)]
    assert ids == [1, 2]
    assert recalled(space, vector_of(2)).items[0].id == 2
    assert space.forget(2) is None
    assert not recalled(space, vector_of(2))
    with pytest.raises(RequestError, match="there is no item 2"):
        space.forget(2)
    space.set_form(NO_FORM)
    space.close()


def test_ids_are_random_numbers_apart() -> None:
    rng = Random(0)
    memory = Memory(PythonKernels())
    for id in rng.sample(range(10**6), 5):
        memory.add(item(id, id=id), vector_of(id).tobytes())
    assert [each.id for each in memory.without_contexts()] == [each.id for each in reversed(memory.items)]
