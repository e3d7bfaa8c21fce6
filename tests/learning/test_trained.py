"""Adapters from feedback: the parts of the recipe, and a run on cria."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.learning.scenarios import SCENARIOS
from tests.learning.scenarios.persona import persona
from tests.learning.scenarios.retention import past_requests
from tests.support import feedback
from tests.support.scope_features import features, fit, rng

import camelid
from camelid.api.learning import learner_of, side_of
from camelid.api.learnt.base_facts import BaseFacts
from camelid.api.learnt.runs import learning_of
from camelid.api.llm import LLM
from camelid.api.thread import EngineThread
from camelid.engine.request import Request
from camelid.errors import OutOfMemoryError, RequestError
from camelid.learning.features import DIM
from camelid.learning.items import Exchange, Item
from camelid.learning.loops import Bounds
from camelid.learning.memory import Memory
from camelid.learning.model_side import EngineSide
from camelid.learning.rows import MEMORY_SCOPE, PastRequest
from camelid.learning.space import Space
from camelid.learning.store.store import Store
from camelid.learning.store.versions import current, undo, version_of
from camelid.learning.trained.acting import Acting, PromptScope
from camelid.learning.trained.adapter_bytes import adapter_from_bytes, adapter_to_bytes
from camelid.learning.trained.edits import Edit, answered_word, shared_edit
from camelid.learning.trained.memory_scope import MemoryScope, Near
from camelid.learning.trained.recipe import Base, Known, Recipe, Study
from camelid.learning.trained.routing import Router
from camelid.learning.trained.shapes import DRAFT_TOKENS, WHOLE_TOKENS, draft_shapes, shape_hash, shape_of
from camelid.learning.training import Pace, Question, TrainingJob
from camelid.model.adapter import Adapter, LowRank
from cria.talk import Talk


def known(text: str, centre: float) -> Known:
    words = text.split()
    return Known(
        prompt=(1,), features=features(1, centre)[0], prefilter_features=np.zeros(2, np.float32),
        answer={"content": text}, answer_ids=(1,), text=text, draft=lambda n: " ".join(words[:n]), bits=b"",
    )  # fmt: skip


def test_a_preference_of_form_is_checked_by_the_whole_answer_and_a_fact_by_its_first_words() -> None:
    """Both answers begin alike; the shape of the whole one tells them apart."""
    short, long = "l-e-m-o-n in four parts today.", "l-e-m-o-n in four parts, so 5 letters."
    past = [("", Question(messages=()), known(short, 1.5)) for _ in range(30)]
    past += [("", Question(messages=()), known(long, -1.0)) for _ in range(60)]
    job = TrainingJob(items=(), refused=(), keep=(), settings={}, seconds=1.0, n_bytes=1)

    def study(centre: float) -> Study:
        events = [known(short, centre) for _ in range(12)]
        items = [Item(exchange=feedback.exchange(i), rating=1) for i in range(12)]
        return Study(cast("Base", None), job, lambda: False, items, events, (), past, ())

    assert study(1.5).scope.is_wide
    assert study(1.5).check == (WHOLE_TOKENS, {shape_hash(short)})
    assert study(4.0).check == (DRAFT_TOKENS, {shape_hash("l-e-m-o-n in four parts")})


def test_a_scope_asks_for_a_draft_of_its_length(thread: EngineThread, llm: LLM) -> None:
    """Spelling and counting begin alike: four tokens do not tell them apart, the whole answer does."""
    facts = BaseFacts(llm, thread.run)
    head = fit().head
    adapter = Adapter(name="x", terms={})
    config = {"shapes": [shape_hash("l-e-m-o-n."), shape_hash("l-e-")], "drafted": WHOLE_TOKENS}
    scopes = [
        Acting.of("x", adapter_to_bytes(adapter), PromptScope(head, None).to_bytes(), words).scope
        for words in (config, {"shapes": config["shapes"]})
    ]
    assert [scope.n_drafted for scope in scopes] == [WHOLE_TOKENS, DRAFT_TOKENS]
    near = {DRAFT_TOKENS: list[bool](), WHOLE_TOKENS: list[bool]()}
    for prompt in ("Spell lemon.", "How many letters are in lemon?"):
        (own,) = facts.known([asked_of([{"role": "user", "content": prompt}], ())], lambda: False)
        assert own
        for scope in scopes:
            draft = thread.run(facts.side.draft(own.prompt, scope.n_drafted))
            assert draft == own.draft(scope.n_drafted)
            near[scope.n_drafted].append(scope.agrees(draft))
    assert near == {DRAFT_TOKENS: [True, True], WHOLE_TOKENS: [True, False]}


def test_a_scope_fitted_before_a_forget_is_dropped(tmp_path: Path) -> None:
    """A fit takes seconds; what was forgotten meanwhile is in no scope, nor in the store."""
    store = Store.open("local", "ef" * 32, tmp_path)
    space = Space(Memory(), store)
    for i in (1, 2):
        given = Item(exchange=feedback.exchange(i), rating=1)
        space.feedback(given, array("f", [float(i)] + [1.0] * (DIM - 1)))
    head = fit().head
    near, n_changes = Near(PromptScope(head, None), (1, 2), 0.7), space.memory.n_changes
    space.set_near(near, n_changes)
    assert space.near is near and store.fact(MEMORY_SCOPE)
    space.forget(1)
    space.set_near(near, n_changes)
    assert space.near is None and store.fact(MEMORY_SCOPE) is None
    space.close()


def test_an_adapter_survives_its_bytes() -> None:
    def floats(n: int) -> memoryview[float]:
        return memoryview(rng.normal(size=n).astype(np.float16).astype(np.float32).tobytes()).cast("f")

    term = LowRank(rank=2, n_in=6, n_out=4, scale=1.5, a=floats(12), b=floats(8))
    adapter = Adapter(name="x", terms={"blk.0.attn_q": term}, invocation=(7, 8))
    assert adapter_from_bytes(adapter_to_bytes(adapter), "y").digest == adapter.digest


def test_shapes() -> None:
    assert shape_of("The sum of 12 and 3 is 15.") == "The sum of 0 and 0 is 0."
    assert shape_of("l-e-m-o-n.") == "x*."
    assert draft_shapes(["I am cria,"] * 9 + ["You"]) == {shape_hash("I am cria,"), shape_hash("You")}
    assert draft_shapes(["I am cria,"] * 8 + ["You", "No"]) is None


def test_the_edit_that_corrections_share() -> None:
    pairs = [("l-e-m-o-n.", "l e m o n."), ("f-i-g.", "f i g."), ("I don't know.", "x")]
    assert shared_edit(pairs) == Edit("-", " ")
    assert shared_edit([("a-b", "a b"), ("one", "two"), ("x", "yy")]) is None
    assert answered_word("spell lemon please", "l-e-m-o-n.") == "lemon"


@pytest.fixture(scope="module")
def thread() -> Iterator[EngineThread]:
    with EngineThread() as thread:
        yield thread


@pytest.fixture(scope="module")
def llm(thread: EngineThread) -> Iterator[LLM]:
    llm = thread.run(camelid.aload("cria", backend="cpu", parallel=8))
    yield llm
    thread.run(llm.aclose())


def test_a_version_acts_in_its_scope_alone_and_is_undone_bit_for_bit(
    tmp_path: Path, thread: EngineThread, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name, taught by 8 corrections beside 50 past requests: learnt, gated, served, and taken back."""
    few = {"LEAST_STEPS": 24, "TRIAL_STEPS": 20, "N_SWAPPED": 24, "NEAREST": 12}  # for a quick training
    for name, number in few.items():
        monkeypatch.setattr(f"camelid.learning.trained.recipe.{name}", number)
    made, store = persona(0), Store.open("local", "ab" * 32, tmp_path)
    space = Space(Memory(), store)
    learning = learning_of(space, llm, thread.run, Bounds(seconds=900.0))
    assert isinstance(learning.trainer, Recipe) and isinstance(learning.trainer.base, BaseFacts)
    facts = learning.trainer.base

    def exchange(id: str, messages: list[Any], tools: tuple[Any, ...] = ()) -> Exchange:
        question = asked_of(messages, tools)
        (known,) = facts.known([question], lambda: False)
        assert known
        return Exchange(
            completion_id=id, messages=question.messages, tools=question.tools, answer=known.answer,
            prompt_ids=known.prompt, answer_ids=known.answer_ids[:-1],
        )  # fmt: skip

    for i, talk in enumerate(past_requests(0, 50)):
        each = exchange(f"past-{i}", talk.messages, tuple(talk.tools))
        store.add_requests([PastRequest(each, facts.side.vector(each.question).tobytes())])
    for i, event in enumerate(made.events[:8]):
        each = exchange(f"event-{i}", event.talk.messages)
        right = {"role": "assistant", "content": event.answer}
        space.feedback(Item(exchange=each, rating=-1, correction=right), facts.side.vector(each.question))

    held = made.held[:20]
    others = [talk for talk in past_requests(1, 20) if len(talk.messages) == 1]
    learner = learner_of(space, facts.side)
    space.set_form("none")

    def answers(talks: list[Any]) -> list[tuple[str, bytes]]:
        found = []
        for talk in talks:
            asked = learner.asked(list(talk.messages), {"tools": list(talk.tools)})
            assert asked
            request: Request = learner.request(facts.request(asked_of(talk.messages, talk.tools)), asked)
            done, bits = thread.run(facts.answered(request))
            found.append((done.text, bits))
        return found

    def is_learnt(n: int) -> list[bool]:
        """Marks of the latest answers: True where feedback acted."""
        return [each.is_learnt for each in list(learner._recent.values())[-n:]]

    before, beside = answers([task.talk for task in held]), answers(others)
    run = learning.run(Pace(time.monotonic, time.sleep))
    space.set_form("none")
    assert run.version == "v1", [report.why for report in run.reports]
    after = answers([task.talk for task in held])
    assert is_learnt(len(held)) == [old != new for (_, old), (_, new) in zip(before, after, strict=True)]
    n_right = sum(task.passed(text) for task, (text, _) in zip(held, after, strict=True))
    assert n_right >= 8
    assert sum(task.passed(text) for task, (text, _) in zip(held, before, strict=True)) == 0
    n_encoded = llm.counters.encoded
    assert answers(others) == beside, "requests out of scope keep their bits"
    assert not any(is_learnt(len(others)))
    n_looked = llm.counters.encoded - n_encoded
    assert n_looked < len(others) / 3, "most prompts are not read once more for their features"
    assert version_of(store, "v1").config["order"] == run.reports[-1].order != ""
    talk = next(task.talk for task, (text, _) in zip(held, after, strict=True) if task.passed(text))
    corrected = exchange("late", talk.messages)
    right = {"role": "assistant", "content": "My name is Zed."}
    late = space.feedback(
        Item(exchange=corrected, rating=-1, correction=right), facts.side.vector(corrected.question)
    )
    space.set_form("mix")
    while thread.run(learner.settle()) or not learner.is_settled:
        pass
    assert answers([talk])[0][0] == "My name is Zed.", "an item newer than the version acts before it"
    space.forget(late.id)
    space.set_form("none")
    (name,) = [
        name for name in llm.running.adapters._loaded if name.startswith("learnt: ") and "cand" not in name
    ]
    with pytest.raises(RequestError, match="unknown"):
        llm.running.adapters.select(name)
    assert (undo(store), current(store)) == ("base", "base")
    assert answers([task.talk for task in held]) == before
    space.close()


def test_a_fit_that_ran_out_of_time_or_failed_reads_on(
    thread: EngineThread, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit that fails or has no time is not whole; the next one reads on, and only the last is whole."""
    facts = BaseFacts(llm, thread.run)
    scope = MemoryScope(facts.side)

    def exchange(id: str, talk: Talk) -> Exchange:
        ids = facts.request(asked_of(talk.messages, tuple(talk.tools))).prompt_ids
        answer = {"role": "assistant", "content": "yes"}
        return Exchange(completion_id=id, messages=tuple(talk.messages), answer=answer, prompt_ids=ids)

    past = [exchange(f"past-{i}", talk) for i, talk in enumerate(past_requests(0, 60))]
    items = [
        Item(exchange=exchange(f"{i}", event.talk), rating=1, id=i)
        for i, event in enumerate(persona(0).events[:4])
    ]

    async def fails(*_: object) -> None:
        raise OutOfMemoryError("planted", want_bytes=1)

    monkeypatch.setattr(EngineSide, "features", fails)
    with pytest.raises(OutOfMemoryError, match="planted"):
        thread.run(scope.fit(items, past, 60.0))
    monkeypatch.undo()
    assert not scope.is_whole
    assert (thread.run(scope.fit(items, past, -1.0)), scope.is_whole) == (None, False)
    for _ in range(3):  # each call reads on, however short its time
        thread.run(scope.fit(items, past, -1.0))
    assert (len(scope._drafts), len(scope._features)) == (4, 4)
    near = thread.run(scope.fit(items, past, 60.0))
    assert near and scope.is_whole and near.items == (0, 1, 2, 3)


def test_what_is_known_of_a_call_ends_and_is_likely(thread: EngineThread, llm: LLM) -> None:
    """The base's own greedy answer, a tool call: its end is known, and it is as likely as it was drawn."""
    talk = SCENARIOS["toolkit"](0).events[0].talk
    facts = BaseFacts(llm, thread.run)
    question = asked_of(talk.messages, tuple(talk.tools))
    (known,) = facts.known([question], lambda: False)
    assert known and known.answer.get("tool_calls")
    assert known.answer_ids[-1] in llm.tokenizer.eos_ids
    exchange = Exchange(
        completion_id="c", messages=question.messages, tools=question.tools, answer=known.answer,
        prompt_ids=known.prompt, answer_ids=known.answer_ids[:-1],
    )  # fmt: skip
    assert -3.0 < thread.run(facts.likelihood(exchange, known.answer, None)) < 0.0


def asked_of(messages: list[Any], tools: Any = ()) -> Question:
    return Question(messages=tuple(messages), tools=tuple(tools))


def test_what_cannot_act_is_counted_and_the_base_answers(
    tmp_path: Path, thread: EngineThread, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the prompt that fails, such as on a device without memory for adapters, loses no request."""
    space = Space(Memory(), Store.open("local", "cd" * 32, tmp_path))
    learner = learner_of(space, side_of(llm.running, llm.builder, llm.asubmit))

    async def fails(*_: object, **__: object) -> Request:
        raise OutOfMemoryError("no room for adapters", want_bytes=1)

    monkeypatch.setattr(Router, "candidates", fails)
    asked = learner.asked("hello", {})
    assert asked
    request = learner.request(llm.request("hello", max_tokens=2), asked)
    with pytest.raises(RequestError, match="use asubmit"):
        llm._engine.submit(request)
    routed = thread.run(request.routed())
    assert (routed.route, routed.mixer, routed.adapter) == (None, None, None)
    assert (space.n_failed, space.failure) == (1, "no room for adapters")
    space.close()
