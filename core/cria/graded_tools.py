"""Graded use of tools, with the grader's own topics, tool names and phrasings. Not edited once training began."""

from random import Random

from cria import graded_items, graded_json, graded_memory, tools
from cria.graded_task import Task, call_text
from cria.phrasing import expand_all
from cria.talk import Talk, user
from cria.words import split

TOPICS = split("""temperature, model, date, home town, mood, budget, volume, door code, winner, opening hour, best dish, main street,
fuel, grade, balance, seat, gate, platform, lunch, brother""")
ARGUMENTS = split("town, user, film, river, village, patient, machine, bird, car park, singer")
NAMES = expand_all("""
[look_up|query|check]_{t}
{t}_[lookup|search|service]
my_{t}
""")
ABOUTS = expand_all("""
Look up the {t} of one {a}
Says which {t} a {a} has
Tells you the {t} of this {a}
Here you find the {t} of each {a}
Search for the {t} of a {a}
""")
QUESTIONS = expand_all("""
please look for the {t} of {v}
would you know the {t} of {v}
i have to know the {t} of {v}
my boss wants the {t} of {v}
so what {t} has {v} got
let me know the {t} of {v}
i wish to know the {t} of {v}
how do i find out the {t} of {v}
""")
RESULTS = split("rainy, low, hot, purple, narrow, broken, free, strong, warm, pink")


def value(rng: Random) -> str:
    """Subject of a question."""
    draw = rng.choice((graded_memory.name, graded_json.place, graded_memory.name))
    return str(rng.randint(1, 999)) if rng.random() < 0.12 else draw(rng)


WORDS = tools.Words(
    topics=TOPICS, arguments=tuple(a.replace(" ", "_") for a in ARGUMENTS), names=NAMES, abouts=ABOUTS, questions=QUESTIONS,
    value=value, results=RESULTS,
)  # fmt: skip


def call(rng: Random) -> Task:
    """A question beside two tools: the call, or for one in seven, which no tool answers, the plain answer."""
    kit = tools.kit(WORDS, rng)
    if rng.random() < 1 / 7:
        item = rng.choice((graded_items.addition, graded_items.fact, graded_items.greeting))(rng)
        return Task(skill="tool_call", talk=Talk(messages=[user(item.prompt)], tools=kit.tools), want=item.want)
    made = tools.use(WORDS, kit, rng)
    talk = Talk(messages=[user(tools.asked(made.question, rng))], tools=kit.tools)
    return Task(skill="tool_call", talk=talk, want=call_text(made.call), check="call")


def answer(rng: Random) -> Task:
    """A question, its call and the tool's result: the sentence that uses it."""
    kit = tools.kit(WORDS, rng)
    made = tools.use(WORDS, kit, rng)
    messages = tools.turns(made, tools.asked(made.question, rng))
    return Task(skill="tool_answer", talk=Talk(messages=messages[:-1], tools=kit.tools), want=tools.answer(made))
