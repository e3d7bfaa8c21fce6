"""Loading with a kv_type: its state's bytes, its answers, its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.parity.adapters import need_driver, show_drivers

import camelid
from camelid.api.llm import LLM
from camelid.engine.scheduler import DECODE
from camelid.errors import RequestError
from camelid.loading import choose
from camelid.loading.deployment import Deployment
from camelid.loading.estimate import estimate_memory
from camelid.loading.options import LoadOptions
from camelid.model.kv_types import KV_TYPES

PROMPT = [(7 * i) % 250 for i in range(60)]
# Bytes per value in the group that holds all rows.
VALUE_BYTES = {
    "f32": 4,
    "f16": 2,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "two-tier": 34 / 32,
    "two-tier-q4_0": 18 / 32,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A model whose layers attend to all rows, and a model with windows."""
    folder = tmp_path_factory.mktemp("models")
    write_tiny_llama(folder / "tiny.gguf", seed=6, hidden=64, head_dim=32, ffn=96, context=1024)
    local = write_hf(folder, load_case("mixtral_window"), dtype="bf16")
    return {"full": str(folder / "tiny.gguf"), "local": str(local)}


def predicted(llm: LLM, kv_type: str, *, context: int, parallel: int) -> Any:
    model = llm._running.file.model
    options = LoadOptions(context=context, parallel=parallel, kv_type=kv_type)
    return estimate_memory(Deployment.of(model, options, llm.capabilities))[0]


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("name", ["full", "local"])
def test_the_reference_uses_the_predicted_bytes(name: str, kv_type: str, files: dict[str, str]) -> None:
    how: dict[str, Any] = {"context": 100, "parallel": 3}
    with camelid.load(files[name], backend="reference", kv_type=kv_type, **how) as llm:
        want = predicted(llm, kv_type, **how)
        assert llm.memory().state_bytes == sum(want.states.values()) + want.page_tables
        held = {s.name: s.kv_type for s in llm.plan(DECODE).states}
    row = KV_TYPES[kv_type]
    groups = {"kv": row.kv, "kv_tail": row.tail} if name == "full" else {"window": row.window}
    assert held == {group: type_ for group, type_ in groups.items() if type_} | {"tokens": "f32"}


@pytest.mark.parity
@pytest.mark.parametrize("kv_type", share_of(reversed(KV_TYPES)))
def test_webgpu_uses_the_predicted_bytes_plus_padding(kv_type: str, files: dict[str, str]) -> None:
    """Each tensor is padded to 256 bytes; with two steps in flight, a tail holds the rows of both."""
    show_drivers()
    how: dict[str, Any] = {"context": 700, "parallel": 2}
    adapter = need_driver("llvmpipe")
    with camelid.load(files["full"], backend="webgpu", adapter=adapter, kv_type=kv_type, **how) as llm:
        got, want = llm.memory().state_bytes, predicted(llm, kv_type, **how)
        n_tensors = sum(max(len(s.layers), 1) * len(s.tensors) for s in llm.plan(DECODE).states)
    assert 0 <= got - sum(want.states.values()) - want.page_tables < 256 * n_tensors


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_bytes_by_hand(kv_type: str, files: dict[str, str]) -> None:
    """2 layers of 2 tensors with 2 heads of 32; 64 pages for 1,000 rows of each of 2 sequences, and trash."""
    with camelid.load(files["full"], backend="reference", kv_type=kv_type, parallel=2) as llm:
        want = predicted(llm, kv_type, context=1000, parallel=2)
    assert want.states["kv"] == (2 * 63 + 1) * 16 * 2 * 2 * 64 * VALUE_BYTES[kv_type]
    assert ("kv_tail" in want.states) == kv_type.startswith("two-tier")


def test_a_tail_grows_no_further_than_its_window(files: dict[str, str]) -> None:
    with camelid.load(files["full"], backend="reference", kv_type="two-tier") as llm:
        sizes = [
            predicted(llm, "two-tier", context=context, parallel=1).states["kv_tail"]
            for context in (600, 1000)
        ]
    assert sizes[0] == sizes[1] >= (320 + 64) * 2 * 2 * 64 * 2


def answer(model: str, kv_type: str) -> list[int]:
    with camelid.load(model, backend="reference", kv_type=kv_type, context=256) as llm:
        found = llm.generate(PROMPT, temperature=0, max_tokens=40, ignore_eos=True).token_ids
        assert llm.is_idle
    return list(found)


def test_short_answers_equal_the_tail_types(files: dict[str, str]) -> None:
    """Up to 319 rows, a two-tier state reads its tail alone, which is f16."""
    answers = {kv_type: answer(files["full"], kv_type) for kv_type in KV_TYPES}
    assert answers["two-tier"] == answers["two-tier-q4_0"] == answers["f16"]
    assert answers["q4_0"] != answers["f32"], "four bits do not show on random weights"


def test_rows_with_partial_blocks_are_refused_before_a_backend_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_llama(tmp_path / "narrow.gguf", seed=1, hidden=64, head_dim=16, n_kv_heads=1, ffn=96)
    monkeypatch.setattr(choose, "open_backend", lambda name: pytest.fail(f"{name} was opened"))
    with pytest.raises(
        RequestError, match=r"kv_type is 'two-tier', but blocks of 32.*16 values.*f16"
    ) as caught:
        camelid.load(tmp_path / "narrow.gguf", kv_type="two-tier")
    assert caught.value.field == "kv_type"


@pytest.mark.parametrize("word", ["f64", "", None, ["f16"]])
def test_an_unknown_kv_type_is_refused(word: Any, files: dict[str, str]) -> None:
    with pytest.raises(RequestError, match=r"kv_type is .*, expected one of f32, f16, q8_0, q4_0, two-tier"):
        camelid.load(files["full"], backend="reference", kv_type=word)


@pytest.mark.parametrize("kv_type", ["q8_0", "two-tier", "two-tier-q4_0"])
def test_a_cached_prefix_gives_the_same_draws(kv_type: str, files: dict[str, str]) -> None:
    """For a text whose first rows have left the tail's window."""
    text = [(11 * i) % 250 for i in range(420)]
    how: dict[str, Any] = {"temperature": 1.5, "seed": 4, "max_tokens": 12, "ignore_eos": True}

    def draws(*texts: list[int]) -> tuple[list[int], int]:
        with camelid.load(files["full"], backend="reference", kv_type=kv_type, parallel=1) as llm:
            found = [list(llm.generate(ids, **how).token_ids) for ids in texts]
            return found[-1], llm.counters.cached_rows

    cold, none = draws(text)
    again, whole = draws(text, text)
    beside, part = draws([*text[:400], 3, 3, 3], text)
    assert none == 0 and whole >= 400 and part >= 380
    assert cold == again == beside
