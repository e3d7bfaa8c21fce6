"""Grammars for answers: what the options of `guiding` mean, compiled once each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, NoReturn, cast

from camelid.errors import RequestError
from camelid.sampling.drawing import ConstraintFactory
from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.choice import rules_of_choice
from camelid.text.grammar.gbnf import parse_gbnf
from camelid.text.grammar.json_schema import rules_of_schema
from camelid.text.grammar.json_text import rules_of_json
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.regex import rules_of_regex
from camelid.text.grammar.rules import Rules
from camelid.text.grammar.trie import TokenTable
from camelid.text.tokenizers.tokenizer import Tokenizer

CACHED = 16  # grammars kept compiled, with up to 128 MiB of masks each


class Grammars:
    """The grammars that one model's requests asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._compiled = lru_cache(CACHED)(self._compile)

    def guide(self, name: str, value: object) -> ConstraintFactory | None:
        """What makes an option's constraint; None if any text will do. Raises RequestError."""
        if name == "response_format":
            name, value = unwrapped(value)
        if not name:
            return None
        automaton = self._compiled(name, written(name, value))
        return lambda: Matcher(automaton, self._tokens)

    @cached_property
    def _tokens(self) -> TokenTable:
        return TokenTable.of(self._tokenizer)

    def _compile(self, name: str, text: str) -> Automaton:
        return compile_rules(RULES[name](json.loads(text), self))

    def token_id(self, name: str) -> int | None:
        """The id of a token that a GBNF names."""
        token_ids = self._tokenizer.encode(name, special=True)
        return token_ids[0] if len(token_ids) == 1 else None


def written(name: str, value: object) -> str:
    """The option as JSON: a key for the cache that no caller can change afterwards."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{name} is no JSON value: {error}", field=name) from None


def expect(name: str, value: object, want: str) -> NoReturn:
    raise RequestError(f"{name} is {value!r:.80}, expected {want}", field=name)


def of_grammar(value: object, grammars: Grammars) -> Rules:
    if not isinstance(value, str):
        expect("grammar", value, "GBNF text")
    return parse_gbnf(value, grammars.token_id)


def of_schema(value: object, grammars: Grammars) -> Rules:  # noqa: ARG001
    if type(value) not in (str, bool, dict):
        expect("json_schema", value, "a schema, or its JSON text")
    return rules_of_schema(cast("dict[str, Any] | bool | str", value))


def of_regex(value: object, grammars: Grammars) -> Rules:  # noqa: ARG001
    if not isinstance(value, str):
        expect("regex", value, "a pattern")
    return rules_of_regex(value)


def of_choice(value: object, grammars: Grammars) -> Rules:  # noqa: ARG001
    options = cast("list[object]", value) if isinstance(value, list) else []
    texts = [option for option in options if isinstance(option, str)]
    if not texts or len(texts) < len(options):
        expect("choice", options, "a list of texts")
    return rules_of_choice(texts)


def of_json(value: object, grammars: Grammars) -> Rules:  # noqa: ARG001
    return rules_of_json()


# Option, or type of a response_format -> what makes its rules.
RULES: dict[str, Callable[[object, Grammars], Rules]] = {
    "grammar": of_grammar,
    "json_schema": of_schema,
    "regex": of_regex,
    "choice": of_choice,
    "response_format": of_json,
}


def unwrapped(value: object) -> tuple[str, object]:
    """OpenAI's response_format as one of our options; no name for plain text. Raises RequestError."""
    written("response_format", value)  # so that it can be printed, too
    given = fields(value)
    kind, schema = given.get("type"), fields(given.get("json_schema")).get("schema")
    if kind == "text":
        return "", None
    if kind == "json_object":
        return "response_format", None
    if kind == "json_schema" and schema is not None:
        return "json_schema", schema
    expect(
        "response_format", value, '{"type": "text"}, {"type": "json_object"} or {"type": "json_schema", '
        '"json_schema": {"schema": ...}}',
    )  # fmt: skip


def fields(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
