"""Turns with JSON to a schema: a flat object of one to three keys, filled from the facts of a message."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from cria import lexicon
from cria.phrasing import capitalised, expand_all
from cria.talk import Message, Talk, assistant, exchange, user

Value = str | int | bool
Draw = Callable[[Random], str]

FACTS = expand_all("""
[the|its|my|our|] {k} is {v}
[the|our|] {k}: {v}
{k} = {v}
the {k} [was|will be|should be|must be|would be] {v}
[we know that|i think|note that|as you know,|they say] the {k} is {v}
[with|and] {k} {v}
[its|the] {k} [equals|becomes|is now] {v}
[set|put] the {k} to {v}
""")
ASKS = expand_all("""
[fill|complete] [this|the] [schema|JSON schema]
[answer|reply|write it] [as|in|with] JSON [|of this schema|with this schema|that fits this schema]
[give|make|write|return|send] [me|] [JSON|a JSON object|one JSON object] [for|of|with|that fits] this schema
JSON [please|only]
turn [this|it|the text] into JSON
[use|follow] this [schema|JSON schema]
schema
""")
SYSTEMS = expand_all("""
[answer|reply|always answer|only answer] [in|with|as] JSON [of|with|that fits] this schema:
[your answers are|you write|you answer in] JSON of this schema:
[schema|JSON schema] [of your answers|for your answers|of the answer]:
You fill forms. [The schema is|Schema]:
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The vocabulary of a generator: keys of each JSON type, string values, and phrasings."""

    keys: dict[str, tuple[str, ...]]
    text: Draw
    number: Callable[[Random], int]
    facts: tuple[str, ...]
    asks: tuple[str, ...]
    systems: tuple[str, ...]
    label: Draw | None = None  # draws any word as a key

    def key(self, kind: str, rng: Random) -> str:
        """A key of a JSON type: a listed one, or half the time any word."""
        if self.label and rng.random() < 0.5:
            return self.label(rng)
        return rng.choice(self.keys[kind])


def text_value(rng: Random) -> str:
    """A string value: a name, a place, or a plain word."""
    return rng.choice((lexicon.person, lexicon.place, lexicon.person, plain))(rng)


def plain(rng: Random) -> str:
    """A common word in lower case."""
    return rng.choice(lexicon.LETTER_WORDS)


def any_number(rng: Random) -> int:
    """An integer of one to four digits."""
    return rng.randint(0, 10 ** rng.randint(1, 4) - 1)


TRAINING = Words(
    keys={"string": lexicon.STRING_KEYS, "integer": lexicon.INTEGER_KEYS, "boolean": lexicon.BOOLEAN_KEYS},
    text=text_value, number=any_number, facts=FACTS, asks=ASKS, systems=SYSTEMS, label=lexicon.label,
)  # fmt: skip
FLAGS = ((True, "true"), (True, "yes"), (False, "false"), (False, "no"))


def drawn(words: Words, kind: str, rng: Random) -> tuple[Value, str]:
    """A value of a JSON type, and its text in a sentence."""
    if kind == "boolean":
        return rng.choice(FLAGS)
    value = words.text(rng) if kind == "string" else words.number(rng)
    return value, str(value)


def schema_of(kinds: dict[str, str], is_strict: bool) -> dict[str, Any]:
    """The JSON schema of a flat object."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in kinds.items()},
    }
    return {**schema, "required": list(kinds)} if is_strict else schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A schema, the sentences with its values, and the expected object."""

    schema: dict[str, Any]
    facts: str
    want: dict[str, Value]


def form(words: Words, rng: Random) -> Form:
    """A form of one to three keys; the facts are in random order, sometimes with an extra one."""
    chosen = [
        (words.key(kind, rng), kind) for kind in rng.choices(("string", "integer", "boolean"), (5, 4, 3), k=4)
    ]
    kinds = dict(chosen[: rng.randint(1, 3)])
    spare = dict(chosen[3:]) if rng.random() < 0.2 and chosen[3][0] not in kinds else {}
    values = {key: drawn(words, kind, rng) for key, kind in (kinds | spare).items()}
    told = rng.sample(list(values), len(values))
    style = rng.choice(words.facts) if rng.random() < 0.5 else None
    facts = [
        (style or rng.choice(words.facts)).format(k=key.replace("_", " "), v=values[key][1]).strip()
        for key in told
    ]
    want = {key: values[key][0] for key in kinds}
    return Form(schema=schema_of(kinds, rng.random() < 0.6), facts=joined(facts, rng), want=want)


def joined(facts: list[str], rng: Random) -> str:
    """The facts as sentences, as a comma-separated list, or as lines."""
    roll = rng.random()
    if roll < 0.5:
        return " ".join(capitalised(fact) + "." for fact in facts)
    if roll < 0.8:
        return capitalised(", ".join(facts)) + "."
    return "\n".join(facts)


def prompt(words: Words, made: Form, rng: Random) -> list[Message]:
    """The messages of a form: the schema in the system message, or before or after the facts."""
    schema, ask = json.dumps(made.schema), capitalised(" ".join(rng.choice(words.asks).split()))
    roll = rng.random()
    if roll < 0.3:
        return [
            {"role": "system", "content": f"{capitalised(rng.choice(words.systems))} {schema}"},
            user(made.facts),
        ]
    if roll < 0.65:
        return [user(f"{ask}: {schema}\n{made.facts}")]
    return [user(f"{made.facts}\n{ask}: {schema}")]


def answer(made: Form) -> str:
    """The object as JSON text."""
    return json.dumps(made.want, ensure_ascii=False)


def again(words: Words, made: Form, rng: Random) -> Form:
    """A form with other facts for the same schema."""
    kinds = {key: row["type"] for key, row in made.schema["properties"].items()}
    values = {key: drawn(words, kind, rng) for key, kind in kinds.items()}
    facts = [
        rng.choice(words.facts).format(k=key.replace("_", " "), v=values[key][1]).strip() for key in values
    ]
    want = {key: value for key, (value, _) in values.items()}
    return Form(schema=made.schema, facts=joined(rng.sample(facts, len(facts)), rng), want=want)


def talk(rng: Random) -> Talk:
    """A conversation: a form and its answer, then up to three more with the same schema."""
    made = form(TRAINING, rng)
    messages = [*prompt(TRAINING, made, rng), assistant(answer(made))]
    for _ in range(rng.choice((0, 1, 2, 3))):
        made = again(TRAINING, made, rng)
        messages += exchange(made.facts, answer(made))
    return Talk(messages=messages)
