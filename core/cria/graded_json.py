"""Graded JSON to a schema, with the grader's own keys, values and phrasings. Not edited once training began."""

from random import Random

from cria import graded_memory, graded_words, schemas
from cria.graded_task import Task
from cria.phrasing import expand_all
from cria.talk import Talk
from cria.words import split

KEYS = {
    "string": split("pet, film, mother, boss, river, mountain, season, dish, town, writer, driver, model, flavor, neighbor, garden, uncle, color_name"),
    "integer": split("number, points, legs, months, amount, items, users, goals, tickets, tables, temperature, zip, bottles, trees, houses, steps"),
    "boolean": split("hot, happy, read, signed, spicy, alive, warm, lazy, strong, noisy, visible, modern"),
}  # fmt: skip
PLACES = split("Cairo, Havana, Montreal, Munich, Warsaw, Delhi, Nairobi, Kenya, Bern, Zagreb, Krakow, Lille")
FACTS = expand_all("""
as for the {k}, it is {v}
i know the {k} is {v}
{k} was said to be {v}
the {k} has to be {v}
here the {k} is {v}
for the {k} write {v}
they told me the {k} is {v}
in this case the {k} was {v}
""")
ASKS = expand_all("""
I need this as JSON for the schema
put it into JSON of this schema
please answer with JSON that follows this schema
write the facts as JSON, the schema is
please fill in this schema
return JSON only, using this schema
""")
SYSTEMS = expand_all("""
You always answer with JSON. It has to fit this schema:
Write nothing but JSON of this schema:
You turn facts into JSON. Use this schema:
""")


def text(rng: Random) -> str:
    """A string value: a name, a place, or a plain word."""
    return rng.choice((graded_memory.name, place, graded_memory.name, graded_words.word))(rng)


def place(rng: Random) -> str:
    """A place of the grader's list."""
    return rng.choice(PLACES)


WORDS = schemas.Words(
    keys=KEYS, text=text, number=schemas.any_number, facts=FACTS, asks=ASKS, systems=SYSTEMS,
)  # fmt: skip


def form(rng: Random) -> Task:
    """One form to fill."""
    made = schemas.form(WORDS, rng)
    return Task(skill="json", talk=Talk(messages=schemas.prompt(WORDS, made, rng)), want=schemas.answer(made), check="json")
