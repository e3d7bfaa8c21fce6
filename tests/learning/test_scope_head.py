"""The head of a scope beside refits, its thresholds, its prefilter and its bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.support.scope_features import features, fit

from camelid.learning.trained.acting import PromptScope
from camelid.learning.trained.memory_scope import Near
from camelid.learning.trained.scope_head import (
    CHECKED,
    EVENT_WEIGHT,
    FLOOR,
    RIDGE,
    SHARPNESS,
    fitted,
    prefilter,
)


def ridge(keys: Any, wanted: Any, noise: Any, query: Any) -> float:
    """The prediction for one row by a fit in float64, solved anew."""
    kernel = np.exp(SHARPNESS * (keys @ keys.T - 1.0)) + np.diag(noise)
    return float(np.exp(SHARPNESS * (keys @ query - 1.0)) @ np.linalg.solve(kernel, wanted))


def test_left_out_scores_are_those_of_refits() -> None:
    inside, past, beside = features(6, 1.5), features(40, 0.0), features(3, 0.0)
    found = fitted(inside, past, beside, np.zeros(40, bool))
    keys = found.head.keys.astype(np.float64)
    wanted = np.array([1.0] * 6 + [0.0] * 43)
    noise = np.array([RIDGE / EVENT_WEIGHT] * 6 + [RIDGE] * 43)
    scores = np.concatenate([found.events, found.past, found.others])
    for i in (0, 5, 6, 30, 45, 48):
        rest = np.arange(49) != i
        assert scores[i] == pytest.approx(ridge(keys[rest], wanted[rest], noise[rest], keys[i]), abs=1e-5)
    queries = features(5, 1.0)
    own = found.head.projection(queries).astype(np.float64)
    for query, score in zip(own, found.head.scores(queries), strict=True):
        assert score == pytest.approx(ridge(keys, wanted, noise, query), abs=1e-4)


def test_a_preference_of_form_is_wide_and_a_fact_is_narrow() -> None:
    """Past requests of the feedback's kind stop the head from finding it, unless they are left out."""
    kind = features(30, 1.5)
    past = np.concatenate([kind, features(60, -1.0)])
    same = np.array([True] * 30 + [False] * 60)
    none = past[:0]
    wide = fitted(features(12, 1.5), past, none, same)
    assert wide.is_wide
    assert np.isnan(wide.past).sum() == 30
    assert wide.head.scores(features(8, 1.5)).mean() > wide.head.threshold
    narrow = fitted(features(12, 4.0), past, none, same)
    assert not narrow.is_wide


def test_a_wide_head_whose_answers_are_checked_has_more_in_scope() -> None:
    past, same = np.concatenate([features(30, 1.5), features(100, 0.0)]), np.arange(130) < 30
    events = features(12, 1.5)
    strict, loose = (fitted(events, past, past[:0], same, is_checked=each) for each in (False, True))
    assert strict.is_wide and loose.is_wide
    assert loose.head.threshold < strict.head.threshold
    assert np.mean(loose.head.scores(features(200, 1.5)) > loose.head.threshold) > 0.9
    for apart in (features(200, 0.0), features(200, -1.5)):
        assert np.mean(loose.head.scores(apart) > loose.head.threshold) <= 0.1
    unlike = np.concatenate([events[:9], features(3, -3.0)])  # some of the feedback is about something else
    mixed = fitted(unlike, past, past[:0], same, is_checked=True)
    assert mixed.head.threshold >= FLOOR
    assert np.mean(mixed.past[np.isfinite(mixed.past)] > mixed.head.threshold) <= CHECKED


def test_a_narrower_scope_begins_half_way_to_the_low_scores_of_the_feedback() -> None:
    found = fitted(features(12, 1.5), features(300, 0.0), features(0, 0.0), np.zeros(300, bool))
    outside, low = sorted(found.past)[-2], np.quantile(found.events, 0.1)
    assert outside < low
    assert (found.head.threshold, found.narrow) == pytest.approx(
        (0.75 * outside + 0.25 * low, (outside + low) / 2)
    )
    scores = dict(zip(map(str, range(300)), found.past.tolist(), strict=True))
    near = Near(PromptScope(found.head, None), (1,), found.narrow, scores)
    forms = {"mix": found.head.threshold, "narrow": found.narrow}
    for form, threshold in forms.items():
        kept = Near.from_text(near.to_text())
        assert kept and kept.of(form).scope.head.threshold == threshold
        assert all(near.of(form).left_out(id) == (score > threshold) for id, score in scores.items())
    assert near.left_out("another") is None
    words = {key: value for key, value in json.loads(near.to_text()).items() if key != "narrow"}
    assert Near.from_text(json.dumps(words)) is None, "a scope of an earlier version is fitted anew"


def test_a_head_survives_its_bytes() -> None:
    found = fit(n_items=6).head
    first = prefilter(features(6, 1.5), features(40, 0.0), np.ones(40, bool))
    again, queries = PromptScope.of(PromptScope(found, None, first).to_bytes(), ["x"]), features(20, 0.7)
    assert first and again.prefilter and again.shapes == {"x"}
    for own, other in ((again.head, found), (again.prefilter, first)):
        np.testing.assert_allclose(own.scores(queries), other.scores(queries), atol=5e-3)
        assert own.threshold == other.threshold
    assert PromptScope.of(PromptScope(found, None).to_bytes(), None).prefilter is None


@pytest.mark.parametrize(("n_used", "least", "most"), [(200, 0.0, 0.05), (180, 0.05, 0.2)])
def test_a_prefilter_passes_nearly_all_of_the_feedback_and_few_others(
    n_used: int, least: float, most: float
) -> None:
    """Passes of others: more before a wide head, which leaves some of the past requests out."""
    past, used = features(200, 0.0), np.arange(200) < n_used
    found = prefilter(features(20, 1.5), past, used)
    assert found and len(found.keys) == n_used + 20
    assert np.mean(found.scores(features(100, 1.5)) > found.threshold) > 0.9
    assert least <= np.mean(found.scores(features(200, 0.0)) > found.threshold) < most
    assert prefilter(features(20, 0.0), past, used) is None, "feedback like all that is asked"
