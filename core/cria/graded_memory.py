"""Graded memory: a name and a number told, other questions, then one of the two asked. Not edited once training began."""

import re
from collections.abc import Callable
from random import Random

from cria import graded_items, lexicon, memory
from cria.graded_task import Task
from cria.phrasing import capitalised, expand_all
from cria.talk import Message, Talk, exchange, user
from cria.words import split

DISTANCE = 700  # most tokens between telling and asking, by the estimate below
PIECE = re.compile(r"[^\W\d]{1,3}|\s(?=\d)|[^\w\s]|\d")
NAMES = split("""Grace, Peter, Donna, Jason, Eric, Dennis, Harold, Douglas, Albert, Brandon, Harry, Steve, Eugene, Phillip, Chris, Nathan, Curtis,
Glenn, Bradley, Ray, Edwin, Eddie, Barry, Brenda, Diane, Joyce, Mildred, Sanjay, Pablo, Giulia, Claire, Sven, Petra""")
TELL = expand_all("""
before we start: my name is {name} and my number is {number}
here is something to remember. i am {name} and my number is {number}
good day, my name is {name}, and the number to remember is {number}
i am called {name} and my lucky number is {number}
please remember two things: my name is {name}, my number is {number}
it is {name} here. please remember my number, it is {number}
i want you to remember that i am {name} and that my number is {number}
so my name is {name} and i have the number {number}
""")
ASK_NAME = expand_all("""
what did i say my name was at the start
do you still know my name
i told you my name. what is it
which name did i tell you
tell me the name that i gave you
please say which name i have
can you remember my name
how am i called, do you remember
""")
ASK_NUMBER = expand_all("""
what did i say my number was at the start
do you still know my number
i told you my number. what is it
which number did i tell you
tell me the number that i gave you
please say which number i have
can you remember my number
so what was the number i told you
""")
FILLERS: tuple[Callable[[Random], graded_items.Item], ...] = (
    graded_items.addition, graded_items.subtraction, graded_items.fact, graded_items.fact, graded_items.greeting,
)  # fmt: skip


def name(rng: Random) -> str:
    """A held-out name, half the time one that exists."""
    return rng.choice(NAMES) if rng.random() < 0.5 else lexicon.assembled(rng, want_held_out=True).capitalize()


def estimate(messages: list[Message]) -> int:
    """About how many tokens some messages are, rather more than fewer: a test compares it with the tokenizer."""
    return sum(len(PIECE.findall(message["content"])) + 6 for message in messages)


def fillers(rng: Random) -> list[Message]:
    """Other questions with their right answers, up to 700 tokens of them."""
    messages: list[Message] = []
    room = rng.uniform(0, DISTANCE)
    while True:
        item = rng.choice(FILLERS)(rng)
        more = exchange(item.prompt, item.want)
        if estimate(messages + more) > room:
            return messages
        messages += more


def ended(text: str, rng: Random, marks: tuple[str, ...]) -> str:
    """A sentence with or without its capital and its mark."""
    return (capitalised(text) if rng.random() < 0.75 else text) + rng.choice(marks)


def remembered(skill: str, asks: tuple[str, ...], rng: Random) -> tuple[Task, str, str]:
    """The conversation, with the name and the number told in it."""
    who, told = name(rng), memory.number(rng, want_held_out=True)
    telling = exchange(ended(rng.choice(TELL).format(name=who, number=told), rng, (".", ".", "")), memory.met(who, told))
    question = user(ended(rng.choice(asks), rng, ("?", "?", "?", "")))
    return Task(skill=skill, talk=Talk(messages=[*telling, *fillers(rng), question]), want=""), who, told


def name_asked(rng: Random) -> Task:
    """The name told."""
    task, who, _ = remembered("name", ASK_NAME, rng)
    return Task(skill="name", talk=task.talk, want=memory.name_answer(who))


def number_asked(rng: Random) -> Task:
    """The number told."""
    task, _, told = remembered("number", ASK_NUMBER, rng)
    return Task(skill="number", talk=task.talk, want=memory.number_answer(told))
