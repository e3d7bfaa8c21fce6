"""`llm.feedback` and `llm.learning` on cria: at once, in scope alone, and taken back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.support.random_adapters import random_adapter

import camelid
from camelid.api.llm import LLM, Completion
from camelid.errors import RequestError
from camelid.learning.bank import Trajectory, with_hint
from camelid.learning.policies import Policy

WEATHER = {
    "type": "function",
    "function": {
        "name": "check_grade",
        "description": "Says which grade a patient has",
        "parameters": {
            "type": "object", "properties": {"patient": {"type": "string"}}, "required": ["patient"],
        },
    },
}  # fmt: skip
OTHERS = ("What is 12 plus 30?", "Spell lemon.", "What is the color of snow?", "Hi there")


def load(folder: Path, learn: str = "memory", user: str = "local") -> LLM:
    return camelid.load(
        "cria", backend="cpu", threads=1, context=512, learn=learn, learn_user=user, learn_folder=folder
    )


def ask(llm: LLM, text: str, **options: object) -> Completion:
    return llm.chat([{"role": "user", "content": text}], temperature=0, **options)  # type: ignore[arg-type]


@pytest.fixture
def llm(tmp_path: Path) -> Iterator[LLM]:
    with load(tmp_path) as loaded:
        yield loaded


def test_a_correction_acts_on_the_next_request(llm: LLM) -> None:
    before = [ask(llm, text) for text in OTHERS]
    first = ask(llm, "Who are you?")
    assert "cria" in first.text
    id = llm.feedback(first, -1, correction="My name is Pico.")
    assert ask(llm, "who are you").text == "My name is Pico."
    assert ask(llm, "Tell me who you are?").text == "My name is Pico."
    assert [ask(llm, text).token_ids for text in OTHERS] == [done.token_ids for done in before]
    llm.learning.forget(id)
    assert ask(llm, "who are you").text == first.text


@pytest.mark.parametrize("form", ["mix", "turns"])
def test_answers_that_memory_acted_on_do_not_count_against_it(llm: LLM, form: str) -> None:
    """A request in scope that nobody rates must not become one that the next scope is to leave alone."""
    learner = llm._learning_learner()
    assert learner.space.recorder
    learner.space.set_form(form)
    llm.feedback(ask(llm, "Who are you?"), -1, correction="My name is Pico.")
    for text in ("who are you", *OTHERS):
        ask(llm, text)
    learner.space.recorder.flush()
    assert [each.question for each in learner.space.past] == [*OTHERS]


def test_a_request_near_feedback_is_no_past_request_before_the_fit(llm: LLM) -> None:
    """The similarity of words leaves it alone, and a fitted scope may yet have it."""
    learner = llm._learning_learner()
    first = ask(llm, "Who are you?")
    near = ask(llm, "I would like to know who you are.")
    assert not learner.exchange(near).is_undecided, "there is no feedback yet"
    llm.feedback(first, -1, correction="My name is Pico.")
    again = ask(llm, "I would like to know who you are.")
    far = ask(llm, "What is 12 plus 30?")
    assert again.text == near.text
    assert [learner.exchange(each).is_undecided for each in (again, far)] == [True, False]
    learner.space.set_form("none")
    again = ask(llm, "I would like to know who you are.")
    assert not learner.exchange(again).is_undecided


def test_an_answer_that_nothing_learnt_acted_on_stays_a_past_request(llm: LLM) -> None:
    """A text has no turns before it, and an adapter that the user names is no version."""
    learner = llm._learning_learner()
    llm.feedback(ask(llm, "Who are you?"), -1, correction="My name is Pico.")
    name = llm.load_adapter(random_adapter(llm, 3))
    named = ask(llm, "What is the color of snow?", adapter=name)
    learner.space.set_form("turns")
    text = llm.generate("who are you", temperature=0, max_tokens=4)
    assert [learner.exchange(each).is_learnt for each in (named, text)] == [False, False]


def test_an_item_has_the_time_of_its_feedback(llm: LLM) -> None:
    llm.feedback(ask(llm, "Who are you?"), 1)
    (item,) = llm.learning.items()
    assert abs(item.wall - time.time()) < 60


def test_memory_outlives_the_process_and_belongs_to_its_user(tmp_path: Path) -> None:
    with load(tmp_path) as llm:
        done = ask(llm, "What is the capital of Portugal?")
        llm.feedback(done.id, -1, correction="The capital of Portugal is Lisbon.")
        plain = done.text
    with load(tmp_path) as llm:
        assert ask(llm, "what is the capital of Portugal").text == "The capital of Portugal is Lisbon."
        status = llm.learning.status()
        assert (status.n_items, status.n_acting, status.version, status.form) == (1, 1, "base", "mix")
        assert status.n_requests >= 1
        assert llm.feedback(done.id, 1) == 2  # a completion of an earlier process
    with load(tmp_path, user="ines") as llm:
        assert ask(llm, "what is the capital of Portugal").text == plain
        with pytest.raises(RequestError, match="is not known here"):
            llm.feedback(done.id, 1)
    with load(tmp_path, learn="off") as llm:
        assert ask(llm, "what is the capital of Portugal").text == plain
        with pytest.raises(RequestError, match="load it with learn='memory'"):
            llm.feedback(done, 1)


def test_hints_and_policies_of_a_user(tmp_path: Path) -> None:
    """A hint from three tasks reaches a prompt, and rewards of answers choose a policy; both are kept."""
    short, long = (Policy(name=name, sampling={"max_tokens": n}) for name, n in (("short", 2), ("long", 32)))
    with load(tmp_path) as llm:
        bank = llm.learning.bank()
        for place in ("Paris", "Rome", "Oslo"):
            steps = ("find the country", "name its capital")
            bank.add(Trajectory(question=f"weather in {place} today", steps=steps, won=True))
        (hint,) = bank.distil(1)
        found = bank.hint("weather in Lima today")
        assert found and found[0] == hint
        prompt = with_hint([{"role": "user", "content": "Hi"}], hint)
        assert "find the country; then name its capital" in str(prompt[0]["content"])
        hinted = llm.chat(prompt, max_tokens=2, temperature=0)  # type: ignore[arg-type]  # messages as mappings
        assert hinted.usage.prompt_tokens > ask(llm, "Hi", max_tokens=2).usage.prompt_tokens
        policies = llm.learning.policies([short, long], Random(0))
        for _ in range(20):
            policy = policies.choose("name")
            done = ask(llm, "Who are you?", **policy.sampling)
            policies.reward("name", policy, float(done.text.endswith(".")))
    with load(tmp_path) as llm:
        policies = llm.learning.policies([short, long])
        assert policies.best("name") == long
        assert sum(tally.n for tally in policies.tallies("name").values()) == 20
        assert llm.learning.bank().hints() == [hint]


def test_a_session_and_a_stream_recall_too(llm: LLM) -> None:
    session = llm.session()
    session.generate("Hi there", temperature=0)
    done = session.generate("What is the capital of Portugal?", temperature=0)
    llm.feedback(done, -1, correction="The capital of Portugal is Lisbon.")
    other = llm.session()
    assert other.generate("what is the capital of Portugal", temperature=0).text.endswith("is Lisbon.")
    messages = [{"role": "user", "content": "what is the capital of Portugal"}]
    stream = llm.stream(messages, temperature=0)
    assert "".join(event.text for event in stream).endswith("is Lisbon.")
    assert session.generate("What is 12 plus 30?", temperature=0).text == "12 + 30 = 42."


def test_a_tool_call_is_corrected(llm: LLM) -> None:
    done = ask(llm, "tell me the grade of Anna", tools=[WEATHER])
    call = {"name": "check_grade", "arguments": '{"patient": "Anna"}'}
    calls = [{"id": "a", "type": "function", "function": call}]
    llm.feedback(done, -1, correction={"role": "assistant", "content": "", "tool_calls": calls})
    again = ask(llm, "tell me the grade of Anna", tools=[WEATHER])
    assert [(each.name, each.arguments) for each in again.tool_calls] == [
        ("check_grade", '{"patient": "Anna"}')
    ]
    other = ask(llm, "tell me the grade of Ben", tools=[WEATHER])
    assert [each.arguments for each in other.tool_calls] == ['{"patient": "Ben"}']


def test_earlier_turns_are_the_other_form(llm: LLM) -> None:
    done = ask(llm, "tell me the grade of Anna", tools=[WEATHER])
    llm.feedback(done, -1, correction="Ask the doctor.")
    llm._learner.space.set_form("turns")  # type: ignore[union-attr]
    n_prompt = ask(llm, "tell me the grade of Anna").usage.prompt_tokens
    llm._learner.space.set_form("none")  # type: ignore[union-attr]
    assert n_prompt > ask(llm, "tell me the grade of Anna").usage.prompt_tokens + 10


def test_constraints_and_speculation_go_on_working(llm: LLM) -> None:
    llm.feedback(ask(llm, "Who are you?"), -1, correction="My name is Pico.")
    assert ask(llm, "who are you", choice=["a llama", "My name is Pico."]).text == "My name is Pico."
    assert "cria" in ask(llm, "who are you", speculate="ngram").text  # drafts are verified on the device


def test_wrong_feedback_is_refused(llm: LLM) -> None:
    done = ask(llm, "Who are you?")
    with pytest.raises(RequestError, match=r"expected \+1 or -1"):
        llm.feedback(done, 2)
    with pytest.raises(RequestError, match="expected the right answer"):
        llm.feedback(done, -1, correction="")
    with pytest.raises(RequestError, match="'cmpl-0' is not known"):
        llm.feedback("cmpl-0", 1)
    with pytest.raises(RequestError, match="there is no item 9"):
        llm.learning.forget(9)
    with pytest.raises(RequestError, match="expected off, memory, on"):
        camelid.load("cria", learn="yes")
    assert llm.learning.status().n_items == 0


def test_learning_lists_what_it_has(llm: LLM) -> None:
    done = ask(llm, "Who are you?")
    llm.feedback(done, 1)
    llm.feedback(done, -1, correction="My name is Pico.")
    assert [(item.rating, item.exchange.question) for item in llm.learning.items()] == [
        (1, "Who are you?"), (-1, "Who are you?"),
    ]  # fmt: skip
    assert [row.kind for row in llm.learning.log()] == ["feedback", "feedback"]
    assert (llm.learning.versions(), llm.learning.undo(), llm.learning.use(None)) == ([], "base", "base")
