"""Random walks through the masks of random schemas.

`python -m tests.support.text.schema_walks [schemas] [--large]` runs them.

Each walk must end in a text that `jsonschema` validates, formats included. `--large` times walks over
150,000 tokens made from a real vocabulary; the default vocabulary is small.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tests.support.text.grammar_cases import FakeTokenizer
from tests.support.text.schema_made import KEYS, SchemaMaker

from camelid.errors import RequestError
from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.json_schema import rules_of_schema
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.trie import TokenTable

LARGE = 150_000
FREE_TOKENS, MAX_TOKENS = 60, 600  # a walk draws freely, then heads for an end
CLOSERS = ('"', "}", "]", "null", "0", "1", "false", "Z", "ab", "_i", "c", "@", '\\"', " ", "A", ":", ",")
PIECES = """{" "} "] ": ": " ", ", " {} [] }, ], },{ [{ }] "" 00 12 2024- -01 :00 .5 e+ true false null the
and hello name id \\n \\" \\\\ \\u00 \\u00e9 \\ud83d \\ude00 http:// .org @ é 日本 😀 ab cd abc s_ _i AB- "a"
"id": {"id": "kind":"""
SPACES = [" ", "  ", "\n", "\n  ", "\n    ", ",\n", "{\n  ", ' "', ' {"', " 1", " true"]


def tokenizer_of(tokens: Iterable[bytes]) -> FakeTokenizer:
    found = dict.fromkeys([*(text.encode() for text in CLOSERS), *tokens])
    return FakeTokenizer([b"</s>", *found], frozenset({0}), frozenset({0}))


def small_tokenizer() -> FakeTokenizer:
    """Every byte, pieces of JSON, and words with all characters that may follow."""
    words = [*PIECES.split(), *SPACES, *KEYS]
    joined = [
        f"{left}{word}{right}" for word in KEYS for left in ('"', ' "', "") for right in ('"', '":', "")
    ]
    numbers = [f"{n}" for n in range(100)]
    alone = [bytes([byte]) for byte in range(256)]
    return tokenizer_of([*alone, *(text.encode() for text in [*words, *joined, *numbers])])


def large_tokenizer(path: Path) -> FakeTokenizer:
    """The tokens of a real byte-level vocabulary, and pairs of these up to LARGE."""
    from camelid.formats.gguf import open_gguf
    from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

    real = tokenizer_from_gguf(dict(open_gguf(path).metadata))
    tokens = [real.token_bytes(i) for i in range(real.vocab_size) if not real.is_control(i)]
    rng = random.Random(0)
    pairs = iter(lambda: rng.choice(tokens) + rng.choice(tokens), b"")
    found = dict.fromkeys(token for token in tokens if token)
    while len(found) < LARGE - 1:
        found.update(dict.fromkeys(islice(pairs, LARGE - 1 - len(found))))
    return tokenizer_of(found)


@dataclass
class Tally:
    """Counts of schemas by outcome."""

    schemas: int = 0
    impossible: int = 0
    walks: int = 0
    tokens: int = 0
    endless: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    compile_s: list[float] = field(default_factory=list)
    mask_s: list[float] = field(default_factory=list)

    def report(self) -> str:
        n_refused = sum(self.refused.values())
        lines = [
            f"{self.schemas} schemas, {n_refused} refused ({n_refused / self.schemas:.1%}): {self.refused}",
            f"{self.impossible} that no value satisfies",
            f"{self.walks} walks, {self.tokens} tokens: {self.endless} not ended, {len(self.wrong)} invalid",
            f"compile: mean {mean_ms(self.compile_s):.1f} ms, worst {max(self.compile_s) * 1e3:.0f} ms",
            f"mask per token: mean {mean_ms(self.mask_s):.2f} ms, worst {max(self.mask_s) * 1e3:.0f} ms",
        ]
        return "\n".join([*lines, *self.wrong[:20]])


def mean_ms(seconds: list[float]) -> float:
    return 1e3 * sum(seconds) / max(1, len(seconds))


class Walker:
    """Walks at random over one vocabulary."""

    def __init__(self, tokenizer: FakeTokenizer, rng: random.Random) -> None:
        self.tokens = tokenizer.tokens
        self.table = TokenTable.of(tokenizer)
        self.rng = rng
        self.closers = [tokenizer.tokens.index(text.encode()) for text in CLOSERS]

    def walk(self, automaton: Automaton, tally: Tally) -> str | None:
        """The text of one walk; None if it reached no end within the limit."""
        matcher = Matcher(automaton, self.table)
        written: list[bytes] = []
        for n in range(MAX_TOKENS):
            start = time.perf_counter()
            mask = matcher.mask()
            tally.mask_s.append(time.perf_counter() - start)
            token_id = self.choose(mask, hurry=n >= FREE_TOKENS)
            if token_id == 0:
                return b"".join(written).decode()
            assert matcher.accept(token_id), "the mask allows a token that the automaton refuses"
            written.append(self.tokens[token_id])
            tally.tokens += 1
        return None

    def choose(self, mask: bytes, *, hurry: bool) -> int:
        def allowed(i: int) -> bool:
            return bool(mask[i >> 3] >> (i & 7) & 1)

        if allowed(0) and (hurry or self.rng.random() < 0.5):
            return 0
        if hurry or self.rng.random() < 0.3:
            closing = [i for i in self.closers if allowed(i)]
            if closing:
                # The first is not always right: a text that must contain "ab" may contain any number of
                # braces.
                return closing[0] if hurry and self.rng.random() < 0.5 else self.rng.choice(closing)
        for _ in range(200):
            if allowed(token_id := self.rng.randrange(len(self.tokens))):
                return token_id
        return self.rng.choice([i for i in range(len(self.tokens)) if allowed(i)])


def oracle(schema: Any) -> Any:
    """A validator that also checks formats."""
    from jsonschema import Draft202012Validator  # takes 0.3 s: not at collection

    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def judged(schema: Any, text: str) -> str | None:
    """The validation error of a text as an instance of the schema; None if valid."""
    try:
        error = next(iter(oracle(schema).iter_errors(json.loads(text))), None)
    except ValueError as broken:
        return f"{broken}: {text!r}"
    return error and f"{error.message[:200]}: {text[:200]!r} of {json.dumps(schema)[:600]}"


def run(
    n_schemas: int, tokenizer: FakeTokenizer, seed: int, n_walks: int, show: Callable[[str], Any] = str
) -> Tally:
    """Draws schemas and walks through each."""
    rng = random.Random(seed)
    walker, tally = Walker(tokenizer, rng), Tally()
    for i in range(n_schemas):
        schema = SchemaMaker(rng).document()
        tally.schemas += 1
        start = time.perf_counter()
        try:
            automaton = compile_rules(rules_of_schema(schema))
        except RequestError as error:
            impossible = "no value" in error.message
            tally.impossible += impossible
            tally.refused[str(error.facts.get("keyword"))] += not impossible
            continue
        tally.compile_s.append(time.perf_counter() - start)
        for _ in range(n_walks):
            text = walker.walk(automaton, tally)
            tally.walks += 1
            tally.endless += text is None
            if text is not None and (problem := judged(schema, text)):
                tally.wrong.append(problem)
        if i % 250 == 249:
            show(f"{i + 1}: {len(tally.wrong)} invalid")
    return tally


def main(arguments: list[str]) -> int:
    n_schemas = next((int(argument) for argument in arguments if argument.isdigit()), 5000)
    shared = Path(__file__).parents[4] / "shared"
    large = "--large" in arguments
    tokenizer = large_tokenizer(shared / "data/vocab/falcon.gguf") if large else small_tokenizer()
    tally = run(n_schemas, tokenizer, seed=4, n_walks=1 if large else 3, show=print)
    print(tally.report())
    return 1 if tally.wrong or tally.endless else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
