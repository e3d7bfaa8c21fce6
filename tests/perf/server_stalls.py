"""Streams beside slow work of another client: `python -m tests.perf.server_stalls FILE.gguf`.

8 streams decode over HTTP, and another client has 1 MB of text tokenized, has a schema of about 3 s of
processor time compiled, or sends a prompt of 32,000 tokens. Windows alone and beside alternate. Targets: the
median inter-token time rises by at most 30 % for text and schema, and the 99th percentile stays within 1.5
times `--step-ms` during the prompt.

The file needs a tokenizer and a context of 40,000: `tests.perf.shapes ... --vocab FILE --context 49152`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any

import httpx
from tests.perf.server_load import shares
from tests.support.served import served

ANSWER, CONTEXT, PROMPT = 4000, 40_000, 32_000
NUMBERS = count()
Work = Callable[[httpx.AsyncClient], Awaitable[object]]


async def nothing(client: httpx.AsyncClient) -> None:
    await asyncio.sleep(3)


async def text(client: httpx.AsyncClient) -> None:
    """1 MB, different each time: no cache of words helps."""
    letters = random.Random(next(NUMBERS)).choices("etaoin shrdlu", k=1_000_000)
    (await client.post("/tokenize", json={"content": "".join(letters)})).raise_for_status()


async def schema(client: httpx.AsyncClient) -> None:
    number = next(NUMBERS)
    words = [f"word {number} {i}" for i in range(6_000)]
    body: dict[str, Any] = {"prompt": "A word:", "json_schema": {"enum": words}, "n_predict": 1}
    (await client.post("/completion", json=body)).raise_for_status()


async def prompt(client: httpx.AsyncClient) -> None:
    rng = random.Random(next(NUMBERS))
    ids = [rng.randrange(100, 20_000) for _ in range(PROMPT)]
    (await client.post("/v1/completions", json={"prompt": ids, "max_tokens": 1})).raise_for_status()


WORKS: dict[str, Work] = {"1 MB of text": text, "schema": schema, "prompt of 32,000": prompt}


@dataclass
class Stream:
    """One stream's inter-token times since the last `take`."""

    gaps: array[float]

    async def run(self, client: httpx.AsyncClient, i: int) -> None:
        """Reads answers one after another. A frame is a token, since log-probabilities are asked for."""
        ids = [100 + (37 * i + j) % 900 for j in range(32)]
        body = {"prompt": ids, "max_tokens": ANSWER, "ignore_eos": True, "stream": True, "logprobs": 1}
        while True:
            last = 0.0
            async with client.stream("POST", "/v1/completions", json=body) as reply:
                async for part in reply.aiter_raw():
                    now, n = time.perf_counter(), part.count(b"data: {")
                    if last and n:
                        self.gaps.extend([(now - last) / n] * n)
                    last = now if n else last

    def take(self) -> array[float]:
        gaps, self.gaps = self.gaps, array("d")
        return gaps


async def window(streams: list[Stream], client: httpx.AsyncClient, work: Work) -> dict[str, float]:
    """The inter-token times of all streams while `work` runs once."""
    for stream in streams:
        stream.take()
    start = time.perf_counter()
    await work(client)
    seconds = time.perf_counter() - start
    gaps = array("d", (gap for stream in streams for gap in stream.take()))
    return {**shares(gaps), "most ms": round(1e3 * max(gaps, default=0.0), 1), "seconds": round(seconds, 2)}


async def measure(url: str, options: argparse.Namespace) -> None:
    """Prints a row per work: medians over the rounds."""
    async with httpx.AsyncClient(base_url=url, timeout=1800) as client:
        streams = [Stream(array("d")) for _ in range(options.streams)]
        tasks = [asyncio.create_task(stream.run(client, i)) for i, stream in enumerate(streams)]
        await asyncio.sleep(2)
        for name, work in WORKS.items():
            if options.work not in name:
                continue
            if work is not prompt:
                await work(client)  # the first starts processes
            pairs = [
                (await window(streams, client, nothing), await window(streams, client, work))
                for _ in range(options.rounds)
            ]
            print(json.dumps({"work": name, **compared(pairs)}), flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def compared(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, float]:
    """Medians of the windows alone and beside, and of their ratios."""
    alone = {f"alone {key}": median(one[key] for one, _ in pairs) for key in ("p50 ms", "p99 ms")}
    beside = {key: median(row[key] for _, row in pairs) for key in pairs[0][1]}
    return {**alone, **beside, "p50 ratio": round(median(b["p50 ms"] / a["p50 ms"] for a, b in pairs), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", default="", help="Only the works whose name contains this.")
    parser.add_argument("--step-ms", type=int, default=100)
    options = parser.parse_args()
    rows = CONTEXT + options.streams * (ANSWER + 100)
    flags = ["--backend", "cpu", "--context", str(CONTEXT), "--kv-rows", str(rows), "--parallel"]
    flags += [str(options.streams + 1), "--step-ms", str(options.step_ms), "--max-body", "32M"]
    with served(options.file, *flags) as server:
        asyncio.run(measure(server.url, options))


if __name__ == "__main__":
    main()
