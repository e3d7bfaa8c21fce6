"""Times of the text layer, in seconds, natively or inside Pyodide.

Needs the standard library and camelid only. The data file is gzipped JSON: {"metadata" (a tokenizer),
"prompts", "units" (one character each, repeated to a megabyte), "schema", "template", "messages"}.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from camelid.text.grammar.automaton import compile_rules
from camelid.text.grammar.json_schema import rules_of_schema
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.trie import TokenTable
from camelid.text.templates.template import compile_template
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

MEGABYTE = 1_000_000


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def tokenizer_times(data: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Encodes with a fresh tokenizer each time, so that no cache helps."""
    start = time.perf_counter()
    made = tokenizer_from_gguf(data["metadata"])
    made.encode("ready")
    yield "vocabulary ready", time.perf_counter() - start
    for name, text in data["prompts"].items():
        made = tokenizer_from_gguf(data["metadata"])
        made.encode("ready")
        n = len(made.encode(text))
        fresh = tokenizer_from_gguf(data["metadata"])
        fresh.encode("ready")
        yield f"{name}, {n} tokens", seconds(lambda fresh=fresh, text=text: fresh.encode(text))
    for name, unit in data["units"].items():
        text = unit * (MEGABYTE // len(unit.encode()))
        yield f"1 MB of {name}", seconds(lambda text=text: made.encode(text))


def grammar_times(data: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Random walks through a schema: computing a mask and accepting one of its tokens."""
    tokenizer = tokenizer_from_gguf(data["metadata"])
    tables: list[TokenTable] = []
    yield "token table ready", seconds(lambda: tables.append(TokenTable.of(tokenizer)))
    automata: list[Any] = []
    yield "schema compiled", seconds(lambda: automata.append(compile_rules(rules_of_schema(data["schema"]))))
    rng, times = Random(5), []
    while len(times) < 400:
        matcher = Matcher(automata[0], tables[0])
        while len(times) < 400 and not matcher.is_finished:
            start = time.perf_counter()
            mask = matcher.mask()
            times.append(time.perf_counter() - start)
            ids = [i for i in range(tokenizer.vocab_size) if mask[i >> 3] >> (i & 7) & 1]
            matcher.accept(rng.choice(ids))
    yield "mask, first 400: mean", sum(times) / len(times)
    yield "mask, first 400: worst", max(times)


def template_times(data: dict[str, Any]) -> Iterator[tuple[str, float]]:
    made = compile_template(data["template"])
    yield f"template, {len(data['messages'])} messages", seconds(lambda: made.render(data["messages"]))


def report_json(path: str) -> str:
    """[(label, seconds)] as JSON."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        data = json.load(file)
    rows = [*tokenizer_times(data), *grammar_times(data), *template_times(data)]
    return json.dumps(rows)
