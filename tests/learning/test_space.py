"""A space beside other processes, and its past requests."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.learning.test_memory import unit, vector_of
from tests.support.feedback import exchange, item, opened
from tests.support.scope_features import fit

from camelid.errors import LearningError
from camelid.learning.memory import Memory
from camelid.learning.rows import FEWEST_PAST, MEMORY_SCOPE, PastRequest
from camelid.learning.space import Space
from camelid.learning.store.store import Store
from camelid.learning.trained.acting import PromptScope
from camelid.learning.trained.memory_scope import Near


def test_a_scope_fitted_before_another_process_forgets_is_dropped(tmp_path: Path) -> None:
    space, other = (Space(Memory(), opened(tmp_path)) for _ in range(2))
    for i in (1, 2):
        space.feedback(item(i), vector_of(i))
    head = fit().head
    near, n_changes = Near(PromptScope(head, None), (1, 2), 0.7), space.memory.n_changes
    other.refresh()
    other.forget(1)
    space.set_near(near, n_changes)
    assert space.near is None
    assert space.store and space.store.fact(MEMORY_SCOPE) is None
    other.close()
    space.close()


def test_a_whole_scope_goes_before_one_that_lacks_prompts(tmp_path: Path) -> None:
    """Also that of another process."""
    space, other = (Space(Memory(), opened(tmp_path)) for _ in range(2))
    for i in (1, 2):
        space.feedback(item(i), vector_of(i))
    other.refresh()
    head = fit().head
    whole, partial = (Near(PromptScope(head, None), (1, 2), narrow) for narrow in (0.7, 0.8))
    other.set_near(partial, other.memory.n_changes, is_whole=False)
    assert other.near is partial and not other.has_whole_scope
    space.set_near(whole, space.memory.n_changes)
    other.refresh()
    assert other.near and (other.near.narrow, other.has_whole_scope) == (0.7, True)
    for each, is_whole in ((partial, False), (None, False), (None, True)):
        space.set_near(each, space.memory.n_changes, is_whole=is_whole)
        assert space.near is whole and space.has_whole_scope
    space.feedback(item(3), vector_of(3))
    assert space.near is None and not space.has_whole_scope
    other.close()
    space.close()


def test_an_item_whose_bytes_wait_for_another_process_acts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Space(Memory(), opened(tmp_path))
    space.feedback(item(1), vector_of(1))
    monkeypatch.setattr(Store, "scrub", lambda _: False)
    with pytest.raises(LearningError, match="another process still reads"):
        space.forget(1)
    assert (space.memory.items, space.memory.n_acting) == ([], 0)
    space.close()


@pytest.mark.parametrize("n_decided", [10, FEWEST_PAST + 10])
def test_requests_near_feedback_before_the_fit_fill_up_the_past(tmp_path: Path, n_decided: int) -> None:
    """The farthest of them, to FEWEST_PAST; with enough others, none. What feedback acted on never does."""
    space = Space(Memory(), opened(tmp_path))
    assert space.store
    direction = unit(np.random.default_rng(0), 1)[0]
    space.feedback(item(999), array("f", direction.tolist()))
    others = unit(np.random.default_rng(1), 200)
    vectors = {i: 0.4 * direction + 0.01 * i * others[i] for i in range(200)}  # the later, the farther
    for i in range(n_decided + 80):
        each = replace(
            exchange(i), is_undecided=n_decided <= i < n_decided + 70, is_learnt=i >= n_decided + 70
        )
        vector = vectors[i % 200] / np.linalg.norm(vectors[i % 200])
        space.store.add_requests([PastRequest(each, vector.astype(np.float32).tobytes())])
    names = [each.completion_id for each in space.past]
    decided = [f"cmpl-{i}" for i in range(n_decided)]
    n_more = max(FEWEST_PAST - n_decided, 0)
    similarity = {
        f"cmpl-{i}": float(direction @ vectors[i % 200] / np.linalg.norm(vectors[i % 200]))
        for i in range(n_decided, n_decided + 70)
    }
    farthest = sorted(similarity, key=lambda name: similarity[name])[:n_more]
    assert names == [*decided, *sorted(farthest, key=lambda name: int(name.removeprefix("cmpl-")))]
    space.close()
