"""Models with an encoder and a decoder: answers as transformers makes them, in company, and refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.hf_models import halves, load_case, nmse
from tests.support.parity.adapters import need_driver
from tests.support.tiny_transducers import write_transducer

import camelid
from camelid.errors import CamelidError, ContextOverflowError, RequestError, UnsupportedModelError
from camelid.loading.convert import convert

FILE = Path(__file__).parents[1] / "golden" / "transduced.json"
ANSWERS: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text())
END = 1
CONTEXT = 256
TEXTS = ["a", "worda is wordb", "sin " * 40, "translate english to german: wordc", "z z z", "wordz " * 90]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_transducer(tmp_path_factory.mktemp("t5") / "flan_t5")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[camelid.LLM]:
    with camelid.load(str(folder), backend="cpu") as loaded:
        yield loaded


@pytest.mark.parametrize("form", ["directory", "gguf"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", ANSWERS)
def test_greedy_answers_equal_those_of_transformers(
    name: str, backend: str, form: str, tmp_path: Path
) -> None:
    path = write_transducer(tmp_path / name, name)
    if form == "gguf":
        convert(path, tmp_path / "m.gguf", to="f32")
        path = tmp_path / "m.gguf"
    with camelid.load(str(path), backend=backend) as loaded:
        check_answers(loaded, name)


@pytest.mark.parity
@pytest.mark.parametrize("name", share_of(ANSWERS))
def test_greedy_answers_on_webgpu_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    path, adapter = write_transducer(tmp_path / name, name), need_driver("llvmpipe")
    with camelid.load(str(path), backend="webgpu", adapter=adapter) as loaded:
        check_answers(loaded, name)


def check_answers(loaded: camelid.LLM, name: str) -> None:
    for row in ANSWERS[name]:
        found = loaded.generate(row["prompt"], temperature=0.0, max_tokens=len(row["answer"]))
        assert loaded.generate(row["ids"], temperature=0.0, max_tokens=24).token_ids == found.token_ids
        assert found.token_ids == [i for i in row["answer"] if i != END]
        assert found.text == row["text"]
        assert found.usage.prompt_tokens == len(row["ids"])


def test_streamed_texts_join_to_the_answer(llm: camelid.LLM) -> None:
    row = ANSWERS["flan_t5"][2]
    events = list(llm.stream(row["prompt"], temperature=0.0, max_tokens=24))
    assert "".join(event.text for event in events) == row["text"]


def test_logits_equal_those_of_transformers(llm: camelid.LLM) -> None:
    case = load_case("flan_t5")
    pairs = [halves(ids) for ids in case.token_ids]
    got = [np.asarray(llm.logits(target, source_ids=source)) for source, target in pairs]
    assert nmse(got, case.logits) <= 1e-10


Draws = list[tuple[int | None, float]]


async def answer(llm: camelid.LLM, text: str) -> Draws:
    """Drawn tokens with their log-probabilities, whose bits show any difference of logits."""
    events = llm.astream(text, temperature=0.9, seed=7, max_tokens=70, ignore_eos=True)
    return [(event.token_id, event.logprob) async for event in events]


async def together(llm: camelid.LLM, texts: list[str]) -> list[Draws]:
    return await asyncio.gather(*(answer(llm, text) for text in texts))


@pytest.mark.parametrize(
    "options",
    [
        {"parallel": 6},
        {"parallel": 2, "chunk": 3, "max_in_flight": 1},
        {"parallel": 6, "kv_rows": 128},  # answers of 71 rows: sequences are preempted, and encoded again
    ],
    ids=str,
)
@pytest.mark.parametrize("backend", share_of(["cpu", "reference"]))
def test_company_changes_no_bit(folder: Path, backend: str, options: dict[str, Any]) -> None:
    with camelid.load(str(folder), backend=backend, parallel=1) as loaded:
        alone = [asyncio.run(answer(loaded, text)) for text in TEXTS]
    with camelid.load(str(folder), backend=backend, **options) as loaded:
        assert asyncio.run(together(loaded, TEXTS)) == alone
        assert loaded.is_idle
        assert ("kv_rows" in options) == (loaded.counters.preemptions > 0)


def test_no_answer_reads_another_requests_source(llm: camelid.LLM) -> None:
    """One decoder prompt for all: a shared row would show in the second answer."""
    first, second = (llm.generate(text, temperature=0.0, max_tokens=20) for text in TEXTS[:2])
    assert first.token_ids != second.token_ids
    assert llm.generate(TEXTS[0], temperature=0.0, max_tokens=20).token_ids == first.token_ids
    assert llm.counters.prefix_hits == 0


def test_speculation_changes_no_token(llm: camelid.LLM) -> None:
    plain, drafted = (
        llm.generate(TEXTS[2], temperature=0.0, max_tokens=30, ignore_eos=True, speculate=how)
        for how in (None, "ngram")
    )
    assert plain.token_ids == drafted.token_ids
    assert llm.counters.accepted


def test_samplers_of_the_host_and_grammars_draw_the_first_token(llm: camelid.LLM) -> None:
    assert llm.generate("a", regex="(a|b) c+", max_tokens=6, seed=3).text.startswith(("a c", "b c"))
    options = {"typical_p": 0.9, "seed": 3, "max_tokens": 6, "logprobs": 2}
    assert llm.generate("a", **options).token_ids == llm.generate("a", **options).token_ids


def test_a_grammars_first_token_waits_for_the_encoder(llm: camelid.LLM) -> None:
    """One step has no room for all sources, so that grammars of the first run meanwhile."""
    options: dict[str, Any] = {"regex": "([a-e] )+", "temperature": 0.0, "max_tokens": 8}
    texts = [f"{letter} " * 200 for letter in "abc"]

    async def at_once() -> list[list[int]]:
        found = await asyncio.gather(*(llm.agenerate(text, **options) for text in texts))
        return [each.token_ids for each in found]

    assert asyncio.run(at_once()) == [llm.generate(text, **options).token_ids for text in texts]


def test_a_fork_continues_as_its_parent(llm: camelid.LLM) -> None:
    async def forked() -> tuple[list[int], list[int]]:
        stream = await llm.asubmit(llm.request(TEXTS[3], temperature=0.0, max_tokens=12, ignore_eos=True))
        await anext(stream)
        child = await llm.running.engine.fork(stream.id, choice=1)
        for each in (stream, child):
            async for _ in each:
                pass
        return stream.completion.token_ids, child.completion.token_ids

    parent, child = asyncio.run(forked())
    assert parent == child and len(parent) == 12


def test_a_pooling_leaves_the_encoder(folder: Path, tmp_path: Path) -> None:
    """The class T5EncoderModel reads the same file without its decoder."""
    encoder = write_transducer(tmp_path / "encoder")
    config = json.loads((encoder / "config.json").read_text())
    (encoder / "config.json").write_text(json.dumps({**config, "architectures": ["T5EncoderModel"]}))
    rows = []
    for path in (folder, encoder):
        with camelid.load(str(path), backend="cpu", pooling="mean") as loaded:
            rows.append(loaded.embed(TEXTS[1]))
    assert rows[0] == rows[1]


REFUSALS: list[tuple[Callable[[camelid.LLM], object], type[CamelidError], str]] = [
    (lambda m: m.chat([{"role": "user", "content": "a"}]), UnsupportedModelError, "no chat template"),
    (lambda m: m.session(), RequestError, "has an encoder, so its answers do not continue"),
    (lambda m: m.generate([]), RequestError, "the prompt is empty"),
    (lambda m: m.generate([5, 96]), RequestError, "prompt token 96 is outside the vocabulary"),
    (lambda m: m.generate("a " * 300), ContextOverflowError, "301 tokens, but the encoder reads at most 256"),
    (lambda m: m.generate("a", overflow="shift"), RequestError, "which an encoder reads whole"),
    (lambda m: m.generate("a", max_tokens=CONTEXT), ContextOverflowError, "256 to answer exceed"),
    (lambda m: m.logits([0, 1]), RequestError, "source_ids has 0 tokens, expected 1 to 256"),
    (lambda m: m.embed("a"), RequestError, "makes no embeddings"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSALS)
def test_refusals(
    llm: camelid.LLM, call: Callable[[camelid.LLM], object], error: type[CamelidError], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(llm)
    assert llm.is_idle


def test_a_draft_model_is_refused(llm: camelid.LLM, folder: Path) -> None:
    with (
        camelid.load(str(folder), backend="cpu") as draft,
        pytest.raises(RequestError, match="needs the encoder's too; leave speculate out"),
    ):
        llm.generate("a", speculate=draft)


def test_a_decoder_has_no_source() -> None:
    with (
        camelid.load("cria", backend="cpu") as loaded,
        pytest.raises(RequestError, match="source_ids has 2 tokens, expected none"),
    ):
        loaded.logits([1, 2], source_ids=[3, 4])


@pytest.mark.parametrize(
    "options", [{"gpu_layers": 1}, {"tensor_parallel": 2, "backend": "reference"}], ids=str
)
def test_several_devices_are_refused(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="a model with an encoder runs on one device"):
        camelid.load(str(folder), **{"backend": "cpu", **options})
