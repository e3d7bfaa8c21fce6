"""Streams beside grammars: `python -m tests.perf.grammar_load [--rounds 7] [--seconds 2]`.

8 streams of cria decode greedily while one kind of work goes on: the compilation of a costly schema, masks
over 50,000 tokens that no cache has, or guided requests whose schema is new each time. Each work runs in
place, as without workers, and in worker processes. Windows alternate with streams alone. A row has the median
inter-token time over spans of 16 tokens, the median of its ratios to the window before it, and the largest
gap between two tokens of a stream. The last row has the seconds of one costly schema, alone and beside the
streams.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count, pairwise
from statistics import median
from time import perf_counter
from typing import Any

import camelid
from camelid.api.llm import LLM
from camelid.requests.constraints import Constraints

STREAMS, SPAN, N_TOKENS = 8, 16, 50_000
NUMBERS = count()
Work = Callable[[LLM, Constraints], Awaitable[None]]


class Words:
    """A tokenizer of words and of all bytes, which grammars need."""

    def __init__(self, n: int) -> None:
        rng = random.Random(1)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        words = {
            " " * rng.randrange(2) + "".join(rng.choices(letters, k=rng.randrange(2, 11)))
            for _ in range(2 * n)
        }
        alone = [bytes([byte]) for byte in range(256)]
        self._bytes = [b"", *alone, *(word.encode() for word in sorted(words)[: n - 257])]
        self.eos_ids = frozenset({0})
        self.vocab_size = len(self._bytes)

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]

    def is_control(self, token_id: int) -> bool:
        return token_id == 0

    def encode(self, text: str, special: bool = False) -> list[int]:
        return [1 + byte for byte in text.encode()]


def costly() -> dict[str, Any]:
    """A schema of 3 s of processor time, different each time."""
    number = next(NUMBERS)
    return {"json_schema": {"enum": [f"word {number} {i}" for i in range(6_000)]}}


def new_schema() -> dict[str, Any]:
    """A common schema, different each time."""
    fields = {
        f"{name}{next(NUMBERS)}": {"type": "string", "maxLength": 300} for name in ("path", "text", "why")
    }
    return {"json_schema": {"type": "object", "properties": fields, "required": list(fields)}}


async def nothing(llm: LLM, constraints: Constraints) -> None:
    await asyncio.sleep(60)


async def compile_costly(llm: LLM, constraints: Constraints) -> None:
    asked = costly()
    await constraints.prepare(asked)
    constraints.factory(asked)


async def cold_masks(llm: LLM, constraints: Constraints) -> None:
    """Masks along a random text of a new schema."""
    asked = new_schema()
    await constraints.prepare(asked)
    factory = constraints.factory(asked)
    assert factory, "the schema limits the text"
    matcher, rng = factory(), random.Random(2)
    for _ in range(4):
        while not matcher.ready():
            await asyncio.sleep(0.002)
        mask = matcher.mask()
        first = rng.randrange(len(mask))
        at = next(i % len(mask) for i in range(first, first + len(mask)) if mask[i % len(mask)])
        matcher.accept(8 * at + mask[at].bit_length() - 1)
        await asyncio.sleep(0)


async def guided(llm: LLM, constraints: Constraints) -> None:
    await llm.agenerate("A list:", temperature=1, top_k=40, max_tokens=30, **new_schema())


WORKS: dict[str, Work] = {"costly schema": compile_costly, "cold masks": cold_masks, "guided": guided}


async def stream_times(llm: LLM, i: int, until: asyncio.Event) -> list[float]:
    """The times of one stream's tokens; the stream starts anew at its end."""
    times: list[float] = []
    while not until.is_set():
        prompt = [40 + (i + j) % 32 for j in range(32)]
        events = llm.astream(prompt, max_tokens=900, temperature=0, ignore_eos=True)
        async for _ in events:
            times.append(perf_counter())
            if until.is_set():
                break
        await events.aclose()
    return times


def spans(times: list[float]) -> Iterator[float]:
    return ((b - a) / SPAN for a, b in zip(times, times[SPAN:], strict=False))


async def measured(llm: LLM, constraints: Constraints, work: Work, seconds: float) -> dict[str, float]:
    """The streams' inter-token times while `work` is repeated."""
    until, n_done = asyncio.Event(), 0

    async def repeat() -> None:
        nonlocal n_done
        while True:
            await work(llm, constraints)
            n_done += 1
            await asyncio.sleep(0.05)  # in place, nothing else lets the streams run

    streams = [asyncio.create_task(stream_times(llm, i, until)) for i in range(STREAMS)]
    await asyncio.sleep(0.3)
    working = asyncio.create_task(repeat())
    await asyncio.sleep(seconds)
    until.set()
    times = await asyncio.gather(*streams)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    itl = median(span for one in times for span in spans(one))
    gap = max(b - a for one in times for a, b in pairwise(one))
    return {"itl_ms": 1e3 * itl, "gap_ms": 1e3 * gap, "done": n_done}


async def compile_seconds(llm: LLM, constraints: Constraints) -> dict[str, float]:
    """The seconds of a costly schema in a worker, alone and beside the streams."""
    found: dict[str, float] = {}
    for name, n_streams in (("alone_s", 0), ("beside_s", STREAMS)):
        until = asyncio.Event()
        streams = [asyncio.create_task(stream_times(llm, i, until)) for i in range(n_streams)]
        start = perf_counter()
        await constraints.prepare(costly())
        found[name] = round(perf_counter() - start, 2)
        until.set()
        await asyncio.gather(*streams)
    return found


async def compare(place: str, options: argparse.Namespace) -> None:
    tokenizer: Any = Words(N_TOKENS)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in WORKS}
    async with await camelid.aload("cria", context=1024, parallel=STREAMS + 1) as llm:
        constraints = Constraints(tokenizer)
        if place == "in workers":
            await llm.astart_grammar_workers()
            start = perf_counter()
            await constraints.start_workers().warm()
            print(json.dumps({"warm_s": round(perf_counter() - start, 2), "tokens": N_TOKENS}))
        await measured(llm, constraints, nothing, 1.0)
        for _ in range(options.rounds):
            for name, work in WORKS.items():
                alone = await measured(llm, constraints, nothing, options.seconds)
                row = await measured(llm, constraints, work, options.seconds)
                rows[name].append(
                    row | {"ratio": row["itl_ms"] / alone["itl_ms"], "alone_gap_ms": alone["gap_ms"]}
                )
        for name, found in rows.items():
            middle = {key: round(median(row[key] for row in found), 2) for key in found[0]}
            print(json.dumps({"work": name, "place": place} | middle), flush=True)
        if constraints.workers:
            print(json.dumps(await compile_seconds(llm, constraints)))
            constraints.workers.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    for place in ("in workers", "in place"):
        asyncio.run(compare(place, options))


if __name__ == "__main__":
    main()
