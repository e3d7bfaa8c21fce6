"""Computes the answers to a file of vectors and compares them, natively or inside Pyodide.

A vector file is gzipped JSON lines: {"kind", "name", "facts", "inputs", "answers"}. `kind` selects the runner
(RUNNERS), `facts` is its input, `answers` holds a digest of an independent oracle's answer per input. Needs
the standard library and camelid only.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

Vector = dict[str, Any]
Answer = Callable[[Any], object]


def digest(answer: object) -> str:
    """Sixteen hex digits of an answer: a list of ids, lengths or strings, or a text."""
    return hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:16]


def splitter(facts: Any) -> Answer:
    """Lengths of the words."""
    from camelid.text.tokenizers.pretokenize import splitter

    row = splitter(facts)
    return lambda text: [len(word) for word in row.split(text)]


def tokenizer(facts: Any) -> Answer:
    """Token ids of a text; `facts` is GGUF metadata."""
    from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

    return tokenizer_from_gguf(facts).encode


def family(facts: Any) -> Answer:
    """Token ids of a text, control tokens included; `facts` is the text of a tokenizer.json."""
    from camelid.text.tokenizers.hf.files import TokenizerFiles
    from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json

    made = tokenizer_from_json(TokenizerFiles(json.loads(facts)))
    return lambda text: made.encode(text, special=True)


def template(facts: Any) -> Answer:
    """The rendering of a conversation, None for a refusal; `facts` is the template's source."""
    from camelid.errors import CamelidError
    from camelid.text.templates.template import STANDARD, compile_template

    made = compile_template(facts)

    def render(context: Any) -> str | None:
        known = {k: v for k, v in context.items() if k in made.variables | STANDARD}
        known["strftime_now"] = lambda form: f"now({form})"
        try:
            return "".join(text for text, _ in made.render(known.pop("messages"), **known))
        except CamelidError:
            return None

    return render


def schema(facts: Any) -> Answer:
    """True if the grammar of a JSON schema matches a text, byte by byte."""
    from camelid.text.grammar.automaton import compile_rules
    from camelid.text.grammar.json_schema import rules_of_schema
    from camelid.text.grammar.matcher import Matcher
    from camelid.text.grammar.trie import TokenTable
    from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf
    from camelid.text.tokenizers.vocab import ALPHABET

    words = {"model": "gpt2", "pre": "gpt-2", "tokens": [*ALPHABET], "merges": []}
    made = tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in words.items()})
    automaton, tokens = compile_rules(rules_of_schema(facts)), TokenTable.of(made)

    def matches(text: str) -> bool:
        matcher = Matcher(automaton, tokens)
        return all(map(matcher.accept, made.encode(text))) and matcher.is_complete

    return matches


RUNNERS: dict[str, Callable[[Any], Answer]] = {
    "splitter": splitter,
    "tokenizer": tokenizer,
    "family": family,
    "template": template,
    "schema": schema,
}


def write(path: str, vectors: Iterator[Vector]) -> None:
    """Writes the vectors, their answers as digests."""
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
        for vector in vectors:
            row = {**vector, "answers": [digest(a) for a in vector["answers"]]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read(path: str) -> Iterator[Vector]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def compare(vector: Vector) -> Vector:
    """The number of wrong answers, the first wrong input, seconds for construction and for all answers."""
    start = time.perf_counter()
    answer = RUNNERS[vector["kind"]](vector["facts"])
    made = time.perf_counter()
    found = [digest(answer(given)) for given in vector["inputs"]]
    wrong = [i for i, (got, want) in enumerate(zip(found, vector["answers"], strict=True)) if got != want]
    return {
        "kind": vector["kind"],
        "name": vector["name"],
        "inputs": len(found),
        "wrong": len(wrong),
        "first": vector["inputs"][wrong[0]] if wrong else None,
        "made_s": made - start,
        "run_s": time.perf_counter() - made,
    }


def report(path: str) -> list[Vector]:
    return [compare(vector) for vector in read(path)]


def report_json(path: str) -> str:
    return json.dumps(report(path))
