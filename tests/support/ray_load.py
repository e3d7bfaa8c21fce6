"""A Ray cluster on this machine, and clients that repeat a request until its answer is whole."""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import ray
import ray.serve as serve
from ray.cluster_utils import Cluster

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
N_CLIENTS, N_TOKENS = 8, 64
TRIES = 60
HEAD: dict[str, Any] = {
    "num_cpus": 2, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True,
}  # fmt: skip
HEAD_RESOURCES = {"front": 1}
FRONT: dict[str, Any] = {"num_cpus": 0.5, "resources": {"front": 0.1}}  # of what no strike may hit
# In the nodes' own environment: by `runtime_env` every worker would import Ray twice, for 3 s more.
ENV = {"PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("core", "native", "."))}
START_TRIES = 4  # of a node: Ray gives it 15 s, which a busy machine may exceed
END_S = 60.0  # a teardown that takes longer hangs


Report = Callable[[str, float], object]  # what took how many seconds


@contextmanager
def cluster(
    port: int,
    seats: int = 1,
    report: Report = lambda *_: None,
    *,
    is_small: bool = False,
    system: Mapping[str, Any] | None = None,
) -> Iterator[Any]:
    """A head node with proxy and gate, and two nodes with `seats` each; the teardown is bounded.

    In a small cluster the head is one of the two. `system` replaces settings of Ray's own processes.
    """
    started, nodes, seat = time.monotonic(), Cluster(), {"seat": seats}
    with mock.patch.dict(os.environ, ENV):
        add_node(nodes, **HEAD, resources=HEAD_RESOURCES | (seat if is_small else {}), _system_config=system)
        for _ in range(1 if is_small else 2):
            add_node(nodes, num_cpus=seats, resources=seat)
    ray.init(address=nodes.address, log_to_driver=False)
    serve.start(proxy_location="HeadOnly", http_options={"port": port})
    report("cluster up", time.monotonic() - started)
    try:
        yield nodes
    finally:
        started = time.monotonic()
        ending = threading.Thread(target=end, args=(nodes,), daemon=True)
        ending.start()
        ending.join(END_S)
        assert not ending.is_alive(), f"the cluster did not end in {END_S:g} s"
        report("cluster down", time.monotonic() - started)


def add_node(nodes: Any, **words: Any) -> None:
    """Starts a node, again if its processes come too late."""
    for left in reversed(range(START_TRIES)):
        try:
            nodes.add_node(**words)
            return
        except Exception as error:
            if not left or "timed out" not in str(error):
                raise


def end(nodes: Any) -> None:
    serve.shutdown()
    ray.shutdown()
    nodes.shutdown()


def pids_of(nodes: Any, title: str) -> list[int]:
    """Processes of these nodes' actors whose titles begin so."""
    raylets = {each.process.pid for node in nodes.list_all_nodes() for each in node.all_processes["raylet"]}
    found = list[int]()
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                place.name.isdecimal()
                and (place / "cmdline").read_bytes().startswith(title.encode())
                and parent_of(place) in raylets
            ):
                found.append(int(place.name))
    return sorted(found)


def parent_of(process: Path) -> int:
    """The parent of a process, by its folder in /proc."""
    return int((process / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[1])


def n_running() -> int:
    """Replicas that run."""
    states = serve.status().applications["default"].deployments["replica"].replica_states
    return sum(count for state, count in states.items() if state == "RUNNING")


@dataclass
class Tally:
    """Tally of the clients: whole answers, attempts that ended in an error, and answers that differ."""

    n_tokens: int = 0
    whole: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lost: list[int] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def body(i: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"Tell me a long story, number {i}."}],
        "max_tokens": N_TOKENS, "seed": i, "stream": True, "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip


def ask(client: httpx.Client, i: int, tally: Tally) -> None:
    """One request, repeated until an answer is whole, as a client library would."""
    for attempt in range(TRIES):
        text, n_tokens, error = attempt_once(client, i)
        with tally.lock:
            if not error:
                tally.n_tokens += n_tokens
                tally.whole["first try" if not attempt else "retried"] += 1
                tally.texts[i] = text
                return
            tally.errors[error] += 1
        time.sleep(0.5)
    tally.lost.append(i)


def attempt_once(client: httpx.Client, i: int) -> tuple[str, int, str]:
    """Text, tokens and error of one attempt; the error is "" for a whole answer."""
    parts, n_tokens = list[str](), 0
    try:
        with client.stream("POST", CHAT, json=body(i)) as reply:
            if reply.status_code != 200:
                return "", 0, f"{reply.status_code} {code_of(reply.read())}"
            for line in reply.iter_lines():
                if line == "data: [DONE]":
                    return "".join(parts), n_tokens, ""
                if line.startswith("data: "):
                    data = json.loads(line[6:])
                    if "error" in data:
                        return "", 0, f"in the stream: {data['error']['code']}"
                    parts += [choice["delta"].get("content") or "" for choice in data["choices"]]
                    n_tokens = (data.get("usage") or {}).get("completion_tokens", n_tokens)
    except httpx.HTTPError as error:
        return "", 0, type(error).__name__
    return "", 0, "cut without an error"


def code_of(content: bytes) -> str:
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(content)["error"]["code"])
    return content.decode("utf-8", "replace")[:60]


def load(url: str, n_requests: int, strike: Any = None, *, n_clients: int = N_CLIENTS) -> tuple[Tally, float]:
    """Runs requests from `n_clients` clients; `strike` is called once a sixth of them is answered."""
    tally, started = Tally(), time.monotonic()
    limits = httpx.Limits(max_connections=n_clients)
    with (
        httpx.Client(base_url=url, timeout=60, limits=limits) as client,
        ThreadPoolExecutor(n_clients) as pool,
    ):
        work = [pool.submit(ask, client, i, tally) for i in range(n_requests)]
        if strike:
            while len(tally.texts) < n_requests // 6:
                time.sleep(0.005)
            strike()
        for each in work:
            each.result()
    return tally, time.monotonic() - started
