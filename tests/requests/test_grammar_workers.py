"""Worker processes for grammars: results as in this process, limits, faults, cancelled requests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.served_here import until

import camelid
from camelid.errors import RequestError
from camelid.requests import grammar_process, idle_child
from camelid.requests.constraints import Constraints, chosen, key_of
from camelid.requests.grammar_process import GrammarProcess
from camelid.requests.grammar_workers import WorkerMatcher
from camelid.server.http.errors import api_error
from camelid.text.grammar.automaton import Automaton

TOKENIZER = camelid.load_tokenizer("cria")
SLOW = {"json_schema": {"enum": [f"word {i}" for i in range(20_000)]}}  # half a minute
LONG = {"json_schema": {"enum": [f"word {i}" for i in range(3_000)]}}  # half a second
LARGE = {"grammar": "root ::= " + " ".join(["[a-z\u00e9-\u0fff]"] * 20_000)}
COSTLY = "schema_too_costly"
OPTIONS: list[dict[str, Any]] = [
    {"json_schema": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 300}}}},
    {"json_schema": '{"type": "integer", "maximum": 9}'},
    {"grammar": "root ::= <|im_end|> [a-c]{2,} !<[7]>"},
    {"regex": "[a-f]{3}-é+"},
    {"choice": ["red", "green"]},
    {"response_format": {"type": "json_object"}},
]
WRONG: list[dict[str, Any]] = [
    {"json_schema": {"contains": {}}},
    {"json_schema": "{"},
    {"json_schema": {"const": "\ud800"}},
    {"grammar": "root ::= <|nope|>"},
    {"grammar": "root ::= root"},
    {"regex": "(a"},
    {"regex": 7},
    {"choice": []},
]


@pytest.fixture
def constraints() -> Iterator[Constraints]:
    made = Constraints(TOKENIZER)
    yield made
    if made.workers:
        made.workers.close()


def automaton_of(constraints: Constraints, options: dict[str, Any]) -> Automaton:
    found = constraints.kept.get(key_of(*chosen(options)))
    assert found, "the grammar is in the cache"
    return found


def refusal(
    options: dict[str, Any], constraints: Constraints, *, prepares: bool
) -> tuple[str, dict[str, object]]:
    with pytest.raises(RequestError) as caught:
        if prepares:
            asyncio.run(constraints.prepare(options))
        constraints.factory(options)
    return caught.value.message, caught.value.facts


def child_of(process: GrammarProcess) -> int:
    assert process._child
    return process._child.pid


def test_a_worker_compiles_as_this_process(constraints: Constraints) -> None:
    constraints.start_workers()
    alone = Constraints(TOKENIZER)
    for options in OPTIONS:
        asyncio.run(constraints.prepare(options))
        prepared = automaton_of(constraints, options)
        with patch.object(constraints, "_compile", None):  # the factory finds what `prepare` compiled
            assert isinstance(constraints.factory(options)(), WorkerMatcher)  # type: ignore[misc]
        alone.factory(options)
        assert prepared.network.tables.parts() == automaton_of(alone, options).network.tables.parts()


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_a_worker_refuses_as_this_process(constraints: Constraints, options: dict[str, Any]) -> None:
    constraints.start_workers()
    assert refusal(options, constraints, prepares=True) == refusal(
        options, Constraints(TOKENIZER), prepares=False
    )


def test_masks_of_a_worker_equal_those_of_this_process(constraints: Constraints) -> None:
    constraints.start_workers()
    n_late = 0
    for options in OPTIONS:
        asyncio.run(constraints.prepare(options))
        theirs, ours = constraints.factory(options), Constraints(TOKENIZER).factory(options)
        assert theirs and ours
        remote, local = theirs(), ours()
        for _ in range(12):
            n_late += not remote.ready()
            while not remote.ready():
                time.sleep(0.001)
            with patch("camelid.text.grammar.masks.Masks._mask", None):  # nothing is computed here
                mask = remote.mask()
            assert mask == local.mask()
            token_id = next((i for i in reversed(range(len(mask) * 8)) if mask[i >> 3] >> (i & 7) & 1), None)
            if token_id is None or token_id in TOKENIZER.eos_ids:
                break
            assert remote.accept(token_id) and local.accept(token_id)
            assert remote.is_finished == local.is_finished
    assert n_late >= 20


# Fault -> code at the worker's start, the limit in seconds, a schema, the error's code and words.
FAULTS: dict[str, tuple[str, float, dict[str, Any], str, str]] = {
    "time": ("", 0.4, SLOW, COSTLY, "more than 0.4 s; use fewer"),
    "memory": (
        "from camelid.text import idle_process; idle_process.MEMORY_BYTES = 60 << 20;",
        60, LARGE, COSTLY, "GiB of memory",
    ),
    "clock": (
        "import time; from camelid.text.grammar import worker;"
        " worker.rules_of_option = lambda *asked: time.sleep(60);",
        0.05, SLOW, "grammar_workers_busy", "within 0.6 s, since the machine is busy",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_costly_schema_ends_with_an_error(constraints: Constraints, fault: str) -> None:
    setup, limit_s, options, code, words = FAULTS[fault]
    command = idle_child.COMMAND.replace("import main;", f"import main; {setup}")
    workers = constraints.start_workers(limit_s=limit_s)
    # A busy machine may leave an idle worker no time, so only the fault of the clock has a clock limit.
    patience = grammar_process.PATIENCE if fault == "clock" else 10_000
    with patch.object(idle_child, "COMMAND", command), patch.object(grammar_process, "PATIENCE", patience):
        message, facts = refusal(options, constraints, prepares=True)
    assert facts == {"field": next(iter(options)), "code": code}
    assert words in message
    workers.compiling.limit_s = 60
    asyncio.run(constraints.prepare(OPTIONS[0]))  # by a new child
    assert automaton_of(constraints, OPTIONS[0])
    assert workers.compiling._child


def test_a_machine_that_starts_no_process_is_no_fault_of_the_schema(constraints: Constraints) -> None:
    constraints.start_workers()
    with patch.object(sys, "executable", "/nowhere/python"):
        message, facts = refusal(OPTIONS[0], constraints, prepares=True)
    assert "cannot be started here" in message
    assert api_error(RequestError(message, **facts)).status == 503
    asyncio.run(constraints.prepare(OPTIONS[0]))  # the machine starts processes again
    assert automaton_of(constraints, OPTIONS[0])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
def test_a_killed_child_is_replaced(constraints: Constraints) -> None:
    async def kill_while(pending: asyncio.Task[None], process: GrammarProcess) -> None:
        while not process._job:
            await asyncio.sleep(0.001)
        os.kill(child_of(process), signal.SIGKILL)
        await pending

    async def run() -> None:
        process = constraints.start_workers(limit_s=60).compiling
        await constraints.prepare(OPTIONS[0])
        first = child_of(process)
        os.kill(first, signal.SIGKILL)  # while idle
        await constraints.prepare(OPTIONS[1])
        second = child_of(process)
        assert second != first
        await kill_while(asyncio.create_task(constraints.prepare(LONG)), process)  # during a job
        assert child_of(process) != second

    asyncio.run(run())
    assert automaton_of(constraints, LONG)


def test_a_cancelled_request_ends_its_job(constraints: Constraints) -> None:
    async def run() -> None:
        process = constraints.start_workers(limit_s=60).compiling
        tasks = [asyncio.create_task(constraints.prepare(SLOW)) for _ in range(2)]
        while not process._job:
            await asyncio.sleep(0.001)
        pid = child_of(process)
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        await asyncio.sleep(0.05)
        assert (job := process._job) and child_of(process) == pid, "the other request still waits"
        tasks[1].cancel()
        await constraints.prepare(OPTIONS[0])
        assert job.future.cancelled(), "the next grammar does not wait for the cancelled one"
        assert child_of(process) != pid

    asyncio.run(run())


def test_requests_for_one_grammar_compile_it_once(constraints: Constraints) -> None:
    async def run() -> None:
        await asyncio.gather(*(constraints.prepare(LONG) for _ in range(5)))
        await constraints.prepare(LONG)

    workers = constraints.start_workers(limit_s=60)
    with patch.object(workers.compiling, "start", wraps=workers.compiling.start) as start:
        asyncio.run(run())
    assert start.call_count == 1
    assert len(constraints.kept) == 1


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux has SCHED_IDLE")
def test_the_worker_is_idle_and_imports_the_text_layer_alone(constraints: Constraints) -> None:
    workers = constraints.start_workers()
    asyncio.run(workers.warm())
    assert os.sched_getscheduler(child_of(workers.compiling)) == os.SCHED_IDLE
    listed = (
        "import sys; sys.path.insert(0, sys.argv[1]); import camelid.text.grammar.worker; print(*sys.modules)"
    )
    names = subprocess.check_output(
        [sys.executable, "-I", "-S", "-c", listed, str(idle_child.CORE)], text=True
    ).split()
    own = [name for name in names if name.startswith("camelid.")]
    assert [
        name
        for name in own
        if not name.startswith("camelid.text") and name not in ("camelid.errors", "camelid.version")
    ] == []
    assert not {"numpy", "asyncio"} & set(names)


def test_close_ends_the_processes_and_their_jobs(constraints: Constraints) -> None:
    async def run() -> None:
        workers = constraints.start_workers(limit_s=60)
        tasks = [asyncio.create_task(constraints.prepare(options)) for options in (SLOW, LONG)]
        while not workers.compiling._job:
            await asyncio.sleep(0.001)
        workers.close()
        done, _ = await asyncio.wait(tasks, timeout=10)
        assert ["was closed" in str(task.exception()) for task in done] == [True, True]
        assert workers.compiling._child is None

    asyncio.run(run())


@pytest.mark.parametrize("closes", [False, True], ids=["stopped", "closed"])
def test_a_job_that_ends_while_its_process_starts_is_never_done(
    monkeypatch: pytest.MonkeyPatch, *, closes: bool
) -> None:
    process, starts, goes_on = GrammarProcess(), threading.Event(), threading.Event()
    real = grammar_process.start_child

    def started_late(*arguments: str) -> subprocess.Popen[bytes]:
        starts.set()
        assert goes_on.wait(20)
        return real(*arguments)

    monkeypatch.setattr(grammar_process, "start_child", started_late)
    monkeypatch.setattr(GrammarProcess, "_talk", lambda *_: pytest.fail("the job is done"))
    job = process.start(b"compile", b"choice", b'["a"]', answers={})
    assert starts.wait(20)
    ending = threading.Thread(target=process.close if closes else job.stop)
    ending.start()
    until(lambda: process._is_closed or job.is_stopped)
    goes_on.set()
    with pytest.raises(RequestError if closes else CancelledError):
        job.future.result(20)
    ending.join(20)
    process.close()
