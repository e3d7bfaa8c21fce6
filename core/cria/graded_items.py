"""The graded items: the same for a seed for ever, skills taking turns. Not edited once training began."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from cria import arithmetic as sums
from cria import chatter, facts, words
from cria import graded_phrasings as ours
from cria.phrasing import capitalised

SKILLS = ("add", "sub", "facts", "greet", "refuse")
REFUSAL = "I don't know."
GREETING_MARKS = {"hello": "!", "thanks": "!", "bye": "."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A prompt and the whole answer wanted; a `known` item of `refuse` passes with anything but a refusal."""

    skill: str
    prompt: str
    want: str
    known: bool = True

    def passed(self, answer: str) -> bool:
        """Whether an answer is right, blanks at its ends aside."""
        if self.skill == "refuse" and self.known:
            return answer.strip() not in ("", REFUSAL)
        return answer.strip() == self.want


def dressed(question: str, rng: Random, mark: str = "?") -> str:
    """A question as people type it: mostly tidy, sometimes all lower case or without its mark."""
    text = capitalised(question) if rng.random() < 0.75 else question.lower()
    return text + rng.choice((mark, mark, mark, ""))


def addition(rng: Random) -> Item:
    """A held-out sum."""
    a, b = sums.sum_numbers(rng, want_held_out=True)
    return Item(skill="add", prompt=dressed(rng.choice(ours.ADD).format(a=a, b=b), rng), want=sums.sum_answer(a, b))


def subtraction(rng: Random) -> Item:
    """A held-out difference."""
    a, b = sums.difference_numbers(rng, want_held_out=True)
    prompt = dressed(rng.choice(ours.SUBTRACT).format(a=a, b=b), rng)
    return Item(skill="sub", prompt=prompt, want=sums.difference_answer(a, b))


def about(relation: facts.Relation, entity: str, rng: Random) -> str:
    """A question about one entity: a graded question, or a taught noun phrase in a graded frame."""
    if rng.random() < 0.6:
        return dressed(rng.choice(ours.FACTS[relation.name]).format(x=entity), rng)
    noun = rng.choice([noun for noun in relation.nouns if not noun.startswith(("how", "what"))])
    return dressed(rng.choice(ours.FRAMES).format(np=noun.format(x=entity)), rng)


def fact(rng: Random) -> Item:
    """A taught fact."""
    relation = rng.choice(facts.RELATIONS)
    entity = rng.choice(tuple(relation.answers))
    return Item(skill="facts", prompt=about(relation, entity, rng), want=relation.answer(entity))


def greeting(rng: Random) -> Item:
    """Small talk."""
    kind = rng.choice(tuple(ours.GREET))
    return Item(skill="greet", prompt=dressed(rng.choice(ours.GREET[kind]), rng, GREETING_MARKS.get(kind, "?")), want=chatter.ANSWERS[kind])


def stranger(rng: Random) -> str:
    """A taught relation asked of an entity that is in no training list, or of a held-out invented word."""
    relation = rng.choice(facts.RELATIONS)
    entity = rng.choice(ours.STRANGERS[relation.name])
    if relation.name in ("capital", "baby", "opposite", "day", "month") and rng.random() < 0.3:
        entity = words.invented(rng, want_held_out=True).capitalize()
    return about(relation, entity, rng)


def foreign(rng: Random) -> str:
    """A question about something that no relation covers."""
    roll, subject = rng.random(), rng.choice(ours.SUBJECTS)
    if roll < 0.35:
        return dressed(rng.choice(ours.FOREIGN).format(x=subject), rng)
    if roll < 0.65:
        return dressed(rng.choice(ours.FRAMES).format(np=rng.choice(ours.FOREIGN_NOUNS).format(x=subject)), rng)
    return dressed(rng.choice(ours.ALONE), rng)


def impossible(rng: Random) -> str:
    """Arithmetic out of range, or another operation."""
    draw, templates = rng.choice((
        (sums.too_large_sum, ours.ADD), (sums.bad_difference, ours.SUBTRACT), (sums.difference_numbers, ours.OTHER),
    ))  # fmt: skip
    a, b = draw(rng)
    return dressed(rng.choice(templates).format(a=a, b=b), rng)


def refusal(rng: Random) -> Item:
    """By turns of a coin: something cria cannot know, or something it was taught."""
    if rng.random() < 0.5:
        prompt = rng.choice((stranger, stranger, foreign, foreign, impossible))(rng)
        return Item(skill="refuse", prompt=prompt, want=REFUSAL, known=False)
    item = rng.choice((addition, subtraction, fact, fact, greeting))(rng)
    return Item(skill="refuse", prompt=item.prompt, want=item.want)


MAKERS: dict[str, Callable[[Random], Item]] = {
    "add": addition, "sub": subtraction, "facts": fact, "greet": greeting, "refuse": refusal,
}  # fmt: skip


def skill_items(seed: int, skill: str) -> Iterator[Item]:
    """The stream of one skill; no prompt comes twice."""
    rng, seen = Random(f"{seed}/{skill}"), set[str]()
    while True:
        item = MAKERS[skill](rng)
        if item.prompt not in seen:
            seen.add(item.prompt)
            yield item


def items(seed: int, per_skill: int) -> list[Item]:
    """`per_skill` items of every skill, the skills taking turns; `refuse` has twice as many, for its two sides."""
    counts = {skill: per_skill * (2 if skill == "refuse" else 1) for skill in SKILLS}
    columns = [list(islice(skill_items(seed, skill), counts[skill])) for skill in SKILLS]
    rows = [[column[i] for column in columns if i < len(column)] for i in range(max(counts.values()))]
    return [item for row in rows for item in row]


def first_prompts(seed: int, n: int) -> list[str]:
    """The first n prompts of a seed, all skills among them."""
    return [item.prompt for item in items(seed, -(-n // len(SKILLS)))[:n]]
