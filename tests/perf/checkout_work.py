"""Figures of one fresh process, as JSON: `checkout_work.py BEGUN THREADS (model FILE | engine)`.

Started by `checkouts`. It imports public names alone, so that it runs on checkouts with other inner modules.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from time import perf_counter, process_time, time
from typing import Any

import camelid

CONTEXT, LOADS = 1024, 3
TOKENS = {"cria": (512, 256)}  # prefill, decode; other models use FILE_TOKENS
FILE_TOKENS = (128, 32)
SECONDS, MOST, LEAST = 1.2, 30, 2  # per rate: time limit for new runs, most and fewest runs
SEQUENCES, PROMPT, STEPS, STRETCHES = (1, 8), 200, 100, 5
GREEDY = {"temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
TEXT = "Once upon a time there was a small camel who"
BACKEND = ("run", "read", "allocate", "compile")  # methods that identify a backend class


def opened(file: str, threads: int) -> camelid.LLM:
    """A model on the cpu backend."""
    return camelid.load(file, backend="cpu", threads=threads, context=CONTEXT, parallel=1)


def ids(llm: camelid.LLM, n: int, first: int = 0) -> list[int]:
    """A prompt of `n` ids spread over the vocabulary's upper half, which has no control tokens."""
    half = llm.spec.vocab_size // 2
    return [half + (first * 7919 + i * 31) % half for i in range(n)]


def first_token(file: str, threads: int, begun: float) -> float:
    """Seconds from the process's start to its first token."""
    llm = opened(file, threads)
    next(llm.stream(TEXT if file == "cria" else ids(llm, 8), max_tokens=2, **GREEDY))
    end = time()
    llm.close()
    return end - begun


def load_seconds(file: str, threads: int) -> float:
    """Shortest of several loads, all modules imported."""
    times: list[float] = []
    for _ in range(LOADS):
        begun = perf_counter()
        llm = opened(file, threads)
        times.append(perf_counter() - begun)
        llm.close()
    return min(times)


def best(rate: Callable[[], float]) -> float:
    """The highest of several rates, after a warm-up."""
    rate()
    begun, rates = perf_counter(), list[float]()
    while len(rates) < LEAST or (len(rates) < MOST and perf_counter() - begun < SECONDS):
        rates.append(rate())
    return max(rates)


def rates(llm: camelid.LLM, n_prefill: int, n_decode: int) -> dict[str, float]:
    """Tokens a second of prefill and decode."""
    long, short = ids(llm, n_prefill), ids(llm, 8)
    return {
        "prefill tok/s": best(lambda: llm.generate(long, max_tokens=1, **GREEDY).timings.prefill_tps),
        "decode tok/s": best(lambda: llm.generate(short, max_tokens=n_decode, **GREEDY).timings.decode_tps),
    }


def model_figures(file: str, threads: int, begun: float) -> dict[str, float]:
    """Figures of a model on the cpu backend."""
    found = {"first token ms": 1e3 * first_token(file, threads, begun)}
    found["load ms"] = 1e3 * load_seconds(file, threads)
    with opened(file, threads) as llm:
        return found | rates(llm, *TOKENS.get(file, FILE_TOKENS))


class Apart:
    """Processor time of a backend class, subtracted from the step's time."""

    def __init__(self, kind: type[Any]) -> None:
        self.seconds = 0.0
        kind.run, kind.read = self._called(kind.run), self._awaited(kind.read)

    def _called(self, run: Callable[..., object]) -> Callable[..., object]:
        def timed(*args: object, **words: object) -> object:
            begun = process_time()
            ticket = run(*args, **words)
            self.seconds += process_time() - begun
            return ticket

        return timed

    def _awaited(self, read: Callable[..., Awaitable[object]]) -> Callable[..., Coroutine[Any, Any, object]]:
        async def timed(*args: object, **words: object) -> object:
            begun = process_time()
            result = await read(*args, **words)
            self.seconds += process_time() - begun
            return result

        return timed


async def on_null(n: int) -> camelid.LLM:
    """A model on the null backend, for `n` sequences."""
    return await camelid.aload("cria", backend="null", context=CONTEXT, parallel=n)


async def null_apart() -> Apart:
    """The null backend's time. Its class is found among all classes, since no public name leads to it."""
    llm = await on_null(1)
    kinds = {type(one) for one in gc.get_objects()}
    own = [kind for kind in kinds if kind.__module__.split(".")[0] == "camelid"]
    kind = next(kind for kind in own if all(hasattr(kind, name) for name in BACKEND))
    await llm.aclose()
    return Apart(kind)


async def stretch(llm: camelid.LLM, stream: AsyncIterator[object], apart: Apart) -> float:
    """The engine's own microseconds per step, over some decode steps."""
    n_before, apart.seconds, begun = llm.counters.steps_retired, 0.0, process_time()
    for _ in range(STEPS):
        await anext(stream)
    seconds = process_time() - begun - apart.seconds
    assert apart.seconds, "no backend time was recorded"
    return 1e6 * seconds / (llm.counters.steps_retired - n_before)


async def step_us(n: int, apart: Apart) -> float:
    """The engine's own microseconds per decode step of `n` sequences: the least of several runs."""
    llm = await on_null(n)
    words = {**GREEDY, "max_tokens": STEPS * (STRETCHES + 1)}
    streams = [llm.submit(ids(llm, PROMPT, i), **words) for i in range(n)]
    while llm.counters.decode_rows < 10 * n:
        await anext(streams[0])
    found = [await stretch(llm, streams[0], apart) for _ in range(STRETCHES)]
    for stream in streams:
        await stream.aclose()
    await llm.aclose()
    return min(found)


async def engine_figures() -> dict[str, float]:
    """Figures of the engine on the null backend."""
    apart = await null_apart()
    return {f"step of {n}, us": await step_us(n, apart) for n in SEQUENCES}


def figures(begun: float, threads: int, part: Sequence[str]) -> dict[str, float]:
    """Figures of one part."""
    if part[0] == "engine":
        return asyncio.run(engine_figures())
    return model_figures(part[1], threads, begun)


def main() -> None:
    begun, threads, *part = sys.argv[1:]
    print(json.dumps({"from": camelid.__file__, "figures": figures(float(begun), int(threads), part)}))


if __name__ == "__main__":
    main()
