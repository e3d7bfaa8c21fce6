"""Random walks through the grammars of tool calls, over one small vocabulary per family.

`python -m tests.support.text.call_walks [walks]` walks through every family.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tests.support.text.grammar_cases import FakeTokenizer
from tests.support.text.schema_walks import CLOSERS, PIECES, SPACES, oracle

from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.trie import TokenTable
from camelid.text.toolcalls.call_rules import rules_of_calls
from camelid.text.toolcalls.families import FAMILIES
from camelid.text.toolcalls.family import Family
from camelid.text.toolcalls.parser import parser_for
from camelid.text.toolcalls.parts import Message, ToolCall, gather

CALLING = [name for name, row in FAMILIES.items() if row.call]
CONTROL = re.compile(r"<\|[^|]*\|>|<｜[^｜]*｜>|｜DSML｜|\[[A-Z_]+\]|</?[A-Za-z_:|]+>|<\|tool_call>")
FREE_TOKENS, MAX_TOKENS = 60, 1500
WEATHER: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "code": {"type": "string", "pattern": "^[A-Z<]{2}-[0-9]{3}$"},
        "short": {"type": "string", "minLength": 2, "maxLength": 700},
        "unit": {"enum": ["c", "f </", "</parameter>", "</param>", "</arg_value>", '<|"|>', "x\n", "\n"]},
        "days": {"type": "integer", "minimum": -3},
        "exact": {"type": "boolean"},
        "note": {"type": ["string", "null"], "maxLength": 30},
        "either": {"anyOf": [{"type": "number"}, {"enum": ["a<b", [True, {"k": None, "q\"<": "é"}]]}]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^.[a-z<]*$"}, "maxItems": 4},
        "options": {"$ref": "#/$defs/options"},
    },
    "required": ["city", "days"],
    "$defs": {
        "options": {
            "properties": {"a": {"type": "string"}, "x-y": {"$ref": "#/$defs/options"}, "two words": True},
            "type": "object",
        }
    },
}  # fmt: skip
SCHEMAS: Mapping[str, Mapping[str, Any] | None] = {
    "get_weather": WEATHER,
    "now": None,
    "set.all": {"type": "object", "additionalProperties": {"type": "integer"}},
    "none": {"properties": {}, "additionalProperties": False},
}
TOOLS = [
    {"type": "function", "function": {"name": name} | ({"parameters": schema} if schema else {})}
    for name, schema in SCHEMAS.items()
]


def controls_of(family: Family) -> dict[str, int | None]:
    """Control tokens for a family's markers; ends of a turn end the answer."""
    found = {piece for marker in family.markers for piece in CONTROL.findall(marker)}
    names = enumerate(sorted(found - set(family.ends)), 1)
    return dict.fromkeys(sorted(found & set(family.ends)), None) | {name: i for i, name in names}


def words_of(family: Family) -> Iterator[str]:
    """Texts of a family's calls."""
    yield from family.markers
    yield from SCHEMAS
    yield from ("functions.", " to=functions.", "commentary", "analysis", "final", "assistant", "json", "all")
    for key in (*family.keys, *WEATHER["properties"]):
        yield from (key, f'"{key}"', f'"{key}": ', f"{key}=", f"{key}:")


def tokenizer_of(family: Family, controls: Mapping[str, int | None]) -> FakeTokenizer:
    """Ends of the answer, control tokens, then every byte, pieces of JSON and of calls."""
    named = [name for name, token_id in controls.items() if token_id is not None]
    text = [word.encode() for word in (*CLOSERS, *PIECES.split(), *SPACES, *words_of(family))]
    rest = dict.fromkeys([*(bytes([byte]) for byte in range(256)), *text])
    tokens = [b"</s>", *(name.encode() for name in named), *rest]
    return FakeTokenizer(tokens, frozenset(range(len(named) + 1)), frozenset({0}))


def description(family: Family, controls: Mapping[str, int | None], **options: Any) -> dict[str, Any]:
    """The description of a grammar, with the defaults of an ordinary request."""
    return {
        "family": family.name, "thinking": family.thinking, "tools": SCHEMAS, "choice": "required",
        "parallel": True, "in_reasoning": False, "controls": controls, **options,
    }  # fmt: skip


class CallWalker:
    """Walks through the grammars of one family."""

    def __init__(self, name: str, rng: random.Random, *, has_controls: bool) -> None:
        self.family = FAMILIES[name]
        self.rng = rng
        self.controls = controls_of(self.family) if has_controls else {}
        self.tokenizer = tokenizer_of(self.family, self.controls)
        self.table = TokenTable.of(self.tokenizer)
        n_controls = len(self.tokenizer.control)
        words = (" to=functions.", "commentary", "final", "assistant", "json", ")", "(", "=", ">")
        closers = {text.encode() for text in (*CLOSERS, *self.family.markers, *SCHEMAS, *words)}
        tokens = enumerate(self.tokenizer.tokens)
        self.closers = {i for i, data in tokens if 0 < i < n_controls or data in closers}

    def automaton(self, **options: Any) -> Automaton:
        return compile_rules(rules_of_calls(description(self.family, self.controls, **options)))

    def walk(self, automaton: Automaton, free: int = FREE_TOKENS) -> str | None:
        """The text of one walk; None if it reached no end within the limit."""
        matcher = Matcher(automaton, self.table)
        written: list[bytes] = []
        for n in range(MAX_TOKENS):
            token_id = self.choose(matcher.mask(), hurry=n >= free)
            if token_id == 0:
                return b"".join(written).decode()
            assert matcher.accept(token_id), "the mask allows a token that the automaton refuses"
            written.append(self.tokenizer.tokens[token_id])
        return None

    def choose(self, mask: bytes, *, hurry: bool) -> int:
        allowed = [i for i in range(len(self.tokenizer.tokens)) if mask[i >> 3] >> (i & 7) & 1]
        assert allowed, "no token continues"
        if allowed[0] == 0 and (hurry or self.rng.random() < 0.3):
            return 0
        closing = list(self.closers.intersection(allowed))
        return self.rng.choice(closing if closing and (hurry or self.rng.random() < 0.4) else allowed)

    def parsed(self, text: str, *, tools: list[Any], in_reasoning: bool) -> Message:
        """The answer as the family's parser reads it, in two pieces."""
        parser = parser_for(self.family, tools=tools, starts_in_reasoning=in_reasoning)
        cut = self.rng.randrange(len(text) + 1)
        return gather([*parser.push(text[:cut]), *parser.push(text[cut:]), *parser.finish()])


def fault(message: Message, choice: str, *, parallel: bool) -> str | None:
    """The first fault of a parsed answer; None if its calls are complete, valid and as many as asked for."""
    calls = message.tool_calls
    if choice == "none" and calls:
        return "a call"
    if choice == "required" and (message.content or not calls):
        return f"{len(calls)} calls, and content {message.content!r}"
    if not parallel and len(calls) > 1:
        return f"{len(calls)} calls"
    return next((wrong for call in calls if (wrong := call_fault(call))), None)


def call_fault(call: ToolCall) -> str | None:
    if not call.complete or call.name not in SCHEMAS:
        return f"{call} is incomplete, or of an unknown tool"
    schema = SCHEMAS[call.name] or {"type": "object"}
    error = next(iter(oracle(schema).iter_errors(json.loads(call.arguments))), None)
    return error and f"{call.name}: {error.message[:300]}"


@dataclass(frozen=True)
class Way:
    """Options of a grammar."""

    choice: str = "required"
    parallel: bool = True
    in_reasoning: bool = False


WAYS = (Way(), Way(parallel=False), Way(in_reasoning=True), Way("auto"), Way("auto", parallel=False),
        Way("auto", in_reasoning=True), Way("none"))  # fmt: skip


def ways_of(family: Family) -> list[Way]:
    """The ways that occur: thoughts begin in the prompt only if the family opens them with a marker."""
    return [way for way in WAYS if not way.in_reasoning or (family.thinking and family.thinking[0])]


def check(walker: CallWalker, way: Way, n_walks: int) -> tuple[int, int]:
    """Walks through one grammar; fails at the first fault. Returns the numbers of ended walks and calls."""
    automaton = walker.automaton(**asdict(way))
    ended = calls = 0
    for _ in range(n_walks):
        text = walker.walk(automaton)
        if text is not None:
            tools = [] if way.choice == "none" else TOOLS
            message = walker.parsed(text, tools=tools, in_reasoning=way.in_reasoning)
            wrong = fault(message, way.choice, parallel=way.parallel)
            assert wrong is None, f"{walker.family.name}, {way}: {wrong}\n{text!r}"
            ended, calls = ended + 1, calls + len(message.tool_calls)
    return ended, calls


def main(arguments: list[str]) -> None:
    n_walks = next((int(argument) for argument in arguments if argument.isdigit()), 50)
    for name in CALLING:
        for has_controls in (True, False):
            walker = CallWalker(name, random.Random(7), has_controls=has_controls)
            for way in ways_of(walker.family):
                ended, calls = check(walker, way, n_walks)
                print(f"{name}, {way}: {ended} of {n_walks} ended, {calls} calls", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
