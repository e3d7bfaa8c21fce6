"""The training stream: conversations of one to six turns, mixing every skill, drawn from a seed."""

from collections.abc import Callable, Iterator
from random import Random

from cria import arithmetic as sums
from cria import chatter, facts, frames, refusals
from cria.phrasing import join, typed

Message = dict[str, str]
Turn = tuple[str, str]

SYSTEMS = (
    "You are cria, a small helpful assistant.", "You are a helpful assistant.", "You are cria.", "Answer briefly.",
    "You are a small model that answers simple questions.", "You are a friendly assistant called cria.",
    "Be short and helpful.", "You are cria, a small language model. Answer in one sentence.",
)  # fmt: skip


def decorated(core: str, rng: Random) -> str:
    """A core question with, often, a prefix and a suffix, typed carelessly."""
    prefix = rng.choice(frames.PREFIXES) if rng.random() < 0.4 else ""
    suffix = rng.choice(frames.COMMON_SUFFIXES) if rng.random() < 0.75 else rng.choice(frames.SUFFIXES)
    return typed(join(prefix, core) + suffix, rng)


def stirred(core: str, rng: Random) -> str:
    """Now and then, one to three small words in between, so that numbers are found in any sentence."""
    words = core.split(" ")
    if len(words) > 1 and rng.random() < 0.35:
        for _ in range(rng.randint(1, 3)):
            words.insert(rng.randint(0, len(words)), rng.choice(frames.FILLERS))
    return " ".join(words)


def asked(nouns: tuple[str, ...], cores: tuple[str, ...], rng: Random) -> str:
    """A template: half the time a core, half the time a noun phrase in a frame."""
    if rng.random() < 0.5:
        return rng.choice(cores)
    return rng.choice(frames.NOUN_FRAMES).replace("{np}", rng.choice(nouns))


def fact(rng: Random) -> Turn:
    """A fact that cria is taught."""
    relation = rng.choice(facts.RELATIONS)
    entity = rng.choice(tuple(relation.answers))
    question = asked(relation.nouns, relation.cores, rng).format(x=entity)
    return decorated(question, rng), relation.answer(entity)


def stranger(rng: Random) -> Turn:
    """A taught relation asked of an entity it was not taught for."""
    relation = rng.choice(facts.RELATIONS)
    template = asked(relation.nouns, relation.cores, rng)
    return decorated(template.format(x=refusals.stranger(relation, rng)), rng), refusals.REFUSAL


def foreign(rng: Random) -> Turn:
    """A question about anything else."""
    return decorated(refusals.foreign(rng), rng), refusals.REFUSAL


def addition(rng: Random) -> Turn:
    """A sum within 0..99 that is not held out."""
    a, b = sums.sum_numbers(rng)
    question = stirred(asked(sums.ADD_NOUNS, sums.ADD_CORES, rng), rng).format(a=a, b=b)
    return decorated(question, rng), sums.sum_answer(a, b)


def subtraction(rng: Random) -> Turn:
    """A difference within 0..99 that is not held out."""
    a, b = sums.difference_numbers(rng)
    question = stirred(asked(sums.SUB_NOUNS, sums.SUB_CORES, rng), rng).format(a=a, b=b)
    return decorated(question, rng), sums.difference_answer(a, b)


def impossible(rng: Random) -> Turn:
    """Arithmetic that cria refuses: out of range, or another operation."""
    roll = rng.random()
    if roll < 0.35:
        a, b = sums.too_large_sum(rng)
        template = asked(sums.ADD_NOUNS, sums.ADD_CORES, rng)
    elif roll < 0.70:
        a, b = sums.bad_difference(rng)
        template = asked(sums.SUB_NOUNS, sums.SUB_CORES, rng)
    else:
        a, b = (rng.randint(0, rng.choice((20, 99, 999))) for _ in "ab")
        template = rng.choice(sums.OTHER_CORES)
    question = stirred(template, rng).format(a=a, b=b, c=rng.randint(0, 99))
    return decorated(question, rng), refusals.REFUSAL


def small_talk(rng: Random) -> Turn:
    """A greeting, thanks, a goodbye, or a question about cria itself."""
    kind = rng.choice(tuple(chatter.ANSWERS))
    core = rng.choice(chatter.CORES[kind]).format(name=rng.choice(chatter.NAMES))
    if rng.random() < 0.15 and kind in ("how", "who", "can"):
        core = join(rng.choice(frames.PREFIXES), core)
    return typed(core + rng.choice(chatter.SUFFIXES), rng), chatter.ANSWERS[kind]


# Each kind of turn and its share of the stream.
KINDS: dict[Callable[[Random], Turn], float] = {
    addition: 0.21, subtraction: 0.22, fact: 0.22, stranger: 0.11, foreign: 0.08, impossible: 0.09, small_talk: 0.07,
}  # fmt: skip


def conversation(rng: Random) -> list[Message]:
    """One conversation; one in eight starts with a system message."""
    messages = [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < 0.12 else []
    n_turns = rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 6))
    for kind in rng.choices(tuple(KINDS), tuple(KINDS.values()), k=n_turns):
        question, answer = kind(rng)
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages


def conversations(seed: int | str) -> Iterator[list[Message]]:
    """The endless stream of one seed."""
    rng = Random(seed)
    while True:
        yield conversation(rng)
