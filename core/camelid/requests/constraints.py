"""Compiles the constraint options of requests: grammar, json_schema, regex, choice, response_format.

The imports of this module are half of the text layer's code. `RequestBuilder.constraints` imports it with
the first constrained request.
"""

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

CACHED = 16  # compiled grammars in the cache, with up to 128 MiB of masks each


class Constraints:
    """The compiled grammars of one model's requests."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._compiled = lru_cache(CACHED)(self._compile)

    def factory(self, options: Mapping[str, object]) -> ConstraintFactory | None:
        """The factory of a request's constraint; None if the options allow any text.

        Raises RequestError for more than one option, and for a grammar that is malformed or unsupported.
        """
        if len(options) > 1:
            raise RequestError(
                f"{', '.join(options)} are set, expected at most one", field=next(iter(options))
            )
        name, value = next(iter(options.items()), ("", None))
        if name == "response_format":
            name, value = unwrap_response_format(value)
        if not name:
            return None
        automaton = self._compiled(name, json_text(name, value))
        return lambda: Matcher(automaton, self._tokens)

    @cached_property
    def _tokens(self) -> TokenTable:
        return TokenTable.of(self._tokenizer)

    def _compile(self, name: str, text: str) -> Automaton:
        return compile_rules(RULES[name](json.loads(text), self))

    def token_id(self, name: str) -> int | None:
        """The id of a token that a GBNF grammar names."""
        token_ids = self._tokenizer.encode(name, special=True)
        return token_ids[0] if len(token_ids) == 1 else None


def json_text(name: str, value: object) -> str:
    """The option's value as JSON text: a cache key that no caller can change later."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{name} is not a JSON value: {error}", field=name) from None


def expect(name: str, value: object, want: str) -> NoReturn:
    raise RequestError(f"{name} is {value!r:.80}, expected {want}", field=name)


def grammar_rules(value: object, constraints: Constraints) -> Rules:
    if not isinstance(value, str):
        expect("grammar", value, "GBNF text")
    return parse_gbnf(value, constraints.token_id)


def schema_rules(value: object, constraints: Constraints) -> Rules:  # noqa: ARG001
    if type(value) not in (str, bool, dict):
        expect("json_schema", value, "a schema, or its JSON text")
    return rules_of_schema(cast("dict[str, Any] | bool | str", value))


def regex_rules(value: object, constraints: Constraints) -> Rules:  # noqa: ARG001
    if not isinstance(value, str):
        expect("regex", value, "a pattern")
    return rules_of_regex(value)


def choice_rules(value: object, constraints: Constraints) -> Rules:  # noqa: ARG001
    options = cast("list[object]", value) if isinstance(value, list) else []
    texts = [option for option in options if isinstance(option, str)]
    if not texts or len(texts) < len(options):
        expect("choice", options, "a list of texts")
    return rules_of_choice(texts)


def json_rules(value: object, constraints: Constraints) -> Rules:  # noqa: ARG001
    return rules_of_json()


# Option -> function that makes its rules; "response_format" is the type json_object.
RULES: dict[str, Callable[[object, Constraints], Rules]] = {
    "grammar": grammar_rules,
    "json_schema": schema_rules,
    "regex": regex_rules,
    "choice": choice_rules,
    "response_format": json_rules,
}


def unwrap_response_format(value: object) -> tuple[str, object]:
    """Name and value of the option that OpenAI's `response_format` stands for; name "" for plain text.

    Raises RequestError.
    """
    json_text("response_format", value)  # refuses nesting too deep for the repr in `expect`
    format_ = mapping_or_empty(value)
    kind, schema = format_.get("type"), mapping_or_empty(format_.get("json_schema")).get("schema")
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


def mapping_or_empty(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
