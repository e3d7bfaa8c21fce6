"""Random adapters of a loaded model, and the model with their terms merged into its weights in float64."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from tests.support.model.file_runs import Loaded

from camelid import LLM
from camelid.backends.reference.store import WeightStore
from camelid.loading.start import RunningModel
from camelid.model.adapter import Adapter, LowRank
from camelid.plan.adapters import AdapterLayout, adapter_layout
from camelid.plan.weights import Weight, inline_f32


def layout_of(llm: LLM | RunningModel, rank: int = 16) -> AdapterLayout:
    deployment = (llm.running if isinstance(llm, LLM) else llm).deployment
    return adapter_layout((deployment.lowered(p) for p in deployment.programs), rank)


def random_adapter(
    llm: LLM | RunningModel,
    seed: int,
    *,
    rank: int = 3,
    scale: float = 2.0,
    invocation: tuple[int, ...] = (),
    only: Collection[str] = (),
) -> Adapter:
    """A term of each linear map, or of those whose names end with one of `only`."""
    random, terms = np.random.default_rng(seed), dict[str, LowRank]()
    for name, site in layout_of(llm).sites.items():
        if only and not name.endswith(tuple(only)):
            continue
        n = max(site.experts, 1)
        a = random.standard_normal((n, rank, site.n_in)).astype(np.float32) / np.float32(site.n_in**0.5)
        b = random.standard_normal((n, site.n_out, rank)).astype(np.float32) / np.float32(4)
        terms[name] = LowRank(
            rank=rank, n_in=site.n_in, n_out=site.n_out, scale=scale, experts=site.experts,
            a=memoryview(array("f", a.tobytes())), b=memoryview(array("f", b.tobytes())),
        )  # fmt: skip
    return Adapter(name=f"random-{seed}", terms=terms, invocation=invocation)


def merged(llm: LLM, scales: Mapping[Adapter, float]) -> Loaded:
    """The model with `W + scale * B @ A` in place of each weight of a term."""
    file, sources = llm.running.file, dict(llm.running.file.sources)
    store = WeightStore()
    store.add(list(file.model.weights.values()), sources)
    weights = dict(file.model.weights)
    for key, weight in file.model.weights.items():
        delta = sum(_delta(adapter, weight) * scale for adapter, scale in scales.items())
        if np.any(delta):
            values = store.matrix(weight).reshape(weight.shape) + delta
            weights[key] = inline_f32(weight.name, values.astype(np.float32).ravel(), weight.shape)
    return Loaded(replace(file.model, weights=weights), sources)


def _delta(adapter: Adapter, weight: Weight) -> np.ndarray:
    term = adapter.terms.get(weight.name)
    if term is None:
        return np.zeros(weight.shape)
    n = max(term.experts, 1)
    a = np.asarray(term.a, np.float64).reshape(n, term.rank, term.n_in)
    b = np.asarray(term.b, np.float64).reshape(n, term.n_out, term.rank)
    return (term.scale * b @ a).reshape(weight.shape)
