"""A choice of texts as rules."""

from __future__ import annotations

from collections.abc import Sequence

from camelid.errors import RequestError
from camelid.text.grammar.builder import RuleBuilder
from camelid.text.grammar.dfa import words
from camelid.text.grammar.rules import Chars, Rules

MAX_OPTIONS = 10_000
MAX_CHARACTERS = 100_000  # of all options together; shared prefixes count once


def rules_of_choice(options: Sequence[str]) -> Rules:
    """The rules that match exactly one of the options.

    Raises RequestError for no option, for more than MAX_OPTIONS, and for an option that is not Unicode text.
    """
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
            f"choice: every option must be Unicode text, found {option!r:.80}; remove lone surrogates",
            field="choice",
        )
