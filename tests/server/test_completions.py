"""POST /v1/completions: prompts of each shape, batches, choices, echoed prompts, and log-probabilities."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.served_here import ServedHere, served_here

import camelid
from camelid.api.llm import LLM
from camelid.requests.build import RequestBuilder
from camelid.server.faces.legacy_logprobs import LegacyLogprobs
from camelid.server.service.fill_in import fill_in_ids
from camelid.server.service.host import Answer, Batch, EngineHost
from camelid.server.service.text_size import INLINE_CHARS

PATH = "/v1/completions"
PROMPT = "Once upon a time there was a llama that"
WILD: dict[str, Any] = {"temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 5, "ignore_eos": True}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(parallel=4, max_queue=2) as running:
        yield running


def post(served: ServedHere, **body: Any) -> dict[str, Any]:
    reply = served.http.post(PATH, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def chunks(served: ServedHere, **body: Any) -> list[dict[str, Any]]:
    reply = served.http.post(PATH, json={**body, "stream": True})
    assert reply.status_code == 200, reply.text
    lines = [line for line in reply.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def joined(found: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The choices of a stream as they would be in a whole reply."""
    choices: dict[int, dict[str, Any]] = {}
    for choice in (choice for chunk in found for choice in chunk["choices"]):
        whole = choices.setdefault(choice["index"], {**choice, "text": "", "logprobs": None})
        whole["text"] += choice["text"]
        whole["finish_reason"] = choice["finish_reason"]
        if choice["logprobs"]:
            before = whole["logprobs"] or {name: [] for name in choice["logprobs"]}
            whole["logprobs"] = {name: before[name] + items for name, items in choice["logprobs"].items()}
    return choices


def prompt_ids(llm: LLM, text: str) -> list[int]:
    return list(llm.tokenizer.frame.around(llm.tokenizer.encode(text)))


def test_an_answer_is_the_librarys(served: ServedHere, llm: LLM) -> None:
    wanted = llm.generate(PROMPT, max_tokens=16, **WILD)
    reply = post(served, prompt=PROMPT, **WILD)  # 16 tokens, as OpenAI's API without max_tokens
    assert reply["choices"] == [
        {"index": 0, "text": wanted.text, "logprobs": None, "finish_reason": wanted.finish_reason}
    ]
    assert reply["usage"]["completion_tokens"] == len(wanted.token_ids) == 16
    assert reply["usage"]["prompt_tokens"] == len(prompt_ids(llm, PROMPT))
    assert reply["object"] == "text_completion"
    assert reply["id"].startswith("cmpl-")


def test_a_prompt_may_be_token_ids(served: ServedHere, llm: LLM) -> None:
    ids = prompt_ids(llm, PROMPT)
    by_text, by_ids = post(served, prompt=PROMPT, **WILD), post(served, prompt=ids, **WILD)
    assert by_text["choices"] == by_ids["choices"]
    both = post(served, prompt=[ids, ids[:3]], **WILD)["choices"]
    assert [choice["text"] for choice in both] == [
        by_ids["choices"][0]["text"], llm.generate(ids[:3], max_tokens=16, **WILD).text
    ]  # fmt: skip


@pytest.mark.parametrize("n", [1, 3])
def test_a_batch_has_n_choices_a_prompt_in_order(served: ServedHere, n: int) -> None:
    prompts = [f"{PROMPT} {word}" for word in ("saw", "ate", "went", "sang", "hid", "ran")]
    options: dict[str, Any] = {**WILD, "n": n, "max_tokens": 6, "echo": True, "logprobs": 1}
    alone = [choice for prompt in prompts for choice in post(served, prompt=prompt, **options)["choices"]]
    batch = post(served, prompt=prompts, **options)
    assert [choice["index"] for choice in batch["choices"]] == list(range(n * len(prompts)))
    assert [{**choice, "index": 0} for choice in batch["choices"]] == [{**c, "index": 0} for c in alone]
    streamed = joined(chunks(served, prompt=prompts, **options))
    assert [streamed[i] for i in sorted(streamed)] == batch["choices"]
    served.wait_idle()


def test_a_batch_larger_than_the_queue_is_served(served: ServedHere, llm: LLM) -> None:
    prompts = [f"{PROMPT} {i}" for i in range(20)]  # the server has 6 places
    reply = post(served, prompt=prompts, max_tokens=3, temperature=0)
    assert [choice["text"] for choice in reply["choices"]] == [
        llm.generate(prompt, max_tokens=3, temperature=0.0).text for prompt in prompts
    ]
    assert reply["usage"]["prompt_tokens"] == sum(len(prompt_ids(llm, prompt)) for prompt in prompts)
    assert reply["usage"]["completion_tokens"] == sum(
        len(llm.generate(prompt, max_tokens=3, temperature=0.0).token_ids) for prompt in prompts
    )


def test_prompt_scores_are_those_of_the_models_logits(served: ServedHere, llm: LLM) -> None:
    ids = prompt_ids(llm, PROMPT)
    logits = np.array(llm.logits(ids)).astype(np.float64)
    peak = logits.max(axis=1, keepdims=True)
    wanted = logits - peak - np.log(np.exp(logits - peak).sum(axis=1, keepdims=True))
    reply = post(served, prompt=PROMPT, echo=True, logprobs=7, max_tokens=0)
    (choice,) = reply["choices"]
    found = choice["logprobs"]
    assert choice["text"] == PROMPT
    assert choice["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 0
    assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
    truth = [wanted[i, token_id] for i, token_id in enumerate(ids[1:])]
    np.testing.assert_allclose(found["token_logprobs"][1:], truth, rtol=0, atol=3e-6)
    for i, top in enumerate(found["top_logprobs"][1:]):
        best = np.argsort(-wanted[i], kind="stable")[:7]
        assert len(top) in (7, 8)
        values = sorted(top.values(), reverse=True)[:7]
        np.testing.assert_allclose(values, wanted[i, best], rtol=0, atol=3e-6)
        assert found["tokens"][i + 1] in top


def test_prompt_scores_are_bit_for_bit_those_of_drawn_tokens(served: ServedHere, llm: LLM) -> None:
    """A text that the model drew has the same log-probabilities when it comes back as a prompt."""
    events = list(llm.stream(PROMPT, logprobs=5, max_tokens=40, **WILD))
    full = [*prompt_ids(llm, PROMPT), *(e.token_id for e in events if e.token_id is not None)]
    found = post(served, prompt=full, echo=True, logprobs=5, max_tokens=0)["choices"][0]["logprobs"]
    n = len(events)
    assert found["token_logprobs"][-n:] == [event.logprob for event in events]
    for top, event in zip(found["top_logprobs"][-n:], events, strict=True):
        assert sorted(top.values())[-5:] == sorted(value for _, value in event.top_logprobs)


def test_offsets_place_tokens_in_the_text(served: ServedHere) -> None:
    text = "Olá! 🦙 é a llama — “yes”"
    for body in ({"max_tokens": 12, **WILD}, {"max_tokens": 0}):
        (choice,) = post(served, prompt=text, echo=True, logprobs=0, **body)["choices"]
        found = choice["logprobs"]
        assert len({len(items) for items in found.values()}) == 1
        for token, at in zip(found["tokens"], found["text_offset"], strict=True):
            if not token.startswith(("bytes:", "<")):
                assert choice["text"][at : at + len(token)] == token
        assert all(len(top) == 1 for top in found["top_logprobs"][1:])


def test_log_probabilities_of_a_long_prompt_leave_the_event_loop(
    served: ServedHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choices of a prompt count together, since their log-probabilities are made at once."""
    threads = list[int]()
    made = LegacyLogprobs.of_prompt

    def noted(self: LegacyLogprobs, *known: Any) -> Any:
        threads.append(threading.get_ident())
        return made(self, *known)

    monkeypatch.setattr(LegacyLogprobs, "of_prompt", noted)
    text = "the llama and the river " * 100
    assert len(text) < INLINE_CHARS < 4 * len(text)
    fields: dict[str, Any] = {"echo": True, "logprobs": 1, "max_tokens": 0, "n": 4}
    choices = post(served, prompt=text, **fields)["choices"]
    post(served, prompt="Hi", **fields)
    assert [choice["logprobs"] for choice in choices] == [choices[0]["logprobs"]] * 4
    loop = threads[-1]
    assert [thread == loop for thread in threads] == [False] * 4 + [True] * 4


def test_echo_needs_no_logprobs(served: ServedHere, llm: LLM) -> None:
    plain = post(served, prompt=PROMPT, **WILD)["choices"][0]["text"]
    assert post(served, prompt=PROMPT, echo=True, **WILD)["choices"][0]["text"] == PROMPT + plain
    ids = llm.tokenizer.encode(PROMPT)
    (choice,) = post(served, prompt=ids, echo=True, max_tokens=0)["choices"]
    assert (choice["text"], choice["logprobs"]) == (PROMPT, None)
    (choice,) = post(served, prompt=ids, max_tokens=0)["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("", "length")


def test_best_of_returns_the_likeliest(served: ServedHere) -> None:
    options: dict[str, Any] = {**WILD, "prompt": PROMPT, "max_tokens": 8, "logprobs": 0}
    made = post(served, n=4, **options)["choices"]
    means = [np.mean(choice["logprobs"]["token_logprobs"]) for choice in made]
    ranked = [made[i]["text"] for i in np.argsort(means)[::-1]]
    assert len(set(ranked)) == 4
    best = post(served, n=2, best_of=4, **options)
    assert [choice["text"] for choice in best["choices"]] == ranked[:2]
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 32


def test_a_stream_ends_with_its_usage(served: ServedHere) -> None:
    body: dict[str, Any] = {**WILD, "prompt": [PROMPT, "A"], "max_tokens": 9}
    found = chunks(served, stream_options={"include_usage": True}, **body)
    assert found[-1]["choices"] == []
    whole = post(served, **body)["usage"]
    assert found[-1]["usage"]["total_tokens"] == whole["total_tokens"]
    assert all(chunk["usage"] is None for chunk in found[:-1])


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [1, True]}, "prompt[0]"),
        ({"prompt": [1, -1]}, "prompt[0]"),
        ({"prompt": [1, 10**9]}, "prompt"),
        ({"prompt": ["a"] * 3000}, "prompt"),
        ({"n": 17}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"suffix": "end"}, "suffix"),
        ({"suffix": "end", "echo": True}, "suffix"),
        ({"suffix": "end", "prompt": [1]}, "suffix"),
        ({"max_tokens": 2000}, "prompt"),
        ({"prompt": ["a", "a " * 5000]}, "prompt"),
    ],
)
def test_a_bad_field_is_named(served: ServedHere, change: dict[str, Any], param: str) -> None:
    reply = served.http.post(PATH, json={"prompt": PROMPT, **change})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert served.is_idle, "the refused request keeps its places"


def test_the_rows_of_a_scored_prompt_are_not_kept(
    served: ServedHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    deliver = EngineHost.deliver

    def noted(self: EngineHost, answer: Answer, batch: Batch) -> None:
        found.extend(batch.scores)
        deliver(self, answer, batch)

    monkeypatch.setattr(EngineHost, "deliver", noted)
    post(served, prompt=PROMPT, echo=True, logprobs=2, max_tokens=1)
    assert found
    assert not any(isinstance(score, memoryview) for score in found)


def test_a_client_that_leaves_frees_its_batch(served: ServedHere) -> None:
    body = {"prompt": [PROMPT] * 12, "max_tokens": 900, "stream": True, "ignore_eos": True}
    with served.http.stream("POST", PATH, json=body) as reply:
        next(reply.iter_lines())
    served.wait_idle()


def test_a_suffix_is_filled_in_by_the_files_tokens(llm: LLM) -> None:
    file = llm._running.file
    roles = {"fim_pre_token_id": 7, "suffix_token_id": 8, "fim_mid_token_id": 9}  # either name of a role
    metadata = {**file.gguf.metadata, **{f"tokenizer.ggml.{key}": i for key, i in roles.items()}}
    gguf = replace(file.gguf, metadata=metadata)
    encode, before = llm.tokenizer.encode, list(llm.tokenizer.frame.before)
    found = fill_in_ids(RequestBuilder(file), gguf, "def f(", "return 1")
    assert found == [*before, 7, *encode("def f("), 8, *encode("return 1"), 9]


def test_a_stream_tells_its_progress_and_timings(served: ServedHere) -> None:
    prompt = [5] * 300  # more than one step computes
    found = chunks(served, prompt=prompt, return_progress=True, timings_per_token=True, cache_prompt=False)
    reports = [chunk["prompt_progress"] for chunk in found if "prompt_progress" in chunk]
    done = [report["processed"] for report in reports]
    assert done == sorted(set(done))
    assert (len(done) > 2, done[-1], reports[-1]["total"]) == (True, 300, 300)
    counts = [chunk["timings"]["predicted_n"] for chunk in found if "timings" in chunk]
    assert counts == sorted(counts)
    assert len(counts) == len(found) - len(reports) > 3
    assert not any("timings" in chunk for chunk in chunks(served, prompt=prompt)[:-1])
