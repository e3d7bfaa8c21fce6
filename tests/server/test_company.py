"""The promise A over HTTP: an answer's tokens and log-probabilities are the same alone and among others."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.served_here import ServedHere, served_here

FEW, MANY, N_CLIENTS = 48, 200, 32  # requests in ordinary and in exhaustive runs
WORDS = [
    "llama", "alpaca", "mountain", "desert", "snow", "river", "story", "count", "add", "wool", "night",
    "plus", "seven", "who", "why",
]  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}
SAMPLERS: list[dict[str, Any]] = [
    {}, {"repeat_penalty": 1.2}, {"mirostat": 2}, {"dry_multiplier": 0.8},
    {"top_k": 0, "min_p": 0, "top_p": 1},
]  # fmt: skip
FORM = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"


@dataclass(frozen=True)
class Asked:
    """A request to one of the endpoints."""

    path: str
    body: dict[str, Any]


def random_request(rng: random.Random) -> Asked:
    """A request of random endpoint, length and samplers, half of them streamed.

    Some have a schema, several choices, or a bias.
    """
    path = rng.choice((CHAT, CHAT, TEXT, MESSAGES))
    text = " ".join(rng.choices(WORDS, k=rng.choice((1, 3, 10, 40, 120))))
    extras, n_top = [*SAMPLERS], rng.randint(0, 5)
    if path != MESSAGES:
        extras += [{"n": 2}, {"logit_bias": {str(rng.randrange(1000)): 5}}, {"frequency_penalty": 0.4}]
    if path == CHAT:
        extras.append(FORM)
    extra = rng.choice(extras)
    body: dict[str, Any] = {
        "max_tokens": rng.randint(20, 80),
        "temperature": rng.choice((0, 0.7, 1 if path == MESSAGES else 1.3)),
        "seed": rng.randrange(2**32),
        "cache_prompt": rng.random() < 0.8,
        "stream": rng.random() < 0.5,
        "ignore_eos": extra is not FORM,
    }
    messages = [{"role": "user", "content": text}]
    own: dict[str, dict[str, Any]] = {
        CHAT: {"messages": messages, "logprobs": True, "top_logprobs": n_top},
        TEXT: {"prompt": text, "logprobs": n_top},
        MESSAGES: {"messages": messages},
    }
    return Asked(path, {**own[path], **body, **extra})


def answer(served: ServedHere, asked: Asked) -> Any:
    """Texts, log-probabilities and reasons to end; the chunks of a stream are joined."""
    reply = served.http.post(asked.path, json=asked.body, timeout=300)
    assert reply.status_code == 200, reply.text
    assert "warning" not in reply.headers
    if not asked.body["stream"]:
        return whole(reply.json())
    data = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
    chunks = [json.loads(each) for each in data if each != "[DONE]"]
    assert not any("error" in chunk for chunk in chunks), chunks[-1]
    return message_of(chunks) if asked.path == MESSAGES else choices_of(chunks, asked.body.get("n", 1))


def whole(body: dict[str, Any]) -> Any:
    """The facts of a reply that is no stream."""
    if "choices" not in body:
        return body["content"], body["stop_reason"], body["usage"]["output_tokens"]
    return [(c.get("message") or c["text"], c["finish_reason"], c["logprobs"]) for c in body["choices"]]


def message_of(events: list[dict[str, Any]]) -> Any:
    """The facts of the events of /v1/messages."""
    end = next(event for event in events if event["type"] == "message_delta")
    deltas = (event["delta"] for event in events if event["type"] == "content_block_delta")
    return "".join(delta.get("text", "") for delta in deltas), end["delta"], end["usage"]["output_tokens"]


def choices_of(chunks: list[dict[str, Any]], n: int) -> list[Any]:
    """The facts of each choice of an OpenAI stream."""
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    return [joined([part for part in parts if part["index"] == i]) for i in range(n)]


def joined(parts: list[dict[str, Any]]) -> Any:
    """The text, the log-probabilities and the reason to end of one choice's chunks."""
    texts = [part.get("text") or part.get("delta", {}).get("content") or "" for part in parts]
    logprobs = [part["logprobs"] for part in parts if part.get("logprobs")]
    lists = {name: [each for one in logprobs for each in one[name] or ()] for name in logprobs[0]}
    reasons = [part["finish_reason"] for part in parts if part["finish_reason"]]
    return "".join(texts), reasons, lists


@pytest.mark.parametrize(
    ("options", "n"),
    share_of([({}, FEW), ({}, MANY), ({"kv_rows": 2048}, MANY)]),
    ids=["few", "roomy", "preempted"],
)
def test_company_changes_no_bit(options: dict[str, Any], n: int) -> None:
    rng = random.Random(22)
    requests = [random_request(rng) for _ in range(n)]
    with served_here(parallel=N_CLIENTS, max_queue=n, **options) as served:
        sizes: list[int] = []
        served.engine.hooks.append(lambda step: sizes.append(step.n_sequences))
        with ThreadPoolExecutor(N_CLIENTS) as pool:
            in_company = list(pool.map(lambda asked: answer(served, asked), requests))
        assert max(sizes) > N_CLIENTS // 2, "the requests did not run together"
        assert bool(options) == (served.engine.counters.preemptions > 0)
        alone = [answer(served, asked) for asked in requests]
        served.wait_idle()
    assert in_company == alone
