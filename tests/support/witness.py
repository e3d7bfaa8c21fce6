"""Witness logs for tests: records without a model, logs of every kind of record, and forgeries."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from camelid.engine.results import Timings, Usage
from camelid.loading.identity import Identity
from camelid.witness.log import WitnessLog
from camelid.witness.record import WitnessRecord

TIMINGS = Timings(
    queue_s=0.0, ttft_s=0.1, prefill_tps=1.0, decode_tps=2.0, inter_token_s=0.5, total_s=1.0, n_steps=3
)
IDENTITY = Identity(
    file="model.gguf", model_sha256="a" * 64, build={"backend": "none", "promise": "A+B"}, options={}
)
MODELS = {"m": IDENTITY}
WAIT_S = 30.0
HASH = re.compile(r',"hash":"([0-9a-f]{64})"\}\n$')


def witness_record(i: int, **facts: Any) -> WitnessRecord:
    """A record that differs from others by its number."""
    values: dict[str, Any] = {
        "id": f"req-{i}",
        "key": "alice",
        "endpoint": "/v1/completions",
        "model": "m",
        "parameters": {"sampling": {"seed": i}},
        "prompt_ids": (1, 2, i),
        "answer_ids": [3, i],
        "text": f"answer {i}\u2028\ud83e\udd99",
        "finish_reason": "stop",
        "usage": Usage(3, 2),
        "timings": TIMINGS,
    }
    return WitnessRecord(**{**values, **facts})


def write_log(path: Path, n: int = 3, first: int = 0, **options: Any) -> Path:
    """Writes a run of `n` requests to a log, new or continued."""
    with WitnessLog.open(path, MODELS, **options) as log:
        for i in range(first, first + n):
            assert log.append(witness_record(i))
    return path


def write_torn_log(path: Path) -> Path:
    """A log of two runs; the first was cut inside its last record, which the second repaired."""
    write_log(path)
    path.write_bytes(path.read_bytes()[:-40])
    return write_log(path, first=3)


def facts_of(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a log, unchecked; torn lines are left out."""
    found: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def request_ids(path: Path) -> list[str]:
    return [facts["id"] for facts in facts_of(path) if facts["kind"] == "request"]


def write_rotated(folder: Path, n: int) -> list[Path]:
    """A log in `n` files, the oldest first; each has one request."""
    path, parts = folder / "rotated", list[Path]()
    with WitnessLog.open(path, MODELS) as log:
        for i in range(n):
            log.append(witness_record(i))
            wait_until(lambda i=i: f"req-{i}" in request_ids(path), "the record")
            if i < n - 1:
                parts.append(path.rename(folder / f"rotated.{i}"))
                log.reopen()
                wait_until(lambda: path.exists() and bool(facts_of(path)), "the new file")
    return [*parts, path]


def documented_hashes(text: str) -> list[tuple[str, str]]:
    """(stated, computed) hash of each line, by the definition in core/camelid/witness/README.md."""
    pairs: list[tuple[str, str]] = []
    prev = "0" * 64
    for line in text.splitlines(keepends=True):
        found = HASH.search(line)
        assert found
        body = line[: found.start()] + "}"
        pairs.append((found[1], hashlib.sha256(prev.encode() + body.encode()).hexdigest()))
        prev = found[1]
    return pairs


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes every request of a log, and computes all hashes anew, as a forger with write access would."""
    lines: list[bytes] = []
    prev = "0" * 64
    for facts in facts_of(path):
        del facts["hash"]
        if facts["kind"] == "request":
            change(facts)
        body = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        prev = hashlib.sha256((prev + body).encode()).hexdigest()
        lines.append(f'{body[:-1]},"hash":"{prev}"}}\n'.encode())
    path.write_bytes(b"".join(lines))


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Waits for a condition that another thread or process brings about."""
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, f"waited {WAIT_S} s in vain: {what}"
        time.sleep(0.002)
