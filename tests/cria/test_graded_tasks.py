"""The second edition's grader: its items are well-formed, and it passes correct answers only."""

import json
from functools import cache
from pathlib import Path

import pytest

from cria import arithmetic, graded_items, graded_memory, graded_tasks
from cria.graded_task import Task
from cria.talk import Talk, user

tokenizer = pytest.importorskip("cria.tokenizer")

FILE = Path(__file__).resolve().parents[2] / "core/camelid/data/cria.gguf"


@cache
def tasks_of(skill):
    return [task for task in made() if task.skill == skill]


@cache
def made():
    return graded_tasks.tasks(11, 200)


def right(task):
    return f"<tool_call>{task.want}</tool_call>" if task.check == "call" else task.want


@pytest.mark.parametrize("skill", graded_tasks.SKILLS)
def test_only_the_task_s_own_answer_passes(skill):
    tasks = tasks_of(skill)
    assert len(tasks) == 200
    assert all(task.passed(right(task)) and task.passed(f" {right(task)}\n") for task in tasks)
    others = zip(tasks, tasks[1:] + tasks[:1], strict=True)
    assert sum(task.passed(right(other)) for task, other in others if right(task) != right(other)) == 0
    assert not any(task.passed(wrong) for task in tasks for wrong in ("", "I don't know.", "{}", "null"))


BROKEN = {
    "a letter less": lambda answer: answer[:-1],
    "a word more": lambda answer: answer + " ok",
    "two letters swapped": lambda answer: answer[:3] + answer[4] + answer[3] + answer[5:],
    "other digits": lambda answer: answer.translate(str.maketrans("0123456789", "1234567890")) + "?",
    "upper case": str.upper,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_answer_fails(how):
    for tasks in map(tasks_of, graded_tasks.SKILLS):
        for task in tasks[:50]:
            broken = BROKEN[how](right(task))
            if broken != right(task):
                assert not task.passed(broken), (broken, task.want)


def json_task(want):
    return Task(skill="json", talk=Talk(messages=[user("")]), want=json.dumps(want), check="json")


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        ('{"age": 3, "paid": true}', True), ('{"paid":true,"age":3}', True), ('{"age": 3, "paid": 1}', False),
        ('{"age": "3", "paid": true}', False), ('{"age": 3.0, "paid": true}', False), ('{"age": 3}', False),
        ('{"age": 3, "paid": true, "x": 1}', False), ('{"age": 3, "paid": true', False),
        ('```{"age": 3, "paid": true}```', False), ('Here: {"age": 3, "paid": true}', False),
    ],
)  # fmt: skip
def test_json_is_compared_by_meaning_and_type(answer, passes):
    assert json_task({"age": 3, "paid": True}).passed(answer) == passes


CALL = {"name": "get_price", "arguments": {"item": "Rome"}}


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (tokenizer.called(**CALL), True), (f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>", True),
        (json.dumps(CALL), False), ("The price of Rome is 3.", False),
        (tokenizer.called("get_size", {"item": "Rome"}), False),
        (tokenizer.called("get_price", {"item": "rome"}), False),
        (tokenizer.called("get_price", {"city": "Rome"}), False), (tokenizer.called(**CALL) * 2, False),
        ("So: " + tokenizer.called(**CALL), False), ("<tool_call>{</tool_call>", False),
    ],
)  # fmt: skip
def test_one_call_of_the_right_tool_passes(answer, passes):
    task = Task(skill="tool_call", talk=Talk(messages=[user("")]), want=json.dumps(CALL), check="call")
    assert task.passed(answer) == passes


def test_letter_answers_are_right_by_definition():
    for task in tasks_of("reverse"):
        letters, back = task.want.removesuffix(".").split(" backwards is ")
        assert back == letters[::-1]
        assert letters.replace("-", "") in task.prompt
        assert 3 <= len(letters.replace("-", "")) <= 6
    for task in tasks_of("letters"):
        letters, count = task.want.removesuffix(" letters.").split(" has ")
        assert letters.count("-") + 1 == int(count)
        assert letters.replace("-", "") in task.prompt
    for task in tasks_of("spell"):
        assert task.want.removesuffix(".").replace("-", "") in task.prompt


def told_distances():
    talks = [task.talk for task in tasks_of("name") + tasks_of("number")]
    tok = tokenizer.gguf_tokenizer(FILE)
    return [len(tok.encode(tokenizer.render(Talk(messages=talk.messages[2:-1])))) - 3 for talk in talks]


def test_the_name_and_the_number_are_stated_up_to_700_tokens_earlier():
    distances = sorted(told_distances())
    assert 600 < distances[-1] <= 700
    assert distances[len(distances) // 4] < 250 and distances[3 * len(distances) // 4] > 350


def test_the_fact_is_stated_once_and_fillers_are_graded_questions_with_correct_answers():
    for task in tasks_of("name") + tasks_of("number"):
        told = task.want.removesuffix(".").rpartition(" ")[2]
        head, *rest = [m["content"] for m in task.talk.messages if m["role"] == "user"]
        assert told in head
        assert told not in rest[-1]
    assert {graded_items.addition, graded_items.fact} < set(graded_memory.FILLERS)
    assert arithmetic.sum_answer(2, 3) == "2 + 3 = 5."


def schema_of(task):
    text = " ".join(m["content"] for m in task.talk.messages)
    at = text.index('{"type": "object"')
    return json.JSONDecoder().raw_decode(text, at)[0]


def test_expected_json_fits_the_schema_and_the_message_states_its_values():
    jsonschema = pytest.importorskip("jsonschema")  # takes seconds to import
    for task in tasks_of("json"):
        want = json.loads(task.want)
        jsonschema.validate(want, schema_of(task) | {"additionalProperties": False})
        assert 1 <= len(want) <= 3
        said = " ".join(m["content"] for m in task.talk.messages)
        assert all(str(v) in said for v in want.values() if not isinstance(v, bool))


def test_a_call_names_one_of_the_two_tools_and_its_argument():
    calls = [task for task in tasks_of("tool_call") if task.check == "call"]
    assert 150 < len(calls) < 190
    for task in calls:
        call = json.loads(task.want)
        (function,) = (t["function"] for t in task.talk.tools if t["function"]["name"] == call["name"])
        assert set(call["arguments"]) == set(function["parameters"]["required"])
        assert len({t["function"]["name"] for t in task.talk.tools}) == 2
        assert all(value in task.prompt for value in call["arguments"].values())


def test_a_tool_s_answer_uses_the_tool_s_result():
    for task in tasks_of("tool_answer"):
        *_, result = task.talk.messages
        assert result["role"] == "tool"
        assert task.want.removesuffix(".").rpartition(" is ")[2] in result["content"]
