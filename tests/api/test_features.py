"""Features of a text: the stream at several depths, judged by the head, embeddings and a model cut there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.hf_models import load_case, write_hf

import camelid
from camelid import LLM
from camelid.api.learning import side_of
from camelid.api.runner import Runner
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.reference.store import WeightStore
from camelid.errors import RequestError
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.loading.start import RunningModel, start_engine
from camelid.model.arch import Model
from camelid.model.features import tapped_layers

TEXT = "What is 12 plus 30? Tell me about camels and llamas."
N = 5  # rows that are read


def features(llm: LLM, ids: list[int], n: int = N) -> NDArray[np.float64]:
    side = side_of(llm.running, llm.builder, llm.asubmit)
    rows = llm._runner.run(side.token_features(ids, n))
    return np.array([np.asarray(row) for row in rows], np.float64)


@contextmanager
def _of(llm: LLM, model: Model) -> Iterator[LLM]:
    """A changed model on a backend of its own."""
    options, backend, runner = LoadOptions(context=llm.context), ReferenceBackend(), Runner()
    deployment = Deployment.of(model, options, backend.capabilities())
    file = replace(llm.running.file, model=deployment.model)
    engine = runner.run(start_engine(file, backend, deployment, options, lambda *_: None))
    with LLM(RunningModel(file, backend, "", deployment, engine, options), runner) as changed:
        yield changed


def nmse(got: NDArray[np.float64], want: NDArray[np.float64]) -> float:
    return float(((got - want) ** 2).sum() / (want**2).sum())


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["cria", "openelm", "deci"])  # the latter two have heads of each layer's own
def test_depths_are_the_stream(name: str, backend: str, tmp_path: Path) -> None:
    """The first depth is the embedding; norm and head of the last one give the logits."""
    source = name if name == "cria" else write_hf(tmp_path / name, load_case(name))
    with camelid.load(source, backend=backend, context=128) as llm:
        ids = llm.tokenize(TEXT) if name == "cria" else load_case(name).token_ids[0]
        file, before = llm.running.file, np.array(llm.logits(ids), np.float64)
        found, spec = features(llm, ids), file.model.spec
        assert found.shape == (N, 4 * spec.hidden_size) and llm.is_idle
        store = WeightStore()
        store.add(list(file.model.weights.values()), dict(file.sources))
        first, last = found[:, : spec.hidden_size], found[:, -spec.hidden_size :]
        rows = store.rows(file.model.weights["token_embd"], ids[-N:]) * spec.embedding_scale
        assert (first == rows.astype(np.float32)).all()
        normed = last / np.sqrt((last * last).mean(axis=1, keepdims=True) + spec.norm_eps)
        normed *= store.vector(file.model.weights["output_norm"])
        logits = normed @ store.matrix(file.model.weights["token_embd" if spec.is_tied else "output"]).T
        assert nmse(logits, before[-N:]) < (1e-13 if backend == "reference" else 1e-4)  # cpu rounds to int8
        assert (np.array(llm.logits(ids)) == before.astype(np.float32)).all()


def test_a_depth_is_the_last_one_of_a_model_cut_there() -> None:
    with camelid.load("cria", backend="reference", context=128) as llm:
        ids, model = llm.tokenize(TEXT), llm.running.file.model
        want, size = features(llm, ids), model.spec.hidden_size
        for depth, n in enumerate(tapped_layers(len(model.spec.layers))[1:], 1):
            spec = replace(model.spec, layers=model.spec.layers[:n], n_layers=n)
            with _of(llm, replace(model, spec=spec)) as cut:
                got = features(cut, ids)[:, -size:]
            assert (got == want[:, depth * size : (depth + 1) * size]).all()


def test_a_long_text_is_cut_at_its_beginning() -> None:
    with camelid.load("cria", backend="cpu", context=512) as llm:
        ids = llm.tokenize(TEXT) * 20
        assert len(ids) > 256 and (features(llm, ids) == features(llm, ids[-256:])).all()


def test_a_model_without_features_names_the_reason() -> None:
    with camelid.load("cria", backend="reference", context=64) as llm:
        model = llm.running.file.model
        layers = tuple(replace(layer, window=8) for layer in model.spec.layers)
        changed = replace(model, spec=replace(model.spec, layers=layers))
        with _of(llm, changed) as windowed, pytest.raises(RequestError, match="has no features"):
            features(windowed, [1, 2, 3])
