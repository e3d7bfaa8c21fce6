"""A request asked again and again beside a fault: each answer has the bits of the one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import httpx

PATH = "/v1/chat/completions"
WITNESS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Who are you, and why?"}],
    "max_tokens": 40, "ignore_eos": True, "seed": 7, "temperature": 1.0,
    "logprobs": True, "top_logprobs": 5,
}  # fmt: skip


def witness_of(http: httpx.Client) -> Callable[[], list[Any]]:
    """The witness request: its message, end, and log-probabilities."""

    def ask() -> list[Any]:
        reply = http.post(PATH, json=WITNESS)
        assert reply.status_code == 200, reply.text
        return [(c["message"], c["finish_reason"], c["logprobs"]) for c in reply.json()["choices"]]

    return ask


@contextmanager
def undisturbed(http: httpx.Client) -> Iterator[None]:
    """Asks the witness alone, then without a pause during the block; at least one answer spans its end."""
    ask, over, begun = witness_of(http), Event(), Event()
    alone = ask()

    def again() -> list[list[Any]]:
        found: list[list[Any]] = []
        while not (over.is_set() and found):
            begun.set()
            found.append(ask())
        return found

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(again)
        try:
            assert begun.wait(60)
            yield
        finally:
            over.set()
        assert all(answer == alone for answer in running.result())
    assert ask() == alone
