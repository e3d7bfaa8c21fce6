"""The real llama-server beside `camelid serve`: the same flags, file and requests, reply by reply.

python -m tests.rivals.llama_server --binary PATH [--model FILE]... [--only NAME] [--all]

A reply is cut down to facts: status, headers, keys, types and values. Facts that differ are printed, unless
`INTENDED` names them. The exit code counts the others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import httpx
from tests.rivals.llama_server_cases import GROUPS, Ask, Group
from tests.rivals.llama_server_intended import HEADERS, INTENDED, VARIES

ROOT = Path(__file__).parents[2]
CRIA = ROOT / "core" / "camelid" / "data" / "cria.gguf"
START_S = 60.0
Facts = dict[str, Any]
Command = Sequence[str]


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact of one reply in which the servers differ; None where a server has it not."""

    case: str
    fact: str
    theirs: Any
    ours: Any

    @property
    def reason(self) -> str:
        """The reviewed reason; "" for an unknown difference."""
        rows = (row for row in INTENDED if fnmatchcase(self.case, row[0]) and fnmatchcase(self.fact, row[1]))
        return next((row[2] for row in rows), "")


@dataclass(slots=True)
class Report:
    """The differences found, and the number of replies compared."""

    found: list[Difference] = field(default_factory=list[Difference])
    n_replies: int = 0

    def compare(self, case: str, theirs: Facts, ours: Facts) -> None:
        self.n_replies += 1
        for fact in sorted(theirs.keys() | ours.keys()):
            above = parent(fact)
            is_told = (theirs.get(above) == "object") != (
                ours.get(above) == "object"
            )  # by the object that one server has not
            if theirs.get(fact) != ours.get(fact) and not is_told:
                self.found.append(Difference(case, fact, theirs.get(fact), ours.get(fact)))

    def unknown(self) -> list[Difference]:
        return [each for each in self.found if not each.reason]


def parent(fact: str) -> str:
    """The path of the object that holds a fact."""
    return fact.rpartition(".")[0] if "." in fact else ""


@contextmanager
def running(command: Command, address: str, health: str) -> Iterator[httpx.Client]:
    """A server as a process, ready to be asked."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("core", "native")),
        "CAMELID_SERVE_BACKEND": "cpu",
    }  # fmt: skip
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            with httpx.Client(base_url=address, timeout=60) as client:
                wait_ready(client, process, health)
                yield client
        except (AssertionError, httpx.HTTPError):
            log.seek(0)
            print(log.read().decode(errors="replace")[-3000:], file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_S)


def wait_ready(client: httpx.Client, process: subprocess.Popen[bytes], health: str) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(f"{process.args} ended with {process.returncode}")
        try:
            if client.get(health).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{process.args} is not ready after {START_S:g} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def flags(group: Group, model: Path, port: int, folder: str) -> list[str]:
    """llama-server's arguments, which both servers take."""
    own = [word.replace("{folder}", folder) for word in group.flags]
    return ["-m", str(model), "--host", "127.0.0.1", "--port", str(port), *own]


def run_group(group: Group, model: Path, binary: str, report: Report, only: str) -> None:
    """Asks both servers all requests of a group in order, and compares the replies."""
    asks = [ask for ask in group.asks if fnmatchcase(f"{group.name}/{ask.name}", only)]
    if not asks:
        return
    both: list[httpx.Client] = []
    with ExitStack() as stack:
        for start in ((binary,), (sys.executable, "-m", "camelid", "serve")):
            port, folder = free_port(), stack.enter_context(tempfile.TemporaryDirectory())
            command = [*start, *flags(group, model, port, folder)]
            both.append(stack.enter_context(running(command, f"http://127.0.0.1:{port}", group.health)))
        for ask in asks:
            theirs, ours = (reply_facts(client, ask) for client in both)
            report.compare(f"{model.stem}/{group.name}/{ask.name}", theirs, ours)


def reply_facts(client: httpx.Client, ask: Ask) -> Facts:
    """The facts of one reply."""
    body = ask.body if isinstance(ask.body, bytes | None) else json.dumps(ask.body).encode()
    reply = client.request(ask.method, ask.path, content=body, headers=dict(ask.headers))
    facts: Facts = {"status": reply.status_code}
    kind = reply.headers.get("content-type", "")
    facts["content-type"] = kind.partition(";")[0]
    facts |= {f"header {name}": reply.headers[name] for name in HEADERS if name in reply.headers}
    if kind.startswith("text/event-stream"):
        facts |= stream_facts(reply.text)
    elif kind.startswith("application/json"):
        facts |= object_facts(reply.json(), "")
    elif ask.path.startswith("/metrics"):
        facts |= {f"metric {name}": True for name in re.findall(r"^(llamacpp:\w+) ", reply.text, re.M)}
    return {fact: value_of(fact, value) for fact, value in facts.items()}


def value_of(fact: str, value: Any) -> Any:
    """The value, or its type alone where it differs from run to run."""
    varies = any(fnmatchcase(fact, pattern) for pattern in VARIES)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if varies or isinstance(value, float):
        return "number" if isinstance(value, int | float) else type(value).__name__
    return value


def object_facts(value: Any, path: str) -> Facts:
    """Every key and value by its path; of a list its length and first object."""
    if isinstance(value, dict):
        found: Facts = {path or "(object)": "object"}
        for key, item in cast("Mapping[str, Any]", value).items():
            found |= object_facts(item, f"{path}.{key}" if path else key)
        return found
    if isinstance(value, list):
        items = cast("Sequence[Any]", value)
        found = {f"{path}[]": len(items)}
        for item in items[:1] if items and isinstance(items[0], dict | list) else ():
            found |= object_facts(item, f"{path}[0]")
        return found
    return {path or "(value)": "null" if value is None else value}


def stream_facts(text: str) -> Facts:
    """The order of a stream's events, and the facts of the first and last event of each kind."""
    events = [event_of(block) for block in re.split(r"\r?\n\r?\n", text) if block.strip()]
    kinds = [kind for kind, _ in events]
    found: Facts = {"stream": " ".join(kind for kind, _ in groupby(kinds))}
    for place, order in (("first", events[::-1]), ("last", events)):
        for kind, data in dict(order).items():
            found |= {f"{place} {kind}: {fact}": value for fact, value in object_facts(data, "").items()}
    return found


def event_of(block: str) -> tuple[str, Any]:
    """The kind of an event, and its data: its name, or what a chunk's keys say."""
    name, data = "", ""
    for line in block.splitlines():
        field_name, _, value = line.partition(": ")
        name = value if field_name == "event" else name
        data = value if field_name == "data" else data
    if not data:
        return "comment", None
    if data == "[DONE]":
        return "[DONE]", None
    chunk = json.loads(data)
    return name or chunk_kind(chunk), chunk


def chunk_kind(chunk: Mapping[str, Any]) -> str:
    """The kind of a chunk without a name."""
    if not isinstance(chunk, dict):
        return "other"
    if "prompt_progress" in chunk:
        return "progress"
    if "error" in chunk:
        return "error"
    choices = chunk.get("choices")
    if choices is None:
        return "final" if chunk.get("stop") else "token"
    if not choices:
        return "usage"
    if choices[0].get("finish_reason"):
        return "final"
    return "role" if "role" in choices[0].get("delta", {}) else "token"


def write_report(report: Report, *, shows_all: bool) -> None:
    named = [each for each in report.found if each.reason]
    for each in report.found if shows_all else report.unknown():
        why = f"   ({each.reason})" if each.reason else ""
        print(
            f"{each.case}  {each.fact}\n    llama-server {each.theirs!r:.300}\n"
            f"    camelid      {each.ours!r:.300}{why}"
        )
    reasons = sorted({each.reason for each in named})
    print(f"{report.n_replies} replies, {len(report.unknown())} unknown differences, {len(named)} named:")
    for reason in reasons:
        print(f"  {sum(each.reason == reason for each in named):4} {reason}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rivals.llama_server", description=__doc__)
    parser.add_argument("--binary", required=True, help="llama-server")
    parser.add_argument("--model", type=Path, action="append", help="GGUF file; default: cria")
    parser.add_argument("--only", default="*", help="pattern of GROUP/NAME")
    parser.add_argument("--all", action="store_true", help="named differences, too")
    asked = parser.parse_args(arguments)
    report = Report()
    for model in asked.model or [CRIA]:
        for group in GROUPS:
            run_group(group, model, asked.binary, report, asked.only)
    write_report(report, shows_all=asked.all)
    return min(len(report.unknown()), 100)


if __name__ == "__main__":
    sys.exit(main())
