"""A request asked again and again beside a fault: each answer has the bits of the one alone."""

from __future__ import annotations

import time
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
LONGEST_S = 5.0  # of a question that needs the server's event loop alone, on a slow and loaded machine
POLL_S = 0.05


def witness_of(http: httpx.Client) -> Callable[[], list[Any]]:
    """The witness request: its message, end, and log-probabilities."""

    def ask() -> list[Any]:
        reply = http.post(PATH, json=WITNESS)
        assert reply.status_code == 200, reply.text
        return [(c["message"], c["finish_reason"], c["logprobs"]) for c in reply.json()["choices"]]

    return ask


@contextmanager
def undisturbed(http: httpx.Client) -> Iterator[None]:
    """Asks the witness alone, then without a pause during the block; at least one answer spans its end.

    Meanwhile the server's event loop answers within LONGEST_S, whatever its engine does.
    """
    ask, over, begun, polled = witness_of(http), Event(), Event(), Event()
    alone = ask()

    def again() -> list[list[Any]]:
        found: list[list[Any]] = []
        while not (over.is_set() and found):
            begun.set()
            found.append(ask())
        return found

    with ThreadPoolExecutor(2) as pool:
        running, living = pool.submit(again), pool.submit(longest_reply_s, http.base_url, polled, over)
        try:
            assert begun.wait(60)
            assert polled.wait(60)
            yield
        finally:
            over.set()
        assert all(answer == alone for answer in running.result())
        assert living.result() < LONGEST_S, "the server's event loop stood still"
    assert ask() == alone


def longest_reply_s(url: httpx.URL, polled: Event, over: Event) -> float:
    """Asks for /live over one connection until `over`; the seconds of the slowest reply."""
    longest = 0.0
    with httpx.Client(base_url=url, timeout=60) as client:
        while not over.wait(POLL_S):
            began = time.perf_counter()
            assert client.get("/live").status_code == 200
            longest = max(longest, time.perf_counter() - began)
            polled.set()
    return longest
