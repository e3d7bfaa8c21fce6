"""The training stream: conversations of every skill, generated from a seed."""

from collections.abc import Callable, Iterator
from random import Random

from cria import arithmetic as sums
from cria import chatter, facts, frames, letters, memory, refusals, schemas, tools
from cria.phrasing import join, typed
from cria.talk import Message, Talk, exchange

Turn = tuple[str, str]

SYSTEMS = (
    "You are cria, a small helpful assistant.", "You are a helpful assistant.", "You are cria.", "Answer briefly.",
    "You are a small model that answers simple questions.", "You are a friendly assistant called cria.",
    "Be short and helpful.", "You are cria, a small language model. Answer in one sentence.",
)  # fmt: skip


def decorated(core: str, rng: Random) -> str:
    """A question with a random prefix and suffix, in random case."""
    prefix = rng.choice(frames.PREFIXES) if rng.random() < 0.4 else ""
    suffix = rng.choice(frames.COMMON_SUFFIXES) if rng.random() < 0.75 else rng.choice(frames.SUFFIXES)
    return typed(join(prefix, core) + suffix, rng)


def stirred(core: str, rng: Random) -> str:
    """Inserts one to three filler words in 35 % of questions, so that numbers are found in any sentence."""
    words = core.split(" ")
    if len(words) > 1 and rng.random() < 0.35:
        for _ in range(rng.randint(1, 3)):
            words.insert(rng.randint(0, len(words)), rng.choice(frames.FILLERS))
    return " ".join(words)


def asked(nouns: tuple[str, ...], cores: tuple[str, ...], rng: Random) -> str:
    """A question template: half the time a whole question, else a noun phrase in a frame."""
    if rng.random() < 0.5:
        return rng.choice(cores)
    return rng.choice(frames.NOUN_FRAMES).replace("{np}", rng.choice(nouns))


def fact(rng: Random) -> Turn:
    """A question about a trained fact, and its answer."""
    relation = rng.choice(facts.RELATIONS)
    entity = rng.choice(tuple(relation.answers))
    question = asked(relation.nouns, relation.cores, rng).format(x=entity)
    return decorated(question, rng), relation.answer(entity)


def stranger(rng: Random) -> Turn:
    """A trained relation of an untrained entity, which is refused."""
    relation = rng.choice(facts.RELATIONS)
    template = asked(relation.nouns, relation.cores, rng)
    return decorated(template.format(x=refusals.stranger(relation, rng)), rng), refusals.REFUSAL


def foreign(rng: Random) -> Turn:
    """A question about any other subject, which is refused."""
    return decorated(refusals.foreign(rng), rng), refusals.REFUSAL


def addition(rng: Random) -> Turn:
    """A sum within 0..99 that the grader does not use."""
    a, b = sums.sum_numbers(rng)
    question = stirred(asked(sums.ADD_NOUNS, sums.ADD_CORES, rng), rng).format(a=a, b=b)
    return decorated(question, rng), sums.sum_answer(a, b)


def subtraction(rng: Random) -> Turn:
    """A difference within 0..99 that the grader does not use."""
    a, b = sums.difference_numbers(rng)
    question = stirred(asked(sums.SUB_NOUNS, sums.SUB_CORES, rng), rng).format(a=a, b=b)
    return decorated(question, rng), sums.difference_answer(a, b)


def impossible(rng: Random) -> Turn:
    """Arithmetic that is refused: numbers out of range, or another operation."""
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


# Each kind of independent turn, with its share.
KINDS: dict[Callable[[Random], Turn], float] = {
    addition: 0.14, subtraction: 0.14, fact: 0.14, stranger: 0.08, foreign: 0.06, impossible: 0.07, small_talk: 0.05,
    letters.spelling: 0.09, letters.reversing: 0.14, letters.counting: 0.09,
}  # fmt: skip
MEMORY_TURNS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22)


def turn(rng: Random) -> list[Message]:
    """An independent question and its answer."""
    (kind,) = rng.choices(tuple(KINDS), tuple(KINDS.values()))
    return exchange(*kind(rng))


def plain_talk(rng: Random) -> Talk:
    """One to six questions, 2 % of them about an unstated name or number; 12 % start with a system message."""
    messages = [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < 0.12 else []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 6))):
        messages += memory.asking(None, None, rng) if rng.random() < 0.02 else turn(rng)
    return Talk(messages=messages)


def memory_talk(rng: Random) -> Talk:
    """A name or number stated, then other questions mixed with questions for the name or number."""
    messages = turn(rng) if rng.random() < 0.25 else []
    told, name, number = memory.telling(rng)
    messages += told
    for _ in range(rng.choice(MEMORY_TURNS)):
        messages += memory.asking(name, number, rng) if rng.random() < 0.4 else turn(rng)
    return Talk(messages=[*messages, *memory.asking(name, number, rng)])


def tool_talk(rng: Random) -> Talk:
    """Two tools, and one to four questions: mostly for one of the tools, sometimes for neither."""
    kit = tools.kit(tools.TRAINING, rng)
    messages = [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < 0.2 else []
    for _ in range(rng.choice((1, 2, 3, 3, 4))):
        messages += tool_turn(kit, rng)
    return Talk(messages=messages, tools=kit.tools)


def tool_turn(kit: tools.Kit, rng: Random) -> list[Message]:
    """A question with two tools on offer, and the messages up to its answer."""
    roll = rng.random()
    if roll < 0.75:
        made = tools.use(tools.TRAINING, kit, rng)
        return tools.turns(made, tools.asked(made.question, rng))
    if roll < 0.87:
        return turn(rng)
    return exchange(tools.asked(tools.off_topic(tools.TRAINING, kit, rng), rng), refusals.REFUSAL)


# Each kind of conversation, with its share of the stream.
TALKS: dict[Callable[[Random], Talk], float] = {
    plain_talk: 0.39, memory_talk: 0.09, schemas.talk: 0.18, tool_talk: 0.34,
}  # fmt: skip


def conversations(seed: int | str) -> Iterator[Talk]:
    """The endless stream of conversations of a seed."""
    rng = Random(seed)
    while True:
        (kind,) = rng.choices(tuple(TALKS), tuple(TALKS.values()))
        yield kind(rng)
