"""A stress shape: a spec, random weights, a plain model of the same maths, one mutation per feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tests.support.model.stress_runs import Edit, run

from camelid.model.arch import Model
from camelid.model.spec import ModelSpec
from camelid.plan.plan import Plan
from camelid.plan.weights import Weight, inline_f32

Values = Mapping[str, Any]  # float32 arrays or weights of other types, by GGUF name


def _same(x: Any) -> Any:
    return x


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One feature removed or broken: changed facts, weights or ops."""

    spec: Mapping[str, Any] = field(default_factory=dict[str, Any])
    weights: Callable[[Values], Values] = _same
    edit: Callable[[Plan], Plan] = _same


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A stress shape. `oracle` computes the logits [T, V] of `token_ids`."""

    spec: ModelSpec
    weights: Values
    token_ids: list[int]
    oracle: Callable[[], Any]
    mutations: Mapping[str, Mutation]

    def model(self, mutation: Mutation | None = None) -> Model:
        how = mutation or Mutation()
        values = how.weights(self.weights).items()
        return Model(replace(self.spec, **how.spec), {name: _weight(name, value) for name, value in values})

    def logits(self, mutation: Mutation | None = None, *, edit: Edit | None = None) -> Any:  # [T, V]
        """Logits of all rows in one step."""
        n = len(self.token_ids)
        edit = mutation.edit if mutation else edit
        return run(self.model(mutation), [self.token_ids], [(n,)], edit=edit)[0]


def _weight(name: str, value: Any) -> Weight:
    return value if isinstance(value, Weight) else inline_f32(name, value.ravel().tolist(), value.shape)


def random_ids(seed: int, n: int, vocab_size: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, vocab_size, n)]


def changed(change: Callable[[str, Any], Any], ending: str) -> Callable[[Values], Values]:
    """Replaces weights of that name ending by change(name, value); None removes them."""

    def edit(weights: Values) -> Values:
        new = {n: change(n, v) if n.endswith(ending) else v for n, v in weights.items()}
        assert any(name.endswith(ending) for name in new), ending
        return {name: value for name, value in new.items() if value is not None}

    return edit


def without(ending: str) -> Callable[[Values], Values]:
    return changed(lambda name, value: None, ending)


def filled(ending: str, number: float) -> Callable[[Values], Values]:
    return changed(lambda name, value: np.full_like(value, number), ending)
