"""The head of an adapter's scope: how near a prompt is to the feedback that the adapter has learnt from.

Weighted kernel ridge regression over features of the base model, 1 at feedback and 0 elsewhere: far from all
feedback the score is 0 by itself. Leave-one-out values have a closed form (Rasmussen and Williams, Gaussian
Processes for Machine Learning, section 5.4.2), so that the threshold is chosen on prompts that the head has
not seen. The numbers below were chosen on cria (tests/perf/learning_recipe.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.model.features import DEPTHS

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

MOST_AXES = 48  # principal components kept at each depth
SHARPNESS = 4.0  # of the kernel exp(SHARPNESS (cosine - 1))
RIDGE = 0.1
EVENT_WEIGHT = 4.0  # of feedback against the weight 1 of other prompts
OUTSIDE = 0.005  # share of past requests that may lie inside,
CHECKED = 0.05  # or, of a wide head, where the whole answer is checked, too,
FLOOR = 0.05  # whose threshold is at least this, since far from all feedback scores are about 0
LOW = 0.1  # quantile of the feedback's own leave-one-out scores,
TOWARDS = 0.25  # of the way to which the threshold rises;
NARROW = 0.5  # that of a narrower scope
WIDER = 0.15  # gain of recall from which prompts of the same kind are no negatives
PASSING, MOST_PASSING = 0.02, 0.25  # shares of the past requests that a prefilter passes at least and at most
WIDELY = 0.1  # least share that it passes where the head behind it is wide
UNSEEN = 0.05  # share of the feedback that it may miss by its leave-one-out scores


@dataclass(frozen=True, slots=True)
class Projection:
    """Features of a prompt at each depth, centred on past requests, on their principal axes, of length 1."""

    mean: F32  # [D, C]
    axes: F32  # [D, C, P]
    spread: F32  # [D, P]

    @classmethod
    def of(cls, past: F32, depths: int = len(DEPTHS)) -> Projection:
        """The projection of past requests' features [N, D * C]."""
        each = past.reshape(len(past), depths, -1).transpose(1, 0, 2).astype(np.float64)  # [D, N, C]
        mean = each.mean(axis=1)
        centred = each - mean[:, None]
        n = min(MOST_AXES, each.shape[2], len(past) - 1)
        _, lengths, rows = np.linalg.svd(centred, full_matrices=False)  # descending
        axes = rows[:, :n].transpose(0, 2, 1)
        spread = lengths[:, :n] / len(past) ** 0.5 + 1e-3
        return cls(_f32(mean), _f32(axes), _f32(spread))

    def __call__(self, features: F32) -> F32:
        """[N, D * C] -> [N, D * P]; the product of two rows is the mean of their cosines at all depths."""
        depths, width = self.mean.shape
        each = features.reshape(len(features), depths, width).transpose(1, 0, 2) - self.mean[:, None]
        placed = (each @ self.axes) / self.spread[:, None]  # [D, N, P]
        length = np.linalg.norm(placed, axis=2, keepdims=True)
        placed /= np.maximum(length, 1e-12) * depths**0.5
        return _f32(placed.transpose(1, 0, 2).reshape(len(features), depths * placed.shape[2]))


@dataclass(frozen=True, slots=True)
class ScopeHead:
    """A fitted head. `keys` [N, D * P] are feedback and other prompts, `weights` [N] their coefficients."""

    projection: Projection
    keys: F32
    weights: F32
    threshold: float

    def scores(self, features: F32) -> F32:
        """The score of each row of features [N, D * C]."""
        return _kernel(self.projection(features), self.keys) @ self.weights

    def similarities(self, features: F32) -> F32:
        """Of a prompt of these features [D * C] to each key: the mean of the cosines at all depths, [N]."""
        return self.keys @ self.projection(features[None])[0]

    def has(self, features: F32) -> bool:
        """True if the prompt of these features [D * C] is in scope."""
        return bool(self.scores(features[None])[0] > self.threshold)

    def to_arrays(self) -> Mapping[str, Any]:
        """The head in float16; its scores move by some 1e-3."""
        parts = self.projection
        arrays = {"mean": parts.mean, "axes": parts.axes, "spread": parts.spread, "keys": self.keys}
        halves = {name: array.astype(np.float16) for name, array in arrays.items()}
        return {**halves, "weights": self.weights, "threshold": np.float64(self.threshold)}

    @classmethod
    def from_arrays(cls, found: Mapping[str, Any]) -> ScopeHead:
        """The head of `to_arrays`."""
        projection = Projection(*(_f32(found[name]) for name in ("mean", "axes", "spread")))
        return cls(projection, _f32(found["keys"]), _f32(found["weights"]), float(found["threshold"]))


@dataclass(frozen=True, slots=True)
class Fitted:
    """A head and the leave-one-out scores of what it was fitted on: feedback, past requests, other prompts.

    A wide head takes past requests of the feedback's kind for no negatives; their scores are NaN. `narrow` is
    the threshold of a narrower scope.
    """

    head: ScopeHead
    events: F64
    past: F64
    others: F64
    is_wide: bool
    narrow: float


def fitted(
    events: F32, past: F32, others: F32, same_kind: npt.NDArray[np.bool_], *, is_checked: bool = False
) -> Fitted:
    """The head of feedback, past requests and further prompts outside, each as features [N, D * C].

    It is wide if leaving the past requests of the feedback's kind out of the negatives makes it find more of
    the feedback that it has not seen: a preference of form reaches far, a fact does not. With `is_checked`
    the answers of what a wide head has in scope are checked, so that it may have more.
    """
    projection = Projection.of(past)
    inside, before, beside = projection(events), projection(past), projection(others)
    none = beside[:0]
    recalls = [_Fit.of(inside, rows, none).recall for rows in (before, before[~same_kind])]
    is_wide = bool(same_kind.any()) and recalls[1] > recalls[0] + WIDER
    used = ~same_kind if is_wide else np.ones(len(before), bool)
    fit = _Fit.of(inside, before[used], beside)
    scores = np.full(len(before), np.nan)
    scores[used] = fit.past
    threshold = fit.loose_threshold if is_wide and is_checked else fit.threshold
    head = ScopeHead(projection, fit.keys, _f32(fit.weights), threshold)
    return Fitted(head, fit.events, scores, fit.others, is_wide, fit.risen(NARROW))


def prefilter(events: F32, past: F32, used: npt.NDArray[np.bool_]) -> ScopeHead | None:
    """A head over the words of a prompt and the logits after it, [N, 2 * C], which passes nearly all that a
    head over features has in scope; None if that are too many past requests. `used` are the past requests
    that the other head takes for negatives.
    """
    if not used.any():
        return None
    projection = Projection.of(past, 2)
    inside, before = projection(events), projection(past[used])
    fit = _Fit.of(inside, before, before[:0])
    passing = PASSING if used.all() else WIDELY
    threshold = min(fit.above(passing), float(np.quantile(fit.events, UNSEEN)))
    if np.mean(fit.past > threshold) > MOST_PASSING:
        return None
    return ScopeHead(projection, fit.keys, _f32(fit.weights), threshold)


@dataclass(frozen=True, slots=True)
class _Fit:
    """A fit over projected rows, with leave-one-out scores."""

    keys: F32
    weights: F64
    events: F64
    past: F64
    others: F64

    @classmethod
    def of(cls, events: F32, past: F32, others: F32) -> _Fit:
        keys = np.concatenate([events, past, others])
        wanted = np.zeros(len(keys))
        wanted[: len(events)] = 1.0
        noise = np.full(len(keys), RIDGE)
        noise[: len(events)] /= EVENT_WEIGHT
        inverse = np.linalg.inv(_kernel(keys, keys).astype(np.float64) + np.diag(noise))
        weights = inverse @ wanted
        left_out = wanted - weights / np.diag(inverse)
        ends = (len(events), len(events) + len(past))
        return cls(keys, weights, *np.split(left_out, ends))

    @property
    def outside(self) -> float:
        """The score above which OUTSIDE of the past requests lie."""
        return self.above(OUTSIDE)

    def above(self, share: float) -> float:
        """The score above which a share of the past requests lie."""
        return float(np.sort(self.past)[::-1][int(share * len(self.past))]) if len(self.past) else 0.0

    @property
    def recall(self) -> float:
        """Share of the feedback above it."""
        return float(np.mean(self.events > self.outside))

    @property
    def threshold(self) -> float:
        return self.risen(TOWARDS)

    def risen(self, share: float) -> float:
        """The score that share of the way from `outside` towards the feedback's own low scores."""
        low = float(np.quantile(self.events, LOW))
        return self.outside + share * max(0.0, low - self.outside)

    @property
    def loose_threshold(self) -> float:
        """The threshold of a head whose answers are checked: CHECKED of the past requests lie above."""
        return min(self.threshold, max(self.above(CHECKED), FLOOR))


def _kernel(a: F32, b: F32) -> F32:
    return np.exp(SHARPNESS * (a @ b.T - 1.0))


def _f32(array: npt.NDArray[Any]) -> F32:
    return np.ascontiguousarray(array, dtype=np.float32)
