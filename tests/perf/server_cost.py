"""The server's own cost per token: `python -m tests.perf.server_cost [--streams 64] [--tokens 256]`.

N streams over real HTTP against cria (cpu), beside `camelid bench -b N` in a process without a server. Counts
processor time by thread from /proc: the server's is that of its event loop and of its small threads, and what
its engine's threads need more per token than those of the bench. The load generator's time is reported, and
deducted from the wall time of the machine's cores. Targets: at most 40 us a token, at least 90 % of the
tokens a second.

The endpoint is /v1/completions, as the bench reads no conversations; `--face chat` adds their parser.

`--seconds S` instead keeps all streams busy for S seconds: memory, faults, times to the first token and
between tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.perf.server_load import FACES, Load, connect, prompt_of, repeat, shares
from tests.support.served import Served, served

import camelid
from camelid.api.llm import LLM

MODEL = "cria"
Row = dict[str, float]
SAMPLE_S = 1.0
N_PLAIN = 8  # streams whose text is compared with a reply that is not streamed


@dataclass(frozen=True, slots=True)
class Threads:
    """Processor seconds of a process: of its main thread, of its busiest other threads, and of the rest.

    A server's main thread is the event loop; the busiest others are the engine's and its kernels'.
    """

    main: float
    others: dict[int, float]

    @classmethod
    def of(cls, pid: int) -> Threads:
        """The times up to now."""
        times = {
            int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9
            for task in Path(f"/proc/{pid}/task").iterdir()
        }
        return cls(times.pop(pid), times)

    def since(self, before: Threads) -> Threads:
        """The time between two moments."""
        gone = {tid: seconds - before.others.get(tid, 0.0) for tid, seconds in self.others.items()}
        return Threads(self.main - before.main, gone)

    @property
    def engine(self) -> float:
        """All other threads: engine, kernels, and the small ones."""
        return sum(self.others.values())


def resident_mb(pid: int) -> float:
    """Megabytes of a process in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def bench(streams: int, tokens: int, threads: int) -> None:
    """A round for each line of standard input."""
    async with await camelid.aload(MODEL, backend="cpu", threads=threads, parallel=streams) as llm:
        for _ in sys.stdin:
            print(json.dumps(await bench_round(llm, streams, tokens)), flush=True)


async def bench_round(llm: LLM, streams: int, tokens: int) -> Row:
    """As `camelid bench` times decode: from the last stream's first token, by the rows that retire."""
    asked = [prompt_of(i) for i in range(streams)]
    running = [llm.submit(each, max_tokens=tokens, temperature=0.0, ignore_eos=True) for each in asked]
    for stream in running:
        await anext(stream)
    start, used, n = time.perf_counter(), time.process_time(), llm.counters.retired_decode_rows
    first = running[0]
    async for _ in first:
        pass
    wall, used = time.perf_counter() - start, time.process_time() - used
    n = llm.counters.retired_decode_rows - n
    for stream in running:
        await stream.aclose()
    return {"tokens_per_s": n / wall, "us": used / n * 1e6}


@contextmanager
def bench_apart(options: argparse.Namespace) -> Iterator[Callable[[], Row]]:
    """`bench` in a process of its own: a function that runs one round."""
    names = ("streams", "tokens", "threads")
    words = [word for name in names for word in (f"--{name}", str(getattr(options, name)))]
    command = [sys.executable, "-m", "tests.perf.server_cost", "--bench", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asking, answers = process.stdin, process.stdout
        assert asking and answers

        def run() -> Row:
            print(file=asking, flush=True)
            return json.loads(answers.readline())

        yield run
        asking.close()


def n_delivered(server: Served) -> int:
    """Tokens that the server's streams received so far: a token without text has no frame."""
    (model,) = server.get("/v1/stats").json()["models"]
    return model["tokens"]["answer"]


async def round_of(server: Served, options: argparse.Namespace) -> Row:
    """One answer of every stream, timed from the last stream's first token to the first stream's end."""
    load = Load()
    clients = await connect(server.url, load, FACES[options.face], options.streams, options.tokens)
    asked = [asyncio.ensure_future(client.ask()) for client in clients]
    await asyncio.gather(*(client.began for client in clients))
    pid, start = server.process.pid, time.perf_counter()
    before, own, n = Threads.of(pid), time.process_time(), n_delivered(server)
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    used, wall = Threads.of(pid).since(before), time.perf_counter() - start
    own, n = time.process_time() - own, n_delivered(server) - n
    await asyncio.gather(*asked)
    for client in clients:
        client.close()
    if load.faults:
        raise SystemExit(f"faults: {load.faults[:3]}")
    deducted = wall - own / (os.cpu_count() or 1)
    return {
        "tokens_per_s": n / wall, "without_load": n / deducted, "loop_us": used.main / n * 1e6,
        "us": used.engine / n * 1e6 + used.main / n * 1e6, "client_us": own / n * 1e6,
    }  # fmt: skip


def cost(server: Served, options: argparse.Namespace) -> dict[str, object]:
    """Rounds of server and bench in turn, since other work on the machine changes by the minute."""
    pairs = list[tuple[Row, Row]]()
    with bench_apart(options) as run:
        for _ in range(options.rounds + 1):
            pairs.append((asyncio.run(round_of(server, options)), run()))
    return report(pairs[1:])  # the first warms up


def report(pairs: Sequence[tuple[Row, Row]]) -> dict[str, object]:
    """The medians beside the targets."""

    def middle(read: Callable[[Row, Row], float], digits: int = 1) -> float:
        return round(median(read(own, beside) for own, beside in pairs), digits)

    return {
        "tokens a second": middle(lambda own, _: own["tokens_per_s"], 0),
        "bench, tokens a second": middle(lambda _, bench: bench["tokens_per_s"], 0),
        "of the bench": middle(lambda own, bench: own["tokens_per_s"] / bench["tokens_per_s"], 3),
        "of the bench, load deducted": middle(
            lambda own, bench: own["without_load"] / bench["tokens_per_s"], 3
        ),
        "event loop, us a token": middle(lambda own, _: own["loop_us"]),
        "server, all threads, us a token": middle(lambda own, _: own["us"]),
        "bench, us a token": middle(lambda _, bench: bench["us"]),
        "server above the bench, us a token": middle(lambda own, bench: own["us"] - bench["us"]),
        "load generator, us a token": middle(lambda own, _: own["client_us"]),
    }


async def sustained(server: Served, options: argparse.Namespace) -> dict[str, Any]:
    """All streams busy for some seconds."""
    load, face = Load(), FACES[options.face]
    clients = await connect(server.url, load, face, options.streams, options.tokens)
    pid, start, own = server.process.pid, time.perf_counter(), time.process_time()
    asking = [asyncio.ensure_future(repeat(client, start + options.seconds)) for client in clients]
    memory = list[float]()
    while any(not each.done() for each in asking):
        await asyncio.sleep(SAMPLE_S)
        memory.append(resident_mb(pid))
    await asyncio.gather(*asking)
    wall = time.perf_counter() - start
    for i, text in list(load.texts.items())[:N_PLAIN]:
        plain = server.post(face.path, face.body(i, options.tokens) | {"stream": False}).json()
        if face.plain(plain["choices"][0]) != text:
            load.faults.append(f"stream {i}: the streamed text is not the plain one")
    n_tokens = load.n_answers * options.tokens
    warm = memory[len(memory) // 4 :]
    return {
        "streams": options.streams, "seconds": round(wall, 1), "answers": load.n_answers,
        "tokens": n_tokens, "tokens a second": round(n_tokens / wall),
        "faults": load.faults[:5], "first token": shares(load.first_s), "inter-token": shares(load.gap_s),
        "resident MB, first quarter's end": round(warm[0], 1), "resident MB, end": round(memory[-1], 1),
        "resident MB, most": round(max(memory), 1),
        "load generator, processor seconds": round(time.process_time() - own, 1),
    }  # fmt: skip


@contextmanager
def server_of(options: argparse.Namespace) -> Iterator[Served]:
    """A server with as many places as streams."""
    places = str(options.streams)
    flags = ["--backend", "cpu", "-t", str(options.threads), "--parallel", places, *options.flags]
    with served(*flags) as server:
        yield server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--face", choices=FACES, default="completions")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--bench", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("flags", nargs="*", help="further flags of `camelid serve`, after --")
    options = parser.parse_args()
    if options.bench:
        asyncio.run(bench(options.streams, options.tokens, options.threads))
        return
    with server_of(options) as server:
        if options.seconds:
            found = asyncio.run(sustained(server, options))
        else:
            found = cost(server, options)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
