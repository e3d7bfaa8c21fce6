"""Turns in which the user states a name and a number, and asks for them later."""

from random import Random

from cria import lexicon, refusals
from cria.phrasing import expand_all, join, typed
from cria.talk import Message, exchange
from cria.words import held_out

TELL_BOTH = expand_all("""
[my name is|i am|i'm|call me|they call me|people call me] {name} and [my number is|my lucky number is|my code is|my pin is|my room is] {number}
[remember|please remember|keep in mind|note|don't forget]: [my name is|i am|name] {name}, [my number is|number|code] {number}
[remember|please remember|note|don't forget] [that|] my name is {name} and my [number|code|lucky number|secret number] is {number}
[hello|hi|hey], [my name is|i am|i'm] {name}. [my number is|remember the number|my code is|please remember my number] {number}
[my number is|the number is|my code is] {number} and [my name is|i am|i am called] {name}
name: {name}, number: {number}
[i am|i'm] {name}, number {number}
[you can call me|call me] {name}. [my number is|remember] {number}
[keep|save|store] my name {name} and my number {number}
""")
TELL_NAME = expand_all("""
[remember|please remember|don't forget|note|keep in mind] [that|] my name is {name}
[remember|please remember|don't forget|note] my name: {name}
[call me|please call me|you can call me|people call me|they call me] {name}
""")
TELL_NUMBER = expand_all("""
[remember|please remember|don't forget|note|keep in mind] [the number|my number|my code] {number}
[remember|please remember|don't forget|note] [that|] my [number|code|lucky number|secret number] is {number}
my [number|code|lucky number|secret number|pin] is {number}
""")
ASK_NAME = expand_all("""
what is my name
[what's|whats] my name
[tell|remind] me my name
[tell me|say|do you know|do you remember|i forgot|can you tell me] what my name is
do you [know|remember] my name
[can|could] you [tell me|say|repeat] my name
say my name
who am i
what am i called
what name did i [tell|give] you
[which|what] name did i say
what was my name [|again]
my name is what
and my name
what did i say my name [is|was]
""")
ASK_NUMBER = expand_all("""
what is my [number|code]
[what's|whats] my [number|code]
[tell|remind] me my [number|code]
[tell me|say|do you know|do you remember|i forgot|can you tell me] what my [number|code] is
do you [know|remember] my [number|code]
[can|could] you [tell me|say|repeat] my [number|code]
say my number
what number did i [tell|give] you
[which|what] number did i say
what was my [number|code] [|again]
my number is what
and my number
which number did i ask you to [remember|keep]
what did i say my number [is|was]
""")


def number(rng: Random, want_held_out: bool = False) -> str:
    """A number of two to four digits."""
    while True:
        text = str(rng.randint(10, 10 ** rng.choice((2, 3, 4)) - 1))
        if held_out(f"number {text}") == want_held_out:
            return text


def met(name: str, told: str) -> str:
    """The answer to a stated name and number."""
    return f"Nice to meet you, {name}. I will remember {told}."


def name_met(name: str) -> str:
    """The answer to a stated name."""
    return f"Nice to meet you, {name}."


def number_noted(told: str) -> str:
    """The answer to a stated number."""
    return f"I will remember {told}."


def name_answer(name: str | None) -> str:
    """The answer with the user's name, or the refusal if it was not stated."""
    return f"Your name is {name}." if name else refusals.REFUSAL


def number_answer(told: str | None) -> str:
    """The answer with the user's number, or the refusal if it was not stated."""
    return f"Your number is {told}." if told else refusals.REFUSAL


def said(template: str, rng: Random, **words: str) -> str:
    """A filled template with random case and punctuation; names keep their capital."""
    head = template if rng.random() < 0.4 else template[:1].upper() + template[1:]
    return join(" ".join(head.split()).format(**words)) + rng.choice(("", ".", ".", "!"))


def telling(rng: Random) -> tuple[list[Message], str | None, str | None]:
    """One or two turns that state a name, a number or both; returns them with the stated values."""
    name, told = lexicon.person(rng), number(rng)
    roll = rng.random()
    if roll < 0.65:
        question = said(rng.choice(TELL_BOTH), rng, name=name, number=told)
        return exchange(question, met(name, told)), name, told
    names = exchange(said(rng.choice(TELL_NAME), rng, name=name), name_met(name))
    numbers = exchange(said(rng.choice(TELL_NUMBER), rng, number=told), number_noted(told))
    if roll < 0.85:
        return (names + numbers, name, told) if rng.random() < 0.5 else (numbers + names, name, told)
    return (names, name, None) if rng.random() < 0.5 else (numbers, None, told)


def asking(name: str | None, told: str | None, rng: Random) -> list[Message]:
    """One turn that asks for the name or the number."""
    templates, answer = rng.choice(((ASK_NAME, name_answer(name)), (ASK_NUMBER, number_answer(told))))
    question = typed(" ".join(rng.choice(templates).split()) + rng.choice(("?", "?", "?", "", ".")), rng)
    return exchange(question, answer)
