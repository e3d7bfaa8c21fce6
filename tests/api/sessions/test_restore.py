"""Sessions after a restart: they continue with equal ids and bits, on another backend too; wrong models are
refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.parity.adapters import need_driver

import camelid
from camelid.api.llm import LLM
from camelid.api.sessions.file import read_header
from camelid.api.sessions.fingerprint import fingerprint
from camelid.api.sessions.session import Session
from camelid.errors import DeviceLostError, ModelFormatError, RequestError
from camelid.formats.source import drive
from camelid.loading.model_file import open_model
from camelid.plan.weights import INLINE, Part, Weight

GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 10}
KV_TYPES = ("f32", "f16", "q8_0", "q4_0", "two-tier", "two-tier-q4_0")
TEXTS = ("the llama and the alpaca walked over the mountain", "to the other side of the river where")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("model") / "tiny.gguf")


def tiny(path: Path, seed: int = 5) -> Path:
    write_tiny_llama(path, seed=seed, hidden=64, head_dim=16, ffn=96, context=1024)
    return path


def load(path: Path, **options: Any) -> LLM:
    return camelid.load(path, **({"backend": "reference", "context": 1024} | options))


def talk(llm: LLM, n_turns: int = 2) -> Session:
    session = llm.session("talk")
    session.system = "be brief"
    session.options = dict(GREEDY)
    for text in TEXTS[:n_turns]:
        session.generate(text)
    return session


def rows_of(llm: LLM, session: Session) -> dict[str, list[bytes]]:
    """The cached rows, in a file's form."""
    engine = llm._running.engine  # type: ignore[reportPrivateUsage]
    exported = llm._runner.run(engine.export_rows(session.token_ids))  # type: ignore[reportPrivateUsage]
    return {name: list(units) for name, units in exported.units.items()}


def saved(path: Path, file: Path, **options: Any) -> tuple[Session, list[int]]:
    """A session saved to a file, and the same model's next answer."""
    with load(path, **options) as llm:
        session = talk(llm)
        session.save(file)
        twin = session.fork()
        return session, twin.generate("so").token_ids


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_restored_sessions_continue_with_equal_bits(path: Path, tmp_path: Path, kv_type: str) -> None:
    file = tmp_path / "s.camelid"
    session, wanted = saved(path, file, kv_type=kv_type)
    with load(path, kv_type=kv_type) as llm:
        again = llm.restore(file)
        assert (again.id, again.note, again.options) == ("talk", "", GREEDY)
        assert (again.messages, again.token_ids) == (session.messages, session.token_ids)
        copy = tmp_path / "copy.camelid"
        again.save(copy)
        assert copy.read_bytes() == file.read_bytes(), "the saved copy differs"
        before = llm.counters.prefill_rows
        done = again.generate("so")
        assert done.usage.cached_tokens >= len(session.token_ids) - 1
        assert llm.counters.prefill_rows - before == done.usage.prompt_tokens - done.usage.cached_tokens < 40
        assert done.token_ids == wanted
        assert llm.is_idle


def test_a_session_longer_than_the_tail_of_two_tiers(path: Path, tmp_path: Path) -> None:
    """More rows than the tail holds: its first pages are freed, and the file contains none of them."""
    with load(path, kv_type="two-tier") as llm:
        session = llm.session()
        session.generate("the llama and the river " * 60, **GREEDY)
        assert len(session.token_ids) > 400
        session.save(tmp_path / "s")
        wanted = session.generate("so", **GREEDY)
    with load(path, kv_type="two-tier") as llm:
        done = llm.restore(tmp_path / "s").generate("so", **GREEDY)
        assert (done.token_ids, done.usage) == (wanted.token_ids, wanted.usage)
        assert done.usage.cached_tokens > 400


def test_rows_of_another_kv_type_are_recomputed_with_a_note(path: Path, tmp_path: Path) -> None:
    saved(path, tmp_path / "s", kv_type="q8_0")
    with load(path) as llm:
        _, wanted = saved(path, tmp_path / "f32")
        again = llm.restore(tmp_path / "s")
        assert "kv_type is 'q8_0', expected 'f32'; the next turn recomputes them" in again.note
        llm.session().generate("warm", **GREEDY)
        done = again.generate("so")
        assert done.usage.cached_tokens <= 1, "the first token alone is that of the other session"
        assert len(done.token_ids) == len(wanted)


def test_other_models_and_damage_are_refused(path: Path, tmp_path: Path) -> None:
    saved(path, tmp_path / "s")
    other = tiny(tmp_path / "other.gguf", seed=6)
    assert other.stat().st_size == path.stat().st_size, "more than the weights differs"
    with load(other) as llm, pytest.raises(RequestError, match=r"was saved with tiny\.gguf \(.*other\.gguf"):
        llm.restore(tmp_path / "s")
    data = bytearray((tmp_path / "s").read_bytes())
    data[-9000] ^= 1
    (tmp_path / "s").write_bytes(data)
    with load(path) as llm:
        with pytest.raises(ModelFormatError, match="the rows are damaged"):
            llm.restore(tmp_path / "s")
        with pytest.raises(ModelFormatError, match="no such file"):
            llm.restore(tmp_path / "absent")
        assert llm.session().generate("so", **GREEDY).text
        assert llm.is_idle


def test_a_copy_of_the_model_is_the_same_model(path: Path, tmp_path: Path) -> None:
    _, wanted = saved(path, tmp_path / "s")
    copy = tmp_path / "renamed.gguf"
    copy.write_bytes(path.read_bytes())
    with load(copy) as llm:
        assert llm.restore(tmp_path / "s").generate("so").token_ids == wanted


def test_all_sources_of_the_weights_change_the_fingerprint(path: Path) -> None:
    file = asyncio.run(open_model(path))
    header, tensors = file.checkpoint.header, file.checkpoint.tensors
    first, *_ = tensors
    others = [
        {"header": replace(header, metadata={**header.metadata, "llama.rope.freq_base": 1e6})},
        {"header": replace(header, file_size=header.file_size + 1)},
        {"tensors": {**tensors, first: replace(tensors[first], name="other")}},
        {"tensors": {**tensors, first: replace(tensors[first], shape=(1, *tensors[first].shape))}},
        {"tensors": {**tensors, first: replace(tensors[first], type="f32")}},
    ]
    files = [file, *(replace(file, checkpoint=replace(file.checkpoint, **change)) for change in others)]
    found = [asyncio.run(fingerprint(one)) for one in files]
    assert len(set(found)) == len(files)
    assert asyncio.run(fingerprint(file)) == found[0] and len(found[0]) == 64


def test_rows_are_saved_and_restored_under_the_salt_of_their_session(path: Path, tmp_path: Path) -> None:
    with load(path) as llm:
        session = llm.session()
        session.options = GREEDY | {"cache_salt": "mine"}
        session.generate(TEXTS[0])
        session.save(tmp_path / "s")
    with load(path) as llm:
        again = llm.restore(tmp_path / "s")
        assert again.cached_rows == len(again.token_ids) - 1 > 0, "the last id was sampled, its row never ran"
        assert llm._running.engine.cached_rows(again.token_ids) == 0  # type: ignore[reportPrivateUsage]


def drawn_in(file: Path) -> int:
    data = file.read_bytes()
    head = drive(read_header(len(data), file.name), lambda offset, length: data[offset : offset + length])
    return head.saved.n_drawn


def test_sampled_tokens_are_counted_over_forks_and_restarts(path: Path, tmp_path: Path) -> None:
    with load(path) as llm:
        session = llm.session()
        n = len(session.generate(TEXTS[0], **GREEDY).token_ids)
        session.fork().save(tmp_path / "s")
        assert drawn_in(tmp_path / "s") == n > 0
        again = llm.restore(tmp_path / "s")
        n += len(again.generate(TEXTS[1], **GREEDY).token_ids)
        again.save(tmp_path / "s")
        assert drawn_in(tmp_path / "s") == n


def inline(n_weights: int, n_others: int) -> dict[str, Weight]:
    """Weights of which the last `n_others` have other bytes."""
    data = ["AAAA"] * (n_weights - n_others) + ["BBBB"] * n_others
    return {
        f"w{i}": Weight(name=f"w{i}", type="f32", shape=(1,), parts=(Part(INLINE, 0, 4, text),))
        for i, text in enumerate(data)
    }


def test_weights_all_over_the_model_are_sampled(path: Path) -> None:
    file = asyncio.run(open_model(path))
    files = [
        replace(file, checkpoint=replace(file.checkpoint, tensors=inline(100, n))) for n in (0, 10, 50, 90)
    ]
    assert len({asyncio.run(fingerprint(one)) for one in files}) == 4


def test_missing_units_cost_only_time(path: Path, tmp_path: Path) -> None:
    _, wanted = saved(path, tmp_path / "s")
    with load(path, parallel=1, context=256) as llm:
        stream = llm.stream("the llama", max_tokens=200)
        next(stream)
        again = llm.restore(tmp_path / "s")
        assert again.note.startswith("the session's rows cannot be used: there is no room")
        stream.close()
        assert again.generate("so").token_ids == wanted


def test_empty_and_evicted_sessions_are_saved_too(path: Path, tmp_path: Path) -> None:
    with load(path, parallel=1, context=256) as llm:
        empty, session = llm.session("empty"), talk(llm)
        empty.save(tmp_path / "empty")
        llm.generate("x " * 100, max_tokens=20)
        session.save(tmp_path / "evicted")
        assert llm.counters.evicted_units > 0
        assert llm.restore(tmp_path / "empty").messages == []
        again = llm.restore(tmp_path / "evicted")
        assert again.messages == session.messages
        assert again.generate("so").text == session.generate("so").text


def test_a_lost_device_costs_only_the_rows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_state(*_: object) -> bytes:
        raise DeviceLostError("the device went away", backend="reference")

    with load(path) as llm:
        session = talk(llm)
        backend = llm._running.engine.backend  # type: ignore[reportPrivateUsage]
        monkeypatch.setattr(backend, "read_state", read_state)
        session.save(tmp_path / "s")
        wanted = session.generate("so").token_ids
    with load(path) as llm:
        again = llm.restore(tmp_path / "s")
        assert (again.cached_rows, again.generate("so").token_ids) == (0, wanted)


@pytest.mark.parametrize("bias", [((5, -np.inf), (7, 1.5)), {5: -np.inf, 7: 1.5}, {5: False, 7: 1.5}, None])
def test_banned_tokens_stay_banned(path: Path, tmp_path: Path, bias: Any) -> None:
    with load(path) as llm:
        session = llm.session()
        session.options = {**GREEDY, "logit_bias": bias} if bias else dict(GREEDY)
        session.save(tmp_path / "s")
        again = llm.restore(tmp_path / "s")
        assert again.generate("so").token_ids == session.generate("so").token_ids
        assert set(again.options) == set(session.options)
        pairs = again.options.get("logit_bias", [[5, False], [7, 1.5]])
        assert [(int(token), value) for token, value in pairs] == [(5, False), (7, 1.5)]


def top(llm: LLM, session: Session) -> dict[int, float]:
    """The likeliest 20 tokens after the next prompt, with their logprobs."""
    (event, *_) = session.stream("so", temperature=0.0, max_tokens=1, logprobs=20)
    return dict(event.top_logprobs)


@pytest.mark.parametrize("way", ["reference to webgpu", "webgpu to reference"])
def test_another_backend_continues_from_the_rows(path: Path, tmp_path: Path, way: str) -> None:
    adapter = need_driver("llvmpipe")
    backends: dict[str, dict[str, Any]] = {
        "reference": {"backend": "reference"},
        "webgpu": {"backend": "webgpu", "adapter": adapter},
    }
    source, target = way.split(" to ")
    with load(path, **backends[source]) as llm:
        session = talk(llm)
        session.save(tmp_path / "s")
        rows, wanted = rows_of(llm, session), top(llm, session.fork())
    with load(path, **backends[target]) as llm:
        again = llm.restore(tmp_path / "s")
        assert again.note == ""
        full = [rows["kv"][:-1], rows_of(llm, again)["kv"][:-1]]
        assert full[0] == full[1], "restored rows differ"
        before = llm.counters.cached_rows
        got = top(llm, again)
        assert llm.counters.cached_rows - before >= len(session.token_ids) - 1
    both = sorted(wanted.keys() & got.keys())
    assert len(both) >= 19
    a, b = (np.array([found[i] for i in both]) for found in (wanted, got))
    assert np.mean((a - b) ** 2) / np.var(a) <= 1e-6
