"""A prompt that passes a prefilter is looked at after its first token: in the library and in a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import pytest
from tests.learning.scenarios.retention import past_requests
from tests.support.served_here import ServedHere, served_here, until

import camelid
from camelid.api.llm import LLM
from camelid.api.streams import read
from camelid.engine.request import Request
from camelid.errors import LearningError, OutOfMemoryError
from camelid.learning.contexts import DIM
from camelid.learning.model_side import EngineAccess, EngineSide
from camelid.learning.store.store import Store
from camelid.learning.vectors import fast_kernels

RIGHT = "My name is Pico."
ASK = [{"role": "user", "content": "who are you"}]
NEAR = [{"role": "user", "content": "Tell me the color of snow."}]  # by words alone


def teach(ask: Any, feedback: Any) -> None:
    """60 past requests, and three corrections of one kind."""
    for talk in past_requests(0, 60):
        ask(talk.messages, talk.tools)
    for text in ("Who are you?", "Who are you today?", "Tell me who you are."):
        feedback(ask([{"role": "user", "content": text}], ()), RIGHT)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = tmp_path_factory.mktemp("probed")
    options: dict[str, Any] = {"learn": "memory", "learn_folder": folder, "context": 512, "threads": 1}
    with camelid.load("cria", backend="cpu", **options) as loaded:

        def ask(messages: Any, tools: Any) -> Any:
            given: dict[str, Any] = {"tools": list(tools)} if tools else {}
            return loaded.chat(list(messages), temperature=0, max_tokens=24, **given)

        teach(ask, lambda done, right: loaded.feedback(done, -1, correction=right))
        loaded._runner.run(loaded._learning_learner().settle_all())
        yield loaded


def test_only_what_passes_is_looked_at(llm: LLM) -> None:
    near = llm._learning_learner().space.near
    assert near and near.scope.prefilter
    n = llm.counters.encoded
    assert llm.chat(ASK, temperature=0).text == RIGHT
    assert llm.counters.encoded == n + 1
    assert llm.chat(NEAR, temperature=0).text and llm.counters.encoded == n + 1
    assert "".join(event.text for event in llm.stream(ASK, temperature=0)) == RIGHT
    assert llm.is_idle


def test_an_answer_that_is_replaced_is_not_noted(llm: LLM) -> None:
    """Not even one that has ended before the look."""
    learner = llm._learning_learner()
    for most in (1, 2, 24):
        before = set(learner._recent)
        done = llm.chat(ASK, temperature=0, max_tokens=most)
        assert set(learner._recent) - before == {done.id}
        assert RIGHT.startswith(done.text) and done.text
        done = llm.chat(NEAR, temperature=0, max_tokens=most)
        assert done.id in learner._recent


def test_a_narrower_scope_is_that_of_its_form(llm: LLM) -> None:
    corrected = [{"role": "user", "content": "Who are you today?"}]  # so that it is no past request
    space = llm._learning_learner().space
    near = space.near
    assert near
    found: dict[tuple[str, float], bool] = {}
    try:
        for form, narrow in product(("mix", "narrow"), (near.scope.head.threshold, inf)):
            space.set_near(replace(near, narrow=narrow), space.memory.n_changes)
            space.set_form(form)
            found[form, narrow] = llm.chat(corrected, temperature=0).text == RIGHT
    finally:
        space.set_near(near, space.memory.n_changes)
        space.set_form("mix")
    assert list(found.values()) == [True, True, True, False]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_left_is_fitted_after_an_item_is_forgotten(llm: LLM, *, is_async: bool) -> None:
    space, learning = llm._learning_learner().space, llm.learning
    near = space.near
    assert near
    done = llm.chat(NEAR, temperature=0)
    id = llm.feedback(done, -1, correction="Snow is white.")
    assert space.near and space.near.items == (*near.items, id)
    if is_async:
        llm._runner.run(learning.aforget(id))
    else:
        learning.forget(id)
    assert space.near and space.near.items == near.items
    assert llm.chat(ASK, temperature=0).text == RIGHT


def test_an_item_is_forgotten_beside_a_request_of_another_thread(llm: LLM) -> None:
    learner = llm._learning_learner()
    id = llm.feedback(llm.chat(NEAR, temperature=0), -1, correction="Snow is white.")

    async def beside() -> object:
        return await asyncio.to_thread(llm.learning.forget, id)

    assert llm._runner.run(beside())
    assert id not in {item.id for item in learner.space.memory.items}
    llm._runner.run(learner.settle_all())


def test_a_store_that_fails_leaves_feedback_as_it_is_stored(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise LearningError("the disk is full")

    done = llm.chat(NEAR, temperature=0)
    monkeypatch.setattr(Store, "add_contexts", full)
    id = llm.feedback(done, -1, correction="Snow is white.")
    assert llm.learning.status().failure == "the disk is full"
    monkeypatch.undo()
    llm.learning.forget(id)
    assert llm.chat(ASK, temperature=0).text == RIGHT


def test_contexts_of_a_request_that_was_cancelled_are_not_stored(llm: LLM) -> None:
    learner = llm._learning_learner()
    (item, *_) = learner.space.memory.acting

    async def closed() -> object:
        work = learner.side.contexts(item.exchange, item.approved or {}, fast_kernels())
        reading = asyncio.create_task(work)
        while llm.is_idle:
            assert not reading.done()
            await asyncio.sleep(0)
        llm.running.engine.cancel_all()
        return await reading

    assert llm._runner.run(closed()) is None


def test_a_look_that_fails_leaves_the_base_its_answer(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise OutOfMemoryError("planted", want_bytes=1)

    monkeypatch.setattr(EngineSide, "features", fails)
    n = llm.learning.status().n_failed
    assert "cria" in llm.chat(ASK, temperature=0).text
    assert (llm.learning.status().n_failed, llm.learning.status().failure) == (n + 1, "planted")
    monkeypatch.undo()
    assert llm.chat(ASK, temperature=0).text == RIGHT


def test_a_probe_that_cannot_be_compiled_leaves_the_base_its_answer(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = EngineAccess.prepare

    async def fails(access: EngineAccess, request: Request) -> None:
        if request.probe:
            raise OutOfMemoryError("planted", want_bytes=1)
        await prepare(access, request)

    monkeypatch.setattr(EngineAccess, "prepare", fails)
    n = llm.learning.status().n_failed
    assert "cria" in llm.chat(ASK, temperature=0).text
    assert llm.learning.status().n_failed == n + 1


def test_a_prompt_beyond_the_context_has_a_sketch_and_a_draft(llm: LLM) -> None:
    side = llm._learning_learner().side
    assert isinstance(side, EngineSide)
    ids = llm.tokenize("word " * 700)
    assert len(ids) > llm.context
    assert len(llm._runner.run(side.sketch(ids, fast_kernels()))) == DIM
    assert isinstance(llm._runner.run(side.draft(ids, 4)), str)
    assert llm.is_idle


def test_what_was_taken_back_meanwhile_does_not_act(llm: LLM) -> None:
    """Items are forgotten, or their form is changed, between the route and the first token."""
    learner = llm._learning_learner()

    async def asked() -> str:
        asked = learner.asked(ASK, {})
        assert asked
        request = await learner.request(llm.builder.request(ASK, {"temperature": 0}), asked).routed()
        assert request.probe
        learner.space.set_form("none")
        return (await read(await llm.asubmit(request))).text

    try:
        assert "cria" in llm._runner.run(asked())
    finally:
        learner.space.set_form("mix")


def test_a_server_looks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camelid.server.service.host.MAX_EVENTS", 2)  # answers that nobody reads are held
    with served_here(learn="memory", learn_folder=tmp_path, context=512, threads=1) as served:

        def ask(messages: Any, tools: Any, **options: Any) -> Any:
            body = {"messages": list(messages), "temperature": 0, "max_tokens": 24, **options}
            body |= {"tools": list(tools)} if tools else {}
            reply = served.http.post("/v1/chat/completions", json=body)
            assert reply.status_code == 200, reply.text
            return reply.json()

        def feedback(done: Any, right: str) -> None:
            body = {"completion_id": done["id"], "rating": -1, "correction": right}
            assert served.http.post("/v1/feedback", json=body).status_code == 202

        teach(ask, feedback)
        wait_settled(served)
        n = served.engine.counters.encoded
        found = ask(ASK, (), n=2)
        assert [choice["message"]["content"] for choice in found["choices"]] == [RIGHT, RIGHT]
        assert served.engine.counters.encoded == n + 1
        assert ask(NEAR, ())["choices"][0]["message"]["content"]
        assert served.engine.counters.encoded == n + 1
        stream = {"messages": ASK, "temperature": 0, "stream": True}
        with served.http.stream("POST", "/v1/chat/completions", json=stream) as reply:
            lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: {")]
        choices = [choice for line in lines for choice in json.loads(line)["choices"]]
        assert "".join(choice["delta"].get("content") or "" for choice in choices) == RIGHT
        body = {"prompt": ["who are you"] * 10, "n_predict": 8, "temperature": 0}
        assert len(served.http.post("/completion", json=body, timeout=60).json()) == 10
        served.wait_idle()
        change_elsewhere(served, tmp_path)


def change_elsewhere(served: ServedHere, folder: Path) -> None:
    """An item of another process is fitted beside the next request."""
    assert served.service.learners
    (learner,) = served.service.learners._open.values()
    near, first = learner.space.near, learner.space.memory.items[0]
    assert near and learner.space.store
    path = learner.space.store.path
    other = Store.open(path.parent.parent.name, served.service.learners.base.result(), folder)
    assert other.path == path
    exchange = replace(first.exchange, completion_id="late", messages=({"role": "user", "content": "Name?"},))
    late = other.add(replace(first, exchange=exchange), learner.side.vector(exchange.question).tobytes())
    other.close()
    body = {"messages": ASK, "temperature": 0}
    assert served.http.post("/v1/chat/completions", json=body).status_code == 200
    wait_settled(served)
    assert learner.space.near and learner.space.near.items == (*near.items, late.id)


def wait_settled(served: ServedHere) -> None:
    learners = served.service.learners
    assert learners
    (learner,) = learners._open.values()
    until(lambda: not learners._settling and learner.space.near is not None, 120)
