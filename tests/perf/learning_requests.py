"""Costs of learning for requests on cria: looks at prompts, and training beside four streams.

`python -m tests.perf.learning_requests [--calls N] [--seconds S]` loads cria once without and once with
learning: 300 past requests and 20 corrections of the scenario persona. It prints, in milliseconds, the time
to the first token without and with learning, in turn, and their difference, for prompts that are far from
all feedback by words, near by words, and in scope; then the tokens a second of four streams without
learning, and beside a training that began before them.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from tests.learning.scenarios import SCENARIOS
from tests.learning.scenarios.retention import past_requests
from tests.perf.learning_scenarios import read

from camelid.api.learnt.runs import open_background
from camelid.api.llm import LLM
from camelid.api.load import aload, aload_with
from camelid.learning.memory import COARSE
from camelid.learning.store.store import LEARNT
from camelid.loading.options import LoadOptions
from cria.talk import Talk

GREEDY: dict[str, Any] = {"temperature": 0.0, "seed": 0}
STREAM_TOKENS = 200
N_STREAMS = 4


async def ask(llm: LLM, talk: Talk, **options: Any) -> Any:
    given: dict[str, Any] = {"tools": list(talk.tools)} if talk.tools else {}
    return await llm.agenerate(list(talk.messages), **GREEDY, **given, **options)


async def first_token(llm: LLM, talk: Talk, salt: str) -> float:
    """Milliseconds to the first token, of a prompt that is in no prefix cache."""
    given: dict[str, Any] = {"tools": list(talk.tools)} if talk.tools else {}
    begin = time.perf_counter()
    stream = llm.astream(list(talk.messages), **GREEDY, **given, max_tokens=2, cache_salt=salt)
    async for _ in stream:
        found = 1e3 * (time.perf_counter() - begin)
        break
    await stream.aclose()
    return found


async def taught(llm: LLM, seed: int) -> None:
    """Answers past requests and corrects the answers of a scenario."""
    for talk in past_requests(seed, 300):
        await ask(llm, talk, max_tokens=48)
    for event in SCENARIOS["persona"](seed).events:
        done = await ask(llm, event.talk)
        await llm.afeedback(done, -1, correction=read(event.answer))
    while not llm._learning_learner().is_settled:
        await llm._learning_learner().settle()


def kinds(llm: LLM, talks: Sequence[Talk], held: Sequence[Talk]) -> dict[str, list[Talk]]:
    """Prompts by what learning does with them."""
    learner = llm._learning_learner()
    asked = [learner.asked(list(talk.messages), {"tools": list(talk.tools)}) for talk in talks]
    is_near = [bool(each and each.nearest.within(COARSE)) for each in asked]
    return {
        "far from all feedback": [talk for talk, near in zip(talks, is_near, strict=True) if not near],
        "near by words": [talk for talk, near in zip(talks, is_near, strict=True) if near],
        "in scope": list(held),
    }


async def looks(bare: LLM, llm: LLM, n_calls: int) -> None:
    groups = kinds(llm, past_requests(9, 600), [task.talk for task in SCENARIOS["persona"](0).held])
    print("| ms | prompts | without | with | added, median | added, p99 |\n|---|---|---|---|---|---|")
    for name, talks in groups.items():
        pairs: list[tuple[float, float]] = []
        for i in range(n_calls):
            talk = talks[i % len(talks)]
            salt = f"{name} {i}"
            pairs.append((await first_token(bare, talk, salt), await first_token(llm, talk, salt)))
        before, after = (sorted(column) for column in zip(*pairs, strict=True))
        added = median(after) - median(before)
        p99 = after[int(0.99 * len(after))] - before[int(0.99 * len(before))]
        cells = " | ".join(f"{ms:.2f}" for ms in (median(before), median(after), added, p99))
        print(f"| {name} | {len(talks)} | {cells} |")


async def tokens_a_second(llm: LLM, seconds: float) -> float:
    ends = time.perf_counter() + seconds

    async def stream(i: int) -> int:
        count = 0
        while time.perf_counter() < ends:
            talk = [{"role": "user", "content": f"Tell me a story about {i + count} camels."}]
            options = {**GREEDY, "max_tokens": STREAM_TOKENS, "ignore_eos": True}
            async for _ in llm.astream(talk, **options):
                count += 1
        return count

    begin = time.perf_counter()
    n = sum(await asyncio.gather(*map(stream, range(N_STREAMS))))
    return n / (time.perf_counter() - begin)


async def beside_training(llm: LLM, options: LoadOptions, seconds: float) -> None:
    space, engine = llm._learning_learner().space, llm.running.engine
    alone, beside = [], []
    for _ in range(3):
        alone.append(await tokens_a_second(llm, seconds))
        assert space.store
        space.store.set_fact(LEARNT, "0")  # all feedback is new again
        background = open_background(
            lambda own: aload_with("cria", own), options, space, lambda: not engine.is_idle
        )
        await asyncio.sleep(15.0)
        assert background.is_training, "a training is under way"
        beside.append(await tokens_a_second(llm, seconds))
        await asyncio.to_thread(background.close)
    before, after = median(alone), median(beside)
    rates = f"{before:,.0f} tokens/s alone, {after:,.0f} beside a training ({after / before:.3f})"
    print(f"{N_STREAMS} streams: {rates}")


async def measured(n_calls: int, seconds: float, folder: str) -> None:
    base: dict[str, Any] = {"backend": "cpu", "context": 1024, "parallel": N_STREAMS}
    bare = await aload("cria", **base)
    llm = await aload("cria", **base, learn="memory", learn_folder=folder)
    await taught(llm, 0)
    await looks(bare, llm, n_calls)
    await beside_training(llm, LoadOptions(context=1024), seconds)
    await llm.aclose()
    await bare.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measured(options.calls, options.seconds, folder))


if __name__ == "__main__":
    main()
