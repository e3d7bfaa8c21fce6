"""Promises A and B on the WASM kernels, in Node: no batch, no schedule, no variant and no number of threads
changes a bit of an answer. Also cria's answers.
"""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import promise_runs
from tests.support.gguf_files import write_tiny_llama
from tests.support.model.stress.shapes import SHAPES
from tests.support.node_host import NodeHost, wasm_host
from tests.support.promise_runs import SITUATIONS, Bits, Case, alone

import camelid
from camelid.backends.base import OpenSpec
from camelid.loading import choose
from camelid.loading.model_file import open_model
from camelid_native.wasm.backend import WasmBackend

pytestmark = pytest.mark.parity

DRAWN = {"temperature": 1.2}
WILD = {"temperature": 6.0, "top_p": 1.0, "min_p": 0.0}  # for models with peaked distributions
THREADS = (1, 2)
CRIA = Path(camelid.__file__).with_name("data") / "cria.gguf"
FEW = ("among 8 others", "run ahead", "prefix found", "chunks of 7", "preempted", "forked")


class Threaded(WasmBackend):
    """A backend that overrides the requested number of threads."""

    def __init__(self, host: NodeHost, threads: int) -> None:
        super().__init__(host)
        self.threads = threads

    async def open(self, spec: OpenSpec) -> None:
        await super().open(replace(spec, threads=self.threads))


@pytest.fixture(scope="module")
def host() -> NodeHost:
    return wasm_host()


@pytest.fixture(params=THREADS)
def threads(request: Any, host: NodeHost, monkeypatch: pytest.MonkeyPatch) -> int:
    """Sets the number of threads of all engines."""
    backends: Any = promise_runs.BACKENDS
    monkeypatch.setitem(backends, "wasm", lambda: Threaded(host, request.param))
    return request.param


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Models with paged groups, in two state types, and with paged and recurrent groups."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_llama(path, seed=3, hidden=64, head_dim=16, ffn=96, context=512)
    file = asyncio.run(open_model(str(path)))
    llama = Case(model=file.model, sources=file.sources, backend="wasm", sampling=DRAWN)
    other = Case(model=SHAPES["qwen3next"].model(), backend="wasm", sampling=WILD, context=64)
    return {
        "llama": llama,
        "two-tier": replace(llama, kv_type="two-tier-q4_0", context=400, n_prompt=350, n_tokens=12),
        "recurrent": replace(other, n_prompt=30, n_tokens=14),
    }


@pytest.fixture(scope="module")
def plain(host: NodeHost, cases: dict[str, Case]) -> dict[str, Bits]:
    """The answer of each case alone, on one thread, with plain SIMD."""
    backends: Any = promise_runs.BACKENDS
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backends, "wasm", lambda: Threaded(host, 1))
        found = {name: asyncio.run(alone(replace(case, adapter="wasm"))) for name, case in cases.items()}
    assert all(len({token_id for token_id, _ in bits}) > 4 for bits in found.values())
    return found


def exact(bits: Bits) -> list[tuple[int, str]]:
    return [(token_id, logprob.hex()) for token_id, logprob in bits]


def holds(case: Case, situation: str, want: Bits) -> None:
    case = replace(case, adapter="wasm_relaxed", answer=tuple(token_id for token_id, _ in want))
    assert exact(asyncio.run(SITUATIONS[situation](case))) == exact(want)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("situation", FEW)
def test_both_promises_are_kept(situation: str, cases: dict[str, Case], plain: dict[str, Bits]) -> None:
    holds(cases["llama"], situation, plain["llama"])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("situation", ["among 8 others", "chunks of 7"])
@pytest.mark.parametrize("model", ["two-tier", "recurrent"])
def test_other_groups_of_state_keep_both_promises(
    model: str, situation: str, cases: dict[str, Case], plain: dict[str, Bits]
) -> None:
    holds(cases[model], situation, plain[model])


@pytest.mark.parametrize("threads", THREADS, indirect=False)
def test_cria_answers(threads: int, host: NodeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = WasmBackend(host)
    monkeypatch.setattr(choose, "open_backend", lambda name: backend)
    with camelid.load("cria", backend="cpu", threads=threads) as llm:
        answer = llm.chat([{"role": "user", "content": "What is 12 plus 30?"}], temperature=0)
        assert answer.text == "12 + 30 = 42."
        used = backend.memory()
        assert llm.capabilities.device == f"wasm_relaxed, {threads} thread{'s' if threads > 1 else ''}"
    assert used.counters["runs"] > 10 and used.counters["in_flight"] == 0
    assert used.counters["max_in_flight"] == 2
    assert used.counters["bytes_read_back"] == 16 * used.counters["runs"]
    n_bytes = CRIA.stat().st_size
    assert 0.9 * n_bytes < used.weight_bytes < 2 * n_bytes and used.state_bytes and used.arena_bytes


def test_a_saved_tape_replays_without_camelid(
    host: NodeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sections, steps and the model's file are all inputs of an executor."""
    backend, path = WasmBackend(host), tmp_path / "tape.json"
    monkeypatch.setattr(choose, "open_backend", lambda name: backend)
    with camelid.load("cria", backend="cpu", threads=1, context=256, record_tape=True) as llm:
        answer = llm.generate("12 plus 30", max_tokens=8, temperature=0).token_ids
        llm.save_tape(str(path))
    tape = json.loads(path.read_text())

    async def replay() -> list[list[int]]:
        found: list[list[int]] = []
        await host.open(tape["open"])
        for section in tape["sections"]:
            make = {"load": lambda s: host.load(s, {"model": CRIA}), "program": host.compile}
            await make.get(section["kind"], host.allocate)(section)
        for step in tape["steps"]:
            data = await host.read(host.run(step["program"], bytes.fromhex(step["words"])))
            found.append(list(struct.unpack(f"<{len(data) // 4}I", data)[::4]))
        return found

    replayed = asyncio.run(replay())
    assert replayed == [step["ids"] for step in tape["steps"]]
    assert [i for ids in replayed for i in ids][: len(answer)] == answer and len(set(answer)) > 3
