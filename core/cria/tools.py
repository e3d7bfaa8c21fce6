"""Tool turns: two tools, a question for one of them, the call, its result, and the final answer."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from cria import lexicon
from cria.phrasing import capitalised, expand_all
from cria.talk import Message, Tool, assistant, user

NAMES = expand_all("""
[get|find|read|show|fetch_the|give]_{t}
{t}_[of|for|info|finder|tool]
{t}
""")
ABOUTS = expand_all("""
[Get|Find|Give|Return|Read|Tell] the {t} of [a|the|one] {a}
[Gets|Finds|Returns|Gives|Knows] the {t} of [a|the|any] {a}
The {t} of [a|one] {a}
[Get|Find|Returns] [a|the] {t} for a {a}
{t} of a {a}
""")
QUESTIONS = expand_all("""
what is the {t} of {v}
[what's|whats] the {t} of {v}
what {t} does {v} have
[tell|give|show] me the {t} of {v}
[find|get|read|look up|check|say] the {t} of {v}
[can|could] you [tell me|find|check|get] the {t} of {v}
i [need|want|would like] [the|to know the] {t} [of|for] {v}
the {t} of {v}
{v}'s {t}
[do you know|i wonder about|what about] the {t} of {v}
what is {v}'s {t}
which {t} has {v}
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The vocabulary of a generator."""

    topics: tuple[str, ...]
    arguments: tuple[str, ...]
    names: tuple[str, ...]
    abouts: tuple[str, ...]
    questions: tuple[str, ...]
    value: Callable[[Random], str]
    results: tuple[str, ...]
    label: Callable[[Random], str] | None = (
        None  # draws any word as a topic, argument, result or part of a name
    )

    def one(self, listed: tuple[str, ...], rng: Random) -> str:
        """A listed word, or half the time any word."""
        if self.label and rng.random() < 0.5:
            return self.label(rng)
        return rng.choice(listed)

    def two_topics(self, rng: Random) -> tuple[str, ...]:
        """Two different topics."""
        drawn = rng.sample(self.topics, 2)
        return tuple(self.label(rng) if self.label and rng.random() < 0.6 else topic for topic in drawn)

    def name(self, topic: str, rng: Random) -> str:
        """A tool's name."""
        topic, template = topic.replace(" ", "_"), rng.choice(self.names)
        if self.label and rng.random() < 0.4:
            template = rng.choice(("{t}_{w}", "{w}_{t}")).replace("{w}", self.label(rng))
        return template.format(t=topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One use of a tool: topic, argument, question, call, raw result, and the result's text in the answer."""

    topic: str
    value: str
    question: str
    call: dict[str, Any]
    result: str
    told: str


def value(rng: Random) -> str:
    """The subject of a question: a person, a place or a number."""
    draw = rng.choice((lexicon.person, lexicon.place, lexicon.place))
    return str(rng.randint(1, 999)) if rng.random() < 0.12 else draw(rng)


TRAINING = Words(
    topics=lexicon.TOPICS, arguments=lexicon.ARGUMENTS, names=NAMES, abouts=ABOUTS, questions=QUESTIONS, value=value,
    results=lexicon.RESULT_WORDS, label=lexicon.label,
)  # fmt: skip


def tool(name: str, about: str, argument: str) -> Tool:
    """A tool with one string argument, in OpenAI's format."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


def made_tool(words: Words, topic: str, rng: Random) -> Tool:
    """A tool for a topic."""
    argument = words.one(words.arguments, rng)
    name = words.name(topic, rng)
    about = capitalised(rng.choice(words.abouts).format(t=topic, a=argument))
    return tool(name, about, argument)


def result(words: Words, topic: str, rng: Random) -> tuple[str, str]:
    """A tool's result as JSON or plain text, and its text in a sentence."""
    roll = rng.random()
    number, word = rng.randint(0, 10 ** rng.randint(1, 4) - 1), words.one(words.results, rng)
    raw: str | int = number if roll < 0.6 else word if roll < 0.85 else words.value(rng)
    style = rng.random()
    if style < 0.4:
        return str(raw), str(raw)
    key = "result" if style < 0.7 else topic.replace(" ", "_")
    return json.dumps({key: raw}, ensure_ascii=False), str(raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """Two tools and their topics."""

    tools: tuple[Tool, ...]
    topics: tuple[str, ...]


def kit(words: Words, rng: Random) -> Kit:
    """Draws two tools of different topics."""
    topics = words.two_topics(rng)
    return Kit(tools=tuple(made_tool(words, topic, rng) for topic in topics), topics=topics)


def use(words: Words, of: Kit, rng: Random) -> Use:
    """A question for one tool of a kit, with call and result."""
    at, subject = rng.randrange(2), words.value(rng)
    topic, function = of.topics[at], of.tools[at]["function"]
    question = rng.choice(words.questions).format(t=topic, v=subject)
    arguments = {next(iter(function["parameters"]["properties"])): subject}
    text, told = result(words, topic, rng)
    return Use(
        topic=topic, value=subject, question=question, call={"name": function["name"], "arguments": arguments},
        result=text, told=told,
    )  # fmt: skip


def off_topic(words: Words, of: Kit, rng: Random) -> str:
    """A question of the same form that neither tool answers."""
    topic = next(t for t in iter(lambda: rng.choice(words.topics), "") if t not in of.topics)
    return rng.choice(words.questions).format(t=topic, v=words.value(rng))


def calling(call: dict[str, Any]) -> Message:
    """The assistant's message that calls a tool."""
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]}


def answer(made: Use) -> str:
    """The sentence that states the tool's result."""
    return f"The {made.topic} of {made.value} is {made.told}."


def turns(made: Use, question: str) -> list[Message]:
    """The four messages: question, call, result, answer."""
    return [
        user(question),
        calling(made.call),
        {"role": "tool", "content": made.result},
        assistant(answer(made)),
    ]


def asked(question: str, rng: Random) -> str:
    """A question with random punctuation; values keep their case."""
    text = capitalised(question) if rng.random() < 0.7 else question
    return text + rng.choice(("?", "?", ".", ""))
