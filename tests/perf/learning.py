"""What learning adds to requests: feedback stored, memory looked up, an answer noted, at 10,000 items.

`python -m tests.perf.learning [--items N] [--calls N] [--folder F]` prints p50, p99 and the largest of each,
in microseconds. No model runs: the tokens are cria's, the questions are random words of its vocabulary. The
recorder's thread writes past requests meanwhile, as it does beside an engine.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import camelid
from camelid.engine.request import Request
from camelid.learning.features import question_text, question_vector
from camelid.learning.items import Exchange, Item, Message
from camelid.learning.learner import Learner
from camelid.learning.memory import Memory
from camelid.learning.recorder import Recorder
from camelid.learning.rows import Contexts
from camelid.learning.space import Space
from camelid.learning.store.store import Store
from camelid.learning.vectors import Kernels

N_WORDS = 12


class Words:
    """Questions of random words, and their vectors as a loaded model makes them."""

    def __init__(self, seed: int) -> None:
        self._tokenizer, self._rng = camelid.load_tokenizer("cria"), Random(seed)
        self._words = [self._tokenizer.decode([i]) for i in range(300, 1000)]

    def question(self) -> str:
        """A question of N_WORDS words."""
        return " ".join(self._rng.choices(self._words, k=N_WORDS))

    def vector(self, question: str) -> array[float]:
        """As `ModelSide.vector`."""
        return question_vector(self._tokenizer.encode(question_text(question)))

    async def contexts(self, exchange: Exchange, answer: Message, kernels: Kernels) -> Contexts | None:
        """No contexts: no model runs."""


def exchange_of(words: Words, i: int) -> Exchange:
    return Exchange(
        completion_id=f"cmpl-{i}", messages=({"role": "user", "content": words.question()},),
        answer={"role": "assistant", "content": words.question() * 4}, prompt_ids=tuple(range(60)),
        answer_ids=tuple(range(60)),
    )  # fmt: skip


def timed(calls: Sequence[Callable[[], object]]) -> list[tuple[float, float]]:
    """The seconds of each call, and of them those on the processor, with a pause between as of requests."""
    found: list[tuple[float, float]] = []
    for call in calls:
        time.sleep(0.0005)
        begin, work = time.perf_counter(), time.thread_time()
        call()
        found.append((time.perf_counter() - begin, time.thread_time() - work))
    return found


def line(name: str, seconds: Sequence[tuple[float, float]]) -> str:
    columns = [sorted(1e6 * each for each in column) for column in zip(*seconds, strict=True)]
    places = (0.5, 0.99)
    cells = [column[int(share * len(column))] for column in columns for share in places]
    return f"| {name} | {' | '.join(f'{cell:,.0f}' for cell in (*cells, columns[0][-1]))} |"


def filled(folder: Path, words: Words, n_items: int) -> Space:
    """A space with so many items. Its thread records."""
    store = Store.open("local", "ab" * 32, folder)
    space = Space(Memory(), store, Recorder(store))
    space.quota.per_minute = 10**9
    for i in range(n_items):
        exchange = exchange_of(words, i)
        space.feedback(Item(exchange=exchange, rating=1), words.vector(exchange.question))
    return space


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where the store lies; a temporary folder")
    options = parser.parse_args()
    words = Words(0)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        begin = time.perf_counter()
        space = filled(Path(folder), words, options.items)
        seconds, machine = time.perf_counter() - begin, platform.processor() or platform.machine()
        print(f"{options.items:,} items in {seconds:.1f} s; {machine}")
        learner, base = Learner(space, words), Request(prompt_ids=(1, 2, 3))
        exchanges = [exchange_of(words, 10**6 + i) for i in range(options.calls)]
        items = [Item(exchange=each, rating=-1, correction=each.answer) for each in exchanges]
        messages = [[*each.messages] for each in exchanges]
        near = [[{**item.exchange.messages[0]}] for item in space.memory.items[: options.calls]]
        asked = [learner.asked(each, {}) for each in messages]
        vectors = [words.vector(each.question) for each in exchanges]

        def note(each: Exchange, vector: array[float]) -> None:
            space.note(replace(each, completion_id=f"n{each.completion_id}"), vector)

        noted = list(zip(exchanges, vectors, strict=True))
        stored = list(zip(items, vectors, strict=True))
        print("| us | p50 | p99 | CPU p50 | CPU p99 | largest |\n|---|---|---|---|---|---|")
        print(line("vector of a question", timed([lambda e=e: words.vector(e.question) for e in exchanges])))
        print(line("lookup, out of scope", timed([lambda m=m: learner.asked(m, {}) for m in messages])))
        print(line("lookup, in scope", timed([lambda m=m: learner.asked(m, {}) for m in near])))
        ready = [each for each in asked if each]
        print(line("request with its reader", timed([lambda a=a: learner.request(base, a) for a in ready])))
        print(line("answer noted", timed([lambda p=p: note(*p) for p in noted])))
        print(line("feedback stored", timed([lambda p=p: space.feedback(*p) for p in stored])))
        store, n_bytes = space.store, space.store.n_bytes() if space.store else 0
        begin = time.perf_counter()
        space.forget(space.memory.items[7].id)
        print(f"{n_bytes / 1e6:.1f} MB; one item forgotten in {time.perf_counter() - begin:.2f} s")
        space.close()
        begin = time.perf_counter()
        assert store
        again = Store.open("local", "ab" * 32, Path(folder))
        Space(Memory(), again)
        print(f"opened, every hash checked, in {time.perf_counter() - begin:.2f} s")
        again.close()


if __name__ == "__main__":
    main()
