"""The options of a request that limit its text, as rules: one row per option."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, cast

from camelid.errors import RequestError
from camelid.text.grammar.choice import rules_of_choice
from camelid.text.grammar.gbnf import parse_gbnf
from camelid.text.grammar.json_schema import rules_of_schema
from camelid.text.grammar.json_text import rules_of_json
from camelid.text.grammar.regex import rules_of_regex
from camelid.text.grammar.rules import Rules

TokenId: TypeAlias = Callable[[str], int | None]  # the id of a token that a GBNF grammar names


def rules_of_option(name: str, text: str, token_id: TokenId) -> Rules:
    """The rules of an option whose value is given as JSON text. Raises RequestError."""
    return RULES[name](json.loads(text), token_id)


def grammar_rules(value: object, token_id: TokenId) -> Rules:
    if not isinstance(value, str):
        expect("grammar", value, "GBNF text")
    return parse_gbnf(value, token_id)


def schema_rules(value: object, token_id: TokenId) -> Rules:  # noqa: ARG001
    if type(value) not in (str, bool, dict):
        expect("json_schema", value, "a schema, or its JSON text")
    return rules_of_schema(cast("dict[str, Any] | bool | str", value))


def regex_rules(value: object, token_id: TokenId) -> Rules:  # noqa: ARG001
    if not isinstance(value, str):
        expect("regex", value, "a pattern")
    return rules_of_regex(value)


def choice_rules(value: object, token_id: TokenId) -> Rules:  # noqa: ARG001
    options = cast("list[object]", value) if isinstance(value, list) else []
    texts = [option for option in options if isinstance(option, str)]
    if not texts or len(texts) < len(options):
        expect("choice", options, "a list of texts")
    return rules_of_choice(texts)


def json_rules(value: object, token_id: TokenId) -> Rules:  # noqa: ARG001
    return rules_of_json()


def call_rules(value: object, token_id: TokenId) -> Rules:  # noqa: ARG001
    from camelid.text.toolcalls.call_rules import rules_of_calls  # other constraints need no tool calls

    return rules_of_calls(cast("dict[str, Any]", value))


# Option -> function that makes its rules; "response_format" is the type json_object, "tool_calls" the
# description that `tool_choice` makes.
RULES: dict[str, Callable[[object, TokenId], Rules]] = {
    "grammar": grammar_rules,
    "json_schema": schema_rules,
    "regex": regex_rules,
    "choice": choice_rules,
    "response_format": json_rules,
    "tool_calls": call_rules,
}


def expect(name: str, value: object, want: str) -> NoReturn:
    raise RequestError(f"{name} is {value!r:.80}, expected {want}", field=name)
