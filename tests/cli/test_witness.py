"""`camelid witness`: lines, exit codes, the choice of records, and a replay of cria."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.gguf_files import write_tiny_llama
from tests.support.witness import (
    MODELS,
    facts_of,
    forge,
    witness_record,
    write_log,
    write_rotated,
    write_torn_log,
)

import camelid
from camelid.cli import witness
from camelid.cli.main import main
from camelid.witness.log import WitnessLog
from camelid.witness.record import WitnessRecord

PROMPT = "The llama"


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["witness", *map(str, words)])


async def record(path: Path, model: str, *, with_content: bool) -> None:
    async with await camelid.aload(model, backend="cpu", context=64, parallel=2) as llm:
        with WitnessLog.open(path, {"m": await llm.aidentity()}, with_content=with_content) as log:
            for i in range(2):
                request = llm.request(PROMPT, seed=i, max_tokens=8, temperature=3.0, top_k=0)
                stream = await llm.asubmit(request)
                async for _ in stream:
                    pass
                answer = stream.completion
                log.append(WitnessRecord.of(request, answer, id=f"req-{i}", key="k", endpoint="/", model="m"))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    folder = tmp_path_factory.mktemp("logs")
    paths = {with_content: folder / f"log-{with_content}" for with_content in (False, True)}
    for with_content, path in paths.items():
        asyncio.run(record(path, "cria", with_content=with_content))
    return paths


def test_an_intact_log_is_one_line(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log")
    done = call("verify", path)
    assert done.exit_code == 0
    facts = facts_of(path)
    assert done.stdout == (
        f"{path}: intact: 3 requests in 5 records, {facts[0]['time']} to {facts[-1]['time']}, no gaps, "
        f"last hash {facts[-1]['hash']}\n"
    )


def test_a_broken_log_is_one_line_and_fails(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log")
    path.write_bytes(path.read_bytes().replace(b"req-1", b"req-7"))
    done = call("verify", path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        f"camelid: error: {path}: broken at line 3: its hash does not fit: the line was changed, or is from "
        "another log\n"
    )


def test_repairs_gaps_and_crashes_are_told(tmp_path: Path) -> None:
    path = write_torn_log(tmp_path / "log")
    with WitnessLog.open(path, MODELS, with_content=True) as log:
        log.append(witness_record(9, prompt=float("nan")))
        log.append(witness_record(9))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    line = call("verify", path).stdout
    assert "1 gap (1 request lost), 1 torn end repaired, 1 earlier run ended by a crash" in line
    assert "not closed: still written, ended by a crash, or cut" in line


def test_the_parts_of_a_rotated_log_are_checked_together(tmp_path: Path) -> None:
    parts = write_rotated(tmp_path, 3)
    done = call("verify", *reversed(parts))
    assert (done.exit_code, done.stdout.count("intact")) == (0, 3)
    done = call("verify", parts[0], parts[2])
    assert done.exit_code == 1
    assert "one is missing or was cut" in done.stderr


def test_a_hash_noted_earlier_finds_a_cut(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log")
    head = facts_of(path)[-1]["hash"]
    assert call("verify", path, "--head", head).exit_code == 0
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert call("verify", path).exit_code == 0
    done = call("verify", path, "--head", head)
    assert (done.exit_code, "was cut, or written anew" in done.stderr) == (1, True)


def test_show_prints_lines_or_whole_records(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", 2)
    lines = call("show", path).stdout.splitlines()
    assert [line.split()[2] for line in lines] == ["header", "request", "request", "close"]
    assert lines[1].split()[3:] == ["req-0", "alice", "/v1/completions", "m", "3+2", "tokens", "stop"]
    shown = json.loads(call("show", path, "--id", "req-1").stdout)
    assert shown == facts_of(path)[2]
    assert json.loads(call("show", path, "--record", "0").stdout)["kind"] == "header"
    done = call("show", path, "--record", "77")
    assert (done.exit_code, "no record is chosen by --record 77" in done.stderr) == (1, True)


def test_a_terminal_gets_no_escape_sequence(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with WitnessLog.open(path, MODELS) as log:
        log.append(witness_record(0, key="\x1b[2Jmallory"))
    assert "?[2Jmallory" in call("show", path).stdout


def test_a_progress_bar_only_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_log(tmp_path / "log")
    with witness.reading_bar(path) as progress:
        assert progress is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with witness.reading_bar(path) as progress:
        assert progress is not None
        progress(1)


def test_replay_finds_equal_answers(logs: dict[bool, Path]) -> None:
    done = call("replay", logs[True])
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "record 1 (req-0): equal, 8 tokens",
        "record 2 (req-1): equal, 8 tokens",
        "2 equal, 0 different, 0 not computed",
    ]
    assert done.stderr == ""
    assert call("replay", logs[True], "--record", 2).stdout.splitlines()[0].startswith("record 2")
    assert len(call("replay", logs[True], "--id", "req-0").stdout.splitlines()) == 2


def test_a_request_is_replayed_with_the_model_that_answered_it(tmp_path: Path) -> None:
    """Also after another file took the model's name, and in a file that no longer states the model."""
    path, old = tmp_path / "log", replace(MODELS["m"], model_sha256="b" * 64)
    with WitnessLog.open(path, {"m": old}) as log:
        log.describe(MODELS)
        log.append(witness_record(0), old)
        log.append(witness_record(1))
        log.append(witness_record(2), replace(old, model_sha256="c" * 64))
        log.append(witness_record(3, model="unknown"))
    found = witness.request_records(path, None, None)
    assert [facts.get("model_sha256", "")[:1] for _, facts in found] == ["b", "a", "c", ""]


def test_replay_takes_prompts_from_beside(logs: dict[bool, Path], tmp_path: Path) -> None:
    done = call("replay", logs[False])
    assert (done.exit_code, "no answer could be computed again" in done.stderr) == (1, True)
    assert "its prompt is unknown" in done.stdout
    (tmp_path / "prompts").write_text(json.dumps({"text": PROMPT}))
    done = call("replay", logs[False], "--prompts", tmp_path / "prompts")
    assert (done.exit_code, done.stdout.count("equal, 8 tokens")) == (0, 2)


def test_replay_finds_a_forged_seed(logs: dict[bool, Path], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(logs[True].read_bytes())

    def change(facts: dict[str, Any]) -> None:
        facts["parameters"]["sampling"]["seed"] += 1

    forge(path, change)
    assert call("verify", path).exit_code == 0, "the forger computed all hashes anew"
    done = call("replay", path)
    assert (done.exit_code, done.stdout.count("differs at token")) == (1, 2)
    assert "2 of 2 answers differ" in done.stderr


def test_replay_refuses_a_broken_log_and_another_model(logs: dict[bool, Path], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(logs[True].read_bytes().replace(b'"seed":0', b'"seed":7'))
    done = call("replay", path)
    assert (done.exit_code, "broken at line 2" in done.stderr) == (1, True)
    write_tiny_llama(tmp_path / "tiny.gguf", seed=1, context=64)
    done = call("replay", logs[True], "--model", tmp_path / "tiny.gguf")
    assert done.exit_code == 1
    assert "but the log recorded" in done.stderr


def test_replay_states_another_build_and_a_weaker_promise(
    logs: dict[bool, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(logs[True].read_bytes().replace(b'"promise":"A+B"', b'"promise":"A"'))
    forge(path, lambda facts: None)
    done = call("replay", path)
    assert done.exit_code == 0
    assert "another build than the recorded one: promise was 'A', is 'A+B'" in done.stderr
    assert "the recorded backend does not promise B (A)" in done.stderr
    done = call("replay", logs[True], "--backend", "reference")
    assert "backend was 'cpu', is 'reference'" in done.stderr


def test_replay_survives_a_record_of_other_software(logs: dict[bool, Path], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(logs[True].read_bytes())
    forge(path, lambda facts: facts["parameters"].pop("choice") if facts["id"] == "req-0" else None)
    done = call("replay", path)
    assert done.stdout.splitlines() == [
        "record 1 (req-0): cannot be computed: a value is missing or odd: KeyError('choice')",
        "record 2 (req-1): equal, 8 tokens",
        "1 equal, 0 different, 1 not computed",
    ]


def test_a_group_without_a_command_shows_its_commands() -> None:
    done = call()
    assert all(name in done.output for name in ("verify", "replay", "show"))
    assert call("verify").exit_code == 2
