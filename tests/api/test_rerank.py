"""Rankings by a causal model's answer: scores of transformers and sentence-transformers in float64."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.golden import make_rerank
from tests.support.exhaustive import exhaustive
from tests.support.parity.adapters import need_driver
from tests.support.tiny_rerankers import (
    DOCUMENTS,
    LAYOUTS,
    PAIRS_TEMPLATE,
    QUERY,
    write_json,
    write_reranker,
)

import camelid
from camelid.errors import ContextOverflowError, ModelFormatError, RequestError, UnsupportedModelError
from camelid.loading.convert import convert
from camelid.loading.model_file import open_model
from camelid.requests.embedding import Encoder
from camelid.text.templates.named import RERANK

SCORES = json.loads((Path(make_rerank.__file__).parent / "rerank.json").read_text())


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[camelid.LLM]:
    path = write_reranker(tmp_path_factory.mktemp("reranker") / "m", "card")
    with camelid.load(str(path), backend="cpu") as loaded:
        yield loaded


def ways() -> Iterator[object]:
    """Each layout, form and backend; in ordinary runs webgpu has one layout and form."""
    for way in product(LAYOUTS, ("directory", "gguf"), ("cpu", "reference", "webgpu")):
        yield way if way[-1] != "webgpu" or way[:2] == ("one", "gguf") else exhaustive(way)


def documents(layout: str) -> list[str]:
    return DOCUMENTS if layout == "card" else make_rerank.plain()


@pytest.mark.parametrize(("layout", "form", "backend"), [*ways()])
def test_scores_equal_those_of_the_oracle(layout: str, form: str, backend: str, tmp_path: Path) -> None:
    adapter = need_driver("llvmpipe") if backend == "webgpu" else ""
    path = write_reranker(tmp_path / "m", layout)
    if form == "gguf":
        convert(path, tmp_path / "m.gguf")
        path = tmp_path / "m.gguf"
    want = np.array(SCORES[layout])
    with camelid.load(str(path), backend=backend, adapter=adapter) as loaded:
        got = np.array(loaded.rerank(QUERY, documents(layout), normalize=False))
        assert np.square(got - want).sum() / np.square(want - want.mean()).sum() <= 1e-10
        assert np.allclose(loaded.rerank(QUERY, documents(layout)), 1 / (1 + np.exp(-want)), atol=1e-5)


def test_a_long_document_is_cut_before_the_end_of_the_template(llm: camelid.LLM, tmp_path: Path) -> None:
    long = "no fox. " * 400
    with pytest.raises(ContextOverflowError, match=r"documents\[1\] with the query has"):
        llm.rerank(QUERY, ["a", long])
    with pytest.raises(ContextOverflowError, match="query has"):
        llm.rerank(long, ["a"])
    file = asyncio.run(open_model(write_reranker(tmp_path / "m", "card")))
    (pair,) = Encoder(file, llm.context).pairs(QUERY, [long], llm.tokenizer, truncate=True)
    tail = tuple(llm.tokenizer.encode_spans([(make_rerank.SUFFIX, True)]))
    assert len(pair.prompt_ids) == llm.context and pair.prompt_ids[-len(tail) :] == tail
    assert "fox. no fox. no" in llm.tokenizer.decode(pair.prompt_ids)


def test_such_a_model_makes_no_embeddings(llm: camelid.LLM) -> None:
    with pytest.raises(RequestError, match="scores pairs"):
        llm.embed("a")


def test_a_converted_file_has_the_template_and_the_head(tmp_path: Path) -> None:
    convert(write_reranker(tmp_path / "m", "card"), tmp_path / "m.gguf")
    facts = asyncio.run(open_model(tmp_path / "m.gguf")).gguf.metadata
    assert facts["qwen3.pooling_type"] == 4 and facts["qwen3.classifier.output_labels"] == ["yes", "no"]
    assert str(facts[RERANK]).startswith(make_rerank.PREFIX) and str(facts[RERANK]).endswith(
        make_rerank.SUFFIX
    )


def test_layouts_without_a_meaning_are_refused(tmp_path: Path) -> None:
    path = write_reranker(tmp_path / "m", "scores")
    config = json.loads((path / "tokenizer_config.json").read_text())
    write_json(
        path / "tokenizer_config.json", {**config, "chat_template": "{{ messages[0].content }}{{ opening }}"}
    )
    with pytest.raises(UnsupportedModelError, match="does not show a message of the role query"):
        camelid.load(str(path), backend="cpu")
    write_json(path / "tokenizer_config.json", {**config, "chat_template": PAIRS_TEMPLATE})
    write_json(path / "1_LogitScore" / "config.json", {"true_token_id": 96})
    with pytest.raises(ModelFormatError, match="token 96, expected ids below 96"):
        camelid.load(str(path), backend="cpu")
    write_json(path / "1_LogitScore" / "config.json", {"false_token_id": 1})
    with pytest.raises(ModelFormatError, match="true_token_id is missing"):
        camelid.load(str(path), backend="cpu")
