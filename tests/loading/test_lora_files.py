"""Adapters from their files at the start, in sessions, for embeddings, and selected beside loading."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from tests.support.random_adapters import random_adapter
from tests.support.served_adapters import write_gguf_adapter
from tests.support.tiny_encoders import write_encoder

import camelid
from camelid import LLM
from camelid.errors import RequestError
from camelid.loading.lora import LoraFile, scaled_files

PROMPT = "What is 12 plus 30? Tell me about camels and llamas, please."
GREEDY = {"max_tokens": 10, "temperature": 0.0, "ignore_eos": True}


def loaded(**options: object) -> LLM:
    return camelid.load("cria", backend="cpu", context=256, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    with loaded() as llm:
        words = tuple(llm.tokenize(PROMPT)[18:20])
        given = {
            "one": random_adapter(llm, 1, rank=12, scale=4.0),
            "two": random_adapter(llm, 2, rank=12),
            "late": random_adapter(llm, 3, invocation=words),
        }
        return {name: write_gguf_adapter(folder / f"{name}.gguf", llm, each) for name, each in given.items()}


def test_files_apply_and_fit_one_slot(files: dict[str, Path]) -> None:
    """Two of rank 12 act together, so the slots are wider than any of them."""
    with loaded() as llm:
        ids = llm.tokenize(PROMPT)
        llm.load_adapter(random_adapter(llm, 1, rank=12, scale=4.0), name="one")
        one, base = bytes(llm.logits(ids, adapter="one")), bytes(llm.logits(ids))
    with loaded(lora=[files["one"], files["two"]]) as llm:
        both = bytes(llm.logits(ids))
        assert (
            bytes(llm.logits(ids, adapter="one")) == one != both != base == bytes(llm.logits(ids, adapter=""))
        )
        assert [each.id for each in llm.adapters] == [1, 0] and llm.adapters[0].name == "two"


def test_an_activated_adapter_applies_where_it_is_invoked(files: dict[str, Path]) -> None:
    """As in llama.cpp, a prompt without its tokens is the base model's."""
    with loaded(lora=[files["late"]]) as llm:
        named = llm.generate(PROMPT, adapter="late", **GREEDY).token_ids
        assert llm.generate(PROMPT, **GREEDY).token_ids == named
        base = llm.generate("hello", adapter="", **GREEDY).token_ids
        assert llm.generate("hello", **GREEDY).token_ids == base
        with pytest.raises(RequestError, match="different tokens"):
            llm.load_adapter(files["one"], applies=True)
        assert [each.name for each in llm.adapters] == ["late"]


def test_words_of_flags() -> None:
    files = scaled_files(["a.gguf:0.5", "x/a.gguf", "b:-2", "c:d", "e:0"])
    assert files == [
        LoraFile(path="a.gguf", name="a", scale=0.5, applied=0.5),
        LoraFile(path="x/a.gguf", name="a-2", applied=1.0),
        LoraFile(path="b", name="b", scale=-2.0, applied=-2.0),
        LoraFile(path="c:d", name="c:d", applied=1.0),
        LoraFile(path="e", name="e", scale=1.0, applied=0.0),
    ]
    assert [each.applied for each in scaled_files(["a:0.5"], applies=False)] == [0.0]
    with pytest.raises(RequestError, match="two adapters have the name"):
        loaded(lora=["a.gguf", "b/a.gguf"])


@pytest.mark.parametrize("name", ["one", "late"])
def test_a_session_keeps_its_adapter(files: dict[str, Path], name: str, tmp_path: Path) -> None:
    """Its rows are saved with the adapter's keys, and are of use to the same adapter alone."""
    path, question = tmp_path / "saved.camelid", "And what is 2 plus 3?"
    options = {"max_tokens": 8, "temperature": 0.0}
    with loaded(lora=[LoraFile(path=str(files[name]), name="own")]) as llm:
        session = llm.session(adapter="own")
        first = session.generate(PROMPT, **options)
        assert session.cached_rows > len(first.token_ids)
        session.save(path)
        want = session.generate(question, **options)
        assert want.usage.cached_tokens > 0
    with loaded(lora=[LoraFile(path=str(files[name]), name="own")]) as llm:
        session = llm.restore(path)
        assert session.note == "" and session.cached_rows > 0 and session.options["adapter"] == "own"
        again = session.generate(question, **options)
        assert again.token_ids == want.token_ids and again.usage.cached_tokens > 0
    with loaded(lora=[LoraFile(path=str(files["two"]), name="own")]) as llm:
        session = llm.restore(path)
        assert "another adapter" in session.note and session.cached_rows == 0
        assert session.generate(question, **options).usage.cached_tokens == 0
        session.options["adapter"] = ""
        assert session.generate("Hi", **options).usage.cached_tokens == 0
    with loaded() as llm:
        session = llm.restore(path)
        assert "'own' is unknown" in session.note
        with pytest.raises(RequestError, match="'own' is unknown"):
            session.generate(question)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_embeddings_with_an_adapter(backend: str, tmp_path: Path) -> None:
    """Texts with and without share steps, and those without keep their bits."""
    path = write_encoder(tmp_path / "bert", "bert")
    with camelid.load(path, backend=backend) as llm:
        base = llm.embed(["a cat", "a dog"])
        llm.load_adapter(random_adapter(llm, 1))
        own = llm.embed(["a cat", "a dog"], adapter="random-1")
        assert np.abs(np.asarray(own) - np.asarray(base)).max() > 1e-3
        assert (
            llm.embed(["a cat", "a dog"], adapter={"random-1": 0.0}) == base == llm.embed(["a cat", "a dog"])
        )
        assert llm.embed(["a dog"], adapter="random-1") == own[1:]
        with pytest.raises(RequestError, match="unknown"):
            llm.embed("a cat", adapter="x")


def test_threads_select_while_adapters_change() -> None:
    """A pool is read on one thread and changed on another."""
    with loaded(adapter_slots=2) as llm:
        adapters = [random_adapter(llm, seed, only=("attn_q",)) for seed in range(8)]
        for adapter in adapters:
            llm.load_adapter(adapter)
        pool, errors, ends = llm.running.adapters, list[BaseException](), threading.Event()

        def select() -> None:
            try:
                while not ends.is_set():
                    found = pool.select({"random-1": 0.5, "random-2": 1.0})
                    assert found and [part.name for part in found.parts] == ["random-1", "random-2"]
                    assert pool.select(None) is None or pool.loaded
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=select) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(150):
            llm.load_adapter(adapters[3 + i % 5])
            pool.set_scales({"random-0": float(i % 2)})
            llm.unload_adapter(f"random-{3 + i % 5}")
        ends.set()
        for thread in threads:
            thread.join()
        assert not errors
