"""Compiles the constraints of requests: grammar, json_schema, regex, choice, response_format, tool calls.

The imports of this module are half of the text layer's code. `RequestBuilder.constraints` imports it with
the first constrained request.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from typing import cast

from camelid.errors import RequestError
from camelid.requests.grammar_workers import GrammarWorkers, WorkerMatcher
from camelid.requests.options import OptionConstraint
from camelid.sampling.drawing import ConstraintFactory
from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.kept import KeptGrammars
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.options import RULES, expect, rules_of_option
from camelid.text.grammar.trie import TokenTable
from camelid.text.tokenizers.tokenizer import Tokenizer


class Constraints:
    """The compiled grammars of one model's requests.

    With `workers`, `prepare` compiles in another process, and so are masks that the cache lacks computed.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.kept = KeptGrammars()
        self.workers: GrammarWorkers | None = None
        self._tokenizer = tokenizer

    def start_workers(self, **options: float) -> GrammarWorkers:
        """Starts the processes that compile grammars and compute masks."""
        self.workers = self.workers or GrammarWorkers(self._tokens, self.token_id, **options)
        return self.workers

    def factory(self, options: Mapping[str, object]) -> ConstraintFactory | None:
        """The factory of a request's constraint; None if the options allow any text.

        Raises RequestError for more than one option, and for a grammar that is malformed or unsupported.
        """
        name, text = chosen(options)
        if not name:
            return None
        key, tokens, workers = key_of(name, text), self._tokens, self.workers
        with errors_of(options):
            automaton = self.kept.get(key) or self.kept.put(key, self._compile(name, text))
        calls = mapping_or_empty(options.get("tool_calls"))
        is_lazy = bool(calls) and calls.get("choice") != "required"
        if workers:
            return OptionConstraint(
                options, lambda: WorkerMatcher(workers, key, Matcher(automaton, tokens, is_lazy=is_lazy))
            )
        return OptionConstraint(options, lambda: Matcher(automaton, tokens, is_lazy=is_lazy))

    async def prepare(self, options: Mapping[str, object]) -> None:
        """Compiles the grammar of a request in a worker, so that `factory` finds it. Raises as `factory`."""
        name, text = chosen(options)
        key = key_of(name, text)
        if name and self.workers and not self.kept.get(key):
            with errors_of(options):
                automaton = await self.workers.compile(name, text)
            if not self.kept.get(key):  # another request may have waited for the same grammar
                self.kept.put(key, automaton)

    @cached_property
    def _tokens(self) -> TokenTable:
        return TokenTable.of(self._tokenizer)

    def _compile(self, name: str, text: str) -> Automaton:
        return compile_rules(rules_of_option(name, text, self.token_id))

    def token_id(self, name: str) -> int | None:
        """The id of a token that a GBNF grammar names."""
        token_ids = self._tokenizer.encode(name, special=True)
        return token_ids[0] if len(token_ids) == 1 else None


def chosen(options: Mapping[str, object]) -> tuple[str, str]:
    """The constraint option that is set, and its value as JSON text; name "" if any text is allowed."""
    if len(options) > 1:
        raise RequestError(f"{', '.join(options)} are set, expected at most one", field=next(iter(options)))
    name, value = next(iter(options.items()), ("", None))
    if name == "response_format":
        name, value = unwrap_response_format(value)
    return name, json_text(name, value) if name else ""


@contextmanager
def errors_of(options: Mapping[str, object]) -> Generator[None]:
    """Gives errors of a grammar the field of the request, in which a schema may be a part."""
    try:
        yield
    except RequestError as error:
        option = next(iter(options))
        field = {"tool_calls": "tools"}.get(option, option)
        is_grammar = error.facts.get("field") in RULES
        raise RequestError(error.message, **error.facts | ({"field": field} if is_grammar else {})) from None


def key_of(name: str, text: str) -> bytes:
    """The cache key of an option: a request's text may have a megabyte."""
    return sha256(f"{name}:{text}".encode()).digest()


def json_text(name: str, value: object) -> str:
    """The option's value as JSON text: a cache key that no caller can change later."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{name} is not a JSON value: {error}", field=name) from None


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
