"""The user's own two tools, whose arguments the model names wrongly: thumbs on its calls are all it gets."""

import json
from random import Random

from tests.learning.scenarios.scenario import Event, Scenario, never, scenario

from cria import graded_tools, tools
from cria.graded_task import Task, call_text
from cria.talk import Talk, user

TOPICS = ("grade", "lunch")
KIT = (
    tools.tool("check_grade", "Says which grade a patient has", "patient"),
    tools.tool("lunch_lookup", "Look up the lunch of one town", "town"),
)
ASKED = (
    "what is the {t} of {v}",
    "tell me the {t} of {v}",
    "i need the {t} of {v}",
    "which {t} has {v}",
    "find the {t} of {v}",
)


def toolkit(seed: int) -> Scenario:
    """Events in training phrasings, held-out prompts in the grader's; the kit is the same for every seed."""
    return scenario(
        "toolkit",
        seed,
        lambda rng: asked(rng, ASKED),
        lambda rng: asked(rng, graded_tools.QUESTIONS),
        never,
        event,
    )


def asked(rng: Random, questions: tuple[str, ...]) -> Task:
    """A question for one of the two tools."""
    at, value = rng.randrange(2), graded_tools.value(rng)
    question = tools.asked(rng.choice(questions).format(t=TOPICS[at], v=value), rng)
    function = KIT[at]["function"]
    arguments = {next(iter(function["parameters"]["properties"])): value}
    want = call_text({"name": function["name"], "arguments": arguments})
    return Task(skill="toolkit", talk=Talk(messages=[user(question)], tools=KIT), want=want, check="call")


def event(task: Task) -> Event:
    """The right call in the template's own writing."""
    call = json.loads(task.want)
    return Event(task=task, answer=f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>")
