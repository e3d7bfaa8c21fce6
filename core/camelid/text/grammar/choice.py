"""A choice of texts as rules."""

from __future__ import annotations

from collections.abc import Sequence

from camelid.errors import RequestError
from camelid.text.grammar.builder import RuleBuilder
from camelid.text.grammar.dfa import words
from camelid.text.grammar.rules import Chars, Rules

MAX_OPTIONS = 10_000
MAX_CHARACTERS = 100_000  # of all options together, beginnings that they share counted once


def rules_of_choice(options: Sequence[str]) -> Rules:
    """One of the options, whole. Raises RequestError for none, too many, or one that is not text."""
    if isinstance(options, str) or not options or len(options) > MAX_OPTIONS:
        raise RequestError(
            f"choice: a list of 1 to {MAX_OPTIONS} texts is expected, found {type(options).__name__} of "
            f"{len(options)}",
            field="choice",
        )
    for option in options:
        check(option)
    builder = RuleBuilder({})
    builder.rules["root"] = builder.automaton(words(options, MAX_CHARACTERS), Chars)
    return Rules(builder.rules)


def check(option: object) -> None:
    if not isinstance(option, str) or any(0xD800 <= ord(char) <= 0xDFFF for char in option):
        raise RequestError(
            f"choice: every option is Unicode text, found {option!r:.80}; leave lone surrogates out",
            field="choice",
        )
