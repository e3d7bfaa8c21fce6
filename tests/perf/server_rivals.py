"""`camelid serve` beside llama-server: `python -m tests.perf.server_rivals FILE --binary llama-server`.

Both have as many places as the most clients and as many threads; the load is `camelid bench --server` in a
process of its own, on the same machine. Servers alternate, each started anew in every round. Targets with 1,
8 and 32 clients on the file of 135M: at least 1.5 times the tokens a second, and a lower 99th percentile of
the inter-token time. The file needs a tokenizer: `tests.perf.shapes ... --vocab FILE`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from typing import Any

import httpx
from tests.support.served import served

Row = dict[str, Any]
START_S = 60.0
# Name of a column -> its value in a row of `camelid bench --server --json`.
COLUMNS: dict[str, Callable[[Row], float]] = {
    "tok/s": lambda row: row["tps"],
    "first token p50 ms": lambda row: row["ttft_ms"]["p50"],
    "inter-token p50 ms": lambda row: row["inter_token_ms"]["p50"],
    "inter-token p99 ms": lambda row: row["inter_token_ms"]["p99"],
    "generator us a token": lambda row: row["generator_cpu_us_per_token"],
}


@contextmanager
def ours(options: argparse.Namespace) -> Generator[str]:
    """Camelid's server."""
    flags = ["--backend", "cpu", "-t", str(options.threads), "--context", str(options.context)]
    with served(options.file, *flags, "--parallel", str(max(options.clients)), *options.flags) as server:
        yield server.url


@contextmanager
def theirs(options: argparse.Namespace) -> Generator[str]:
    """llama.cpp's server, with as many threads for prompts as for answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    n, places = str(options.threads), max(options.clients)
    flags = ["-c", str(options.context * places), "-np", str(places), "-t", n, "-tb", n, "--port", str(port)]
    command = [options.binary, "-m", options.file, *flags]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait(url, process)
            yield url
        finally:
            process.terminate()


def wait(url: str, process: subprocess.Popen[bytes]) -> None:
    """Waits until a server has loaded its model."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise SystemExit(f"the server at {url} did not start")


def bench(url: str, options: argparse.Namespace) -> list[Row]:
    """The rows of one run, one per number of clients."""
    clients = ",".join(map(str, options.clients))
    command = [
        sys.executable, "-m", "camelid", "bench", "--server", url, "--json", "--streams", clients,
        "--logprobs", "-p", str(options.prompt), "-n", str(options.answer),
    ]  # fmt: skip
    return json.loads(subprocess.check_output(command))["rows"]


def compare(options: argparse.Namespace) -> None:
    """Prints each run as it ends, then a row per number of clients: medians of both, and of the ratios."""
    rounds = list[tuple[list[Row], list[Row]]]()
    servers: dict[str, Callable[..., AbstractContextManager[str]]] = {"camelid": ours, "llama-server": theirs}
    for i in range(options.rounds):
        both = list[list[Row]]()
        for name, server in servers.items():
            with server(options) as url:
                both.append(bench(url, options))
            rates = ", ".join(f"{row['tps']:.1f}" for row in both[-1])
            print(f"round {i + 1}, {name}: {rates} tokens a second", flush=True)
        rounds.append((both[0], both[1]))
    for i, n in enumerate(options.clients):
        pairs = [(own[i], other[i]) for own, other in rounds]
        for name, read in COLUMNS.items():
            own, other = median(read(a) for a, _ in pairs), median(read(b) for _, b in pairs)
            ratio = median(read(a) / read(b) for a, b in pairs)
            print(
                f"{n:3} clients  {name:22} camelid {own:9.2f}  llama-server {other:9.2f}  ratio {ratio:.2f}"
            )
        lost = sum(row["n_requests"] - row["n_answered"] for pair in pairs for row in pair)
        print(f"{n:3} clients  lost {lost}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--binary", required=True, help="llama-server of the same machine.")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--answer", type=int, default=128)
    parser.add_argument("flags", nargs="*", help="further flags of `camelid serve`, after --")
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
