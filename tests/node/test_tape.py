"""A tape of a whole model, recorded through wgpu (Naga), replayed by web/executor.js in Node (Dawn, Tint)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.parity.adapters import DRIVERS, need_driver, show_drivers

import camelid

pytestmark = [pytest.mark.parity, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
REPLAY = Path(__file__).with_name("replay.mjs")
PROMPTS = ("What is 12 plus 30?", "Who are you?")
# Dawn's requirements exceed Debian's lavapipe, so that it finds SwiftShader alone.
RECORDED_ON, REPLAYED_ON = "llvmpipe", "SwiftShader"


@dataclass(frozen=True)
class Recording:
    """A saved tape, its model, and the natively computed answers, token by token."""

    tape: Path
    model: Path
    answers: list[list[int]]


def answers(llm: camelid.LLM) -> list[list[int]]:
    turns = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    return [llm.chat(turn, max_tokens=12, temperature=0).token_ids for turn in turns]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    show_drivers()
    folder = tmp_path_factory.mktemp("tape")
    data = ROOT / "core" / "camelid" / "data" / "cria.gguf"
    model = Path(shutil.copy(os.environ.get("CAMELID_CRIA") or data, folder / "cria.gguf"))
    how: Any = {"parallel": 1, "context": 256, "record_tape": True}
    with camelid.load(model, backend="vulkan", adapter=need_driver(RECORDED_ON), **how) as llm:
        assert RECORDED_ON in llm.capabilities.device
        got = answers(llm)
        llm.save_tape(str(folder / "tape.json"))
    return Recording(folder / "tape.json", model, got)


def replay(tape: Path, model: Path) -> dict[str, Any]:
    """{adapter, steps, counters} of a replay in Node."""
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / "webgpu").is_dir():
        pytest.skip("no Dawn: run `make test`, which installs the npm packages")
    (driver,) = DRIVERS[need_driver(REPLAYED_ON)]
    environment = os.environ | {"VK_ICD_FILENAMES": str(driver), "VK_ADD_DRIVER_FILES": ""}
    command = [node, str(REPLAY), str(tape), str(model), REPLAYED_ON]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # the lines before are Dawn's log


def test_every_step_returns_the_recorded_ids(recording: Recording) -> None:
    steps = json.loads(recording.tape.read_text())["steps"]
    replayed = replay(recording.tape, recording.model)
    assert "swiftshader" in replayed["adapter"].lower()
    assert replayed["steps"] == [step["ids"] for step in steps]
    sampled = [i for ids in replayed["steps"] for i in ids]
    assert sum(len(answer) for answer in recording.answers) <= len(sampled)
    counters = replayed["counters"]
    assert counters["runs"] == len(steps) and counters["dispatches"] > 20 * len(steps)
    with camelid.load(recording.model, backend="reference") as llm:
        assert recording.answers == answers(llm), "the ids differ from the reference's"
        assert counters["bytesUploaded"] >= llm.weight_bytes, "Node read too few weight bytes"
