"""The promise A over HTTP: an answer's tokens and log-probabilities are the same alone and among others."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.served_here import ServedHere, served_here

N_REQUESTS, N_CLIENTS = 200, 32
WORDS = [
    "llama",
    "alpaca",
    "mountain",
    "desert",
    "snow",
    "river",
    "story",
    "count",
    "add",
    "wool",
    "night",
    "plus",
    "seven",
    "who",
    "why",
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}


def random_body(rng: random.Random) -> dict[str, Any]:
    """A chat request of random length and samplers; some have a schema, several choices, or a bias."""
    text = " ".join(rng.choices(WORDS, k=rng.choice((1, 3, 10, 40, 120))))
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": rng.randint(20, 80),
        "temperature": rng.choice((0, 0.7, 1.3)),
        "seed": rng.randrange(2**32),
        "logprobs": True,
        "top_logprobs": rng.randint(0, 5),
        "cache_prompt": rng.random() < 0.8,
    }
    extras: list[dict[str, Any]] = [
        {},
        {"n": 2},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
        {"logit_bias": {str(rng.randrange(1000)): 5}},
        {"repeat_penalty": 1.2, "frequency_penalty": 0.4},
        {"mirostat": 2},
        {"dry_multiplier": 0.8},
        {"top_k": 0, "min_p": 0, "top_p": 1},
    ]
    extra = rng.choice(extras)
    return {**body, "ignore_eos": "response_format" not in extra, **extra}


def answer(served: ServedHere, body: dict[str, Any]) -> list[Any]:
    reply = served.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return [(c["message"], c["finish_reason"], c["logprobs"]) for c in reply.json()["choices"]]


@pytest.mark.parametrize("options", [{}, {"kv_rows": 2048}], ids=["roomy", "preempted"])
def test_company_changes_no_bit(options: dict[str, Any]) -> None:
    rng = random.Random(22)
    bodies = [random_body(rng) for _ in range(N_REQUESTS)]
    with served_here(parallel=N_CLIENTS, max_queue=N_REQUESTS, **options) as served:
        sizes: list[int] = []
        served.engine.hooks.append(lambda step: sizes.append(step.n_sequences))
        with ThreadPoolExecutor(N_CLIENTS) as pool:
            in_company = list(pool.map(lambda body: answer(served, body), bodies))
        assert max(sizes) > N_CLIENTS // 2, "the requests did not run together"
        assert bool(options) == (served.engine.counters.preemptions > 0)
        alone = [answer(served, body) for body in bodies]
        served.wait_idle()
    assert in_company == alone
