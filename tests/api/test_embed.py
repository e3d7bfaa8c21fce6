"""Embeddings and rankings of tiny encoders whose hidden states transformers computed in float64."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.hf_models import load_case, nmse
from tests.support.parity.adapters import need_driver
from tests.support.tiny_encoders import write_encoder

import camelid
from camelid.errors import ContextOverflowError, RequestError, UnsupportedModelError
from camelid.loading.convert import convert

BERT = load_case("bert")
LONGEST = 48  # positions of the golden models
POOLED = {"mean": lambda rows: rows.mean(0), "cls": lambda rows: rows[0], "last": lambda rows: rows[-1]}
MANY = [[5 + (i * j) % 90 for j in range(1 + i % 40)] for i in range(150)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder") / "bert")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[camelid.LLM]:
    with camelid.load(str(folder), backend="cpu") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[camelid.LLM]:
    path = write_encoder(tmp_path_factory.mktemp("ranker") / "bert", "bert_ranking", pooling="")
    with camelid.load(str(path), backend="cpu") as loaded:
        yield loaded


def unit(rows: Any) -> NDArray[np.float64]:
    values = np.asarray(rows, "f8")
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


@pytest.mark.parametrize("backend", ["cpu", "reference", "webgpu"])
@pytest.mark.parametrize("pooling", POOLED)
@pytest.mark.parametrize("form", ["directory", "gguf"])
def test_embeddings_equal_those_of_transformers(
    pooling: str, backend: str, form: str, tmp_path: Path
) -> None:
    adapter = need_driver("llvmpipe") if backend == "webgpu" else ""
    path = write_encoder(tmp_path / "bert", pooling=pooling)
    if form == "gguf":
        convert(path, tmp_path / "bert.gguf")
        path = tmp_path / "bert.gguf"
    want = [POOLED[pooling](np.asarray(rows, "f8")) for rows in BERT.logits]
    with camelid.load(str(path), backend=backend, adapter=adapter) as loaded:
        assert nmse([np.array(loaded.embed(BERT.token_ids, normalize=False))], [np.array(want)]) <= 1e-10
        assert np.allclose(loaded.embed(BERT.token_ids), unit(want), atol=1e-6)


def test_company_and_order_change_no_bit(llm: camelid.LLM) -> None:
    alone = [llm.embed([ids])[0] for ids in MANY]
    steps = llm.counters.steps_submitted
    assert llm.embed(MANY) == alone
    assert llm.embed(MANY[::-1]) == alone[::-1]
    assert llm.counters.steps_submitted - steps < len(MANY) / 10, "texts did not share steps"


def test_company_changes_no_bit_on_webgpu(folder: Path) -> None:
    with camelid.load(str(folder), backend="webgpu", adapter=need_driver("llvmpipe")) as llm:
        alone = [llm.embed([ids])[0] for ids in MANY[::9]]
        steps = llm.counters.steps_submitted
        assert llm.embed(MANY)[::9] == alone
        assert llm.embed(MANY[::-1])[::-9] == alone
        assert llm.counters.steps_submitted - steps < len(MANY) / 10, "texts did not share steps"


def test_requests_at_once_share_steps(folder: Path) -> None:
    async def all_at_once() -> list[Any]:
        async with await camelid.aload(str(folder), backend="cpu") as loaded:
            return [await asyncio.gather(*(loaded.aembed([ids]) for ids in MANY[:20])), loaded.counters]

    (found, counters) = asyncio.run(all_at_once())
    assert len(found) == counters.encoded == 20 > counters.steps_submitted


def test_a_text_is_framed_and_prompted(llm: camelid.LLM) -> None:
    a, b, letters = 5, 6, [31 + i for i in range(26)]
    assert llm.embed("ab") == llm.embed([[2, a, letters[1], 3]])
    assert llm.embed(["a b", "A  B"]) == llm.embed([[2, a, b, 3]]) * 2
    assert llm.embed("") == llm.embed([[2, 3]])
    assert llm.embed("a", prompt="query") == llm.embed("ask: a") == llm.embed("a", prompt="ask: ")
    assert llm.embed("a", prompt="document") == llm.embed("a", prompt="") == llm.embed("a")
    assert llm.embed("[SEP]") != llm.embed([[2, 3, 3]]), "text became a control token"


def test_dimensions_and_lengths(llm: camelid.LLM) -> None:
    whole, raw = llm.embed("hello")[0], llm.embed("hello", normalize=False)[0]
    assert abs(sum(x * x for x in whole) - 1) < 1e-12 and len(whole) == 64
    assert np.allclose(unit(raw), whole)
    assert np.allclose(llm.embed("hello", dimensions=8)[0], unit(raw[:8]))
    assert llm.embed("hello", dimensions=64, normalize=False)[0] == raw
    assert llm.embed([]) == []


def test_texts_beyond_the_context_are_refused_or_cut(llm: camelid.LLM, folder: Path) -> None:
    text = "a " * LONGEST
    with pytest.raises(ContextOverflowError, match=r"input\[1\] has 50 tokens, more than the 48"):
        llm.embed(["a", text])
    assert llm.embed(text, truncate=True) == llm.embed([[2, *[5] * (LONGEST - 2), 3]])
    assert llm.embed([[5] * 99], truncate=True) == llm.embed([[5] * LONGEST])
    with camelid.load(str(folder), backend="cpu", context=8) as short:
        assert short.embed(text, truncate=True) == llm.embed([[2, *[5] * 6, 3]])


def test_the_longest_text_of_the_training_is_the_context(tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "m", length=16)
    convert(path, tmp_path / "m.gguf")
    for form in (path, tmp_path / "m.gguf"):
        with camelid.load(str(form), backend="cpu") as loaded:
            assert loaded.context == 16
    with camelid.load(str(path), backend="cpu", context=48) as loaded:
        assert loaded.context == 48


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        (5, {}, "input is 5"),
        ({"a": 1}, {}, "input is dict"),
        (b"a", {}, "input is"),
        ([None], {}, r"input\[0\] is None"),
        (["a", ["b"]], {}, r"input\[1\] is"),
        ([[True]], {}, r"input\[0\] is"),
        ([[]], {}, r"input\[0\] is empty"),
        ([[96]], {}, "outside the vocabulary of 96"),
        ([[-1]], {}, "outside the vocabulary"),
        (["a"], {"dimensions": 0}, "dimensions is 0"),
        (["a"], {"dimensions": 65}, "dimensions is 65, expected an integer from 1 up to 64"),
        (["a"], {"prompt": "qeury"}, "prompt is 'qeury'; the model has query, document"),
        (["a"], {"prompt": 3}, "prompt is 3"),
        (["\ud800"], {}, "surrogate"),
    ],
)  # fmt: skip
def test_bad_texts_are_refused(llm: camelid.LLM, texts: Any, options: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        llm.embed(texts, **options)
    assert llm.is_idle


def test_models_of_other_kinds_say_so(llm: camelid.LLM, ranker: camelid.LLM, tmp_path: Path) -> None:
    with camelid.load("cria") as chat:
        with pytest.raises(RequestError, match="makes no embeddings: it generates text"):
            chat.embed("a")
        with pytest.raises(RequestError, match="makes no rankings"):
            chat.rerank("a", ["b"])
    with pytest.raises(RequestError, match="makes no embeddings: it scores pairs"):
        ranker.embed("a")
    with pytest.raises(RequestError, match="no ranking head"):
        llm.rerank("a", ["b"])
    for call in (lambda: llm.generate("a"), lambda: llm.logits([5]), lambda: next(llm.stream("a"))):
        with pytest.raises(RequestError, match="generates no text: it makes embeddings"):
            call()
    bare = write_encoder(tmp_path / "m", pooling="")
    with camelid.load(str(bare), backend="cpu") as rows, pytest.raises(RequestError, match="no pooling"):
        rows.embed("a")


def test_rankings_have_both_texts_and_their_types(ranker: camelid.LLM) -> None:
    """The golden scores are of three labels, which have no single relevance; so the logits are compared."""
    case = load_case("bert_ranking")
    ids = case.token_ids[0]
    n = case.token_types(ids).index(1)
    engine = ranker.running.engine
    from camelid.api.embed import Embedder
    from camelid.engine.request import Request
    from camelid.requests.build import RequestBuilder
    from camelid.requests.embedding import GREEDY

    embedder = Embedder(ranker.running, RequestBuilder(ranker.running.file))
    types = (0,) * n + (1,) * (len(ids) - n)
    request = Request(prompt_ids=tuple(ids), sampling=GREEDY, encodes=True, token_types=types, reuses=False)
    (rows,) = asyncio.run(embedder.run([request]))
    assert engine.is_idle and nmse([np.array(rows)], [case.logits[0]]) <= 1e-10
    pair = embedder.encoder.pairs("a b", ["c"], ranker.tokenizer, truncate=False)[0]
    assert (pair.prompt_ids, pair.token_types) == ((2, 5, 6, 3, 7, 3), (0, 0, 0, 0, 1, 1))
    with pytest.raises(RequestError, match="the ranking head has 3 labels"):
        ranker.rerank("a", ["b"])


def test_long_documents_are_refused_or_cut(ranker: camelid.LLM) -> None:
    from camelid.requests.embedding import Encoder

    encoder = Encoder(ranker.running.file, ranker.context)
    text = "a " * LONGEST
    with pytest.raises(ContextOverflowError, match=r"documents\[1\] with the query has 52 tokens"):
        encoder.pairs("b", ["a", text], ranker.tokenizer, truncate=False)
    cut = encoder.pairs("b", [text], ranker.tokenizer, truncate=True)[0]
    assert cut.prompt_ids == (2, 6, 3, *[5] * (LONGEST - 4), 3)
    with pytest.raises(ContextOverflowError, match="query has"):
        encoder.pairs(text, ["b"], ranker.tokenizer, truncate=True)


def test_weights_that_are_no_numbers_are_an_error(tmp_path: Path) -> None:
    from tests.support.hf_models import weights_of, write_safetensors

    path, weights = write_encoder(tmp_path / "m"), weights_of(BERT)
    weights["embeddings.LayerNorm.bias"] = np.full(64, np.nan, np.float32)
    write_safetensors(path / "model.safetensors", weights)
    with camelid.load(str(path), backend="cpu") as broken:
        with pytest.raises(camelid.CamelidError, match="the floats after 2 tokens are not a number"):
            broken.embed("")
        assert broken.is_idle


@pytest.mark.parametrize("file", ["modules.json", "1_Pooling/config.json"])
def test_a_broken_settings_file_is_named(file: str, tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "m")
    (path / file).write_text("{")
    with pytest.raises(camelid.CamelidError, match=file):
        camelid.load(str(path))


def test_poolings_that_no_op_has_are_refused(tmp_path: Path) -> None:
    from tests.support.tiny_encoders import write_modules

    path = write_encoder(tmp_path / "m")
    write_modules(path, {"pooling_mode_max_tokens": True})
    with pytest.raises(UnsupportedModelError, match="pooling_mode is max"):
        camelid.load(str(path))
    write_modules(path, {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True})
    with pytest.raises(UnsupportedModelError, match="pooling_mode is cls, mean"):
        camelid.load(str(path))
    write_modules(path, {"pooling_mode": "mean", "include_prompt": False})
    with pytest.raises(UnsupportedModelError, match="include_prompt"):
        camelid.load(str(path))
    write_modules(path, {"pooling_mode": "mean"}, "LayerNorm")
    with pytest.raises(UnsupportedModelError, match="modules is Transformer, Pooling, LayerNorm"):
        camelid.load(str(path))


def test_a_pooling_by_option(folder: Path, llm: camelid.LLM, tmp_path: Path) -> None:
    """A file that states none, another than the file's, and a decoder that generates text otherwise."""
    bare = write_encoder(tmp_path / "bare", pooling="")
    with camelid.load(str(bare), backend="cpu", pooling="mean") as loaded:
        assert loaded.embed(MANY[:3]) == llm.embed(MANY[:3])
    with camelid.load(str(folder), backend="cpu", pooling="last") as loaded:
        want = unit([np.asarray(rows, "f8")[-1] for rows in BERT.logits])
        assert np.allclose(loaded.embed(BERT.token_ids), want, atol=1e-6)
    with camelid.load("cria", backend="cpu", pooling="last") as decoder:
        assert len(decoder.embed("hello")[0]) == decoder.spec.hidden_size
        with pytest.raises(RequestError, match="generates no text"):
            decoder.generate("hello")
    with pytest.raises(RequestError, match="pooling is 'max', expected none, mean, cls, last"):
        camelid.load("cria", pooling="max")
