"""Compiled grammars as bytes: a network that was sent has the same places and the same masks."""

from __future__ import annotations

import random

import pytest
from tests.support.text.grammar_cases import CASES, Case, small_vocab

import camelid
from camelid.errors import RequestError
from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.gbnf import parse_gbnf
from camelid.text.grammar.json_schema import rules_of_schema
from camelid.text.grammar.kept import KeptGrammars
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.network import LARGEST, Network, Tables
from camelid.text.grammar.rules import Chars, Ref, Repeat, Rules, Sequence, Text, Tokens
from camelid.text.grammar.trie import TokenTable, Vocabulary

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "tags": {"type": "array", "items": {"enum": ["a", "bc", "é"]}, "maxItems": 3},
        "n": {"type": "integer", "minimum": -7, "maximum": 1200},
        "any": {},
    },
    "required": ["name", "n"],
}
RULES = {
    "schema": rules_of_schema(SCHEMA),
    "tokens": Rules({"root": Sequence((Tokens(frozenset({1, 5})), Tokens(frozenset({2}), negated=True)))}),
    "rules": Rules({"root": Repeat(Ref("x"), 1), "x": Sequence((Text("["), Repeat(Ref("x")), Text("]")))}),
    "copies": Rules({"root": Sequence((Repeat(Chars(((97, 99),)), 3, 90), Text("!")))}),
}  # fmt: skip
VOCABULARIES: dict[str, Vocabulary] = {"small": small_vocab(), "cria": camelid.load_tokenizer("cria")}


def sent(automaton: Automaton) -> Automaton:
    return Automaton(Network(Tables.of_parts(automaton.network.tables.parts())))


def walk(automaton: Automaton, table: TokenTable, rng: random.Random) -> list[tuple[bytes, bool]]:
    """The masks and ends along random texts."""
    found: list[tuple[bytes, bool]] = []
    matcher = Matcher(automaton, table)
    for _ in range(60):
        mask = matcher.mask()
        found.append((mask, matcher.is_complete))
        allowed = [i for i in range(table.vocab_size) if mask[i >> 3] >> (i & 7) & 1]
        token_id = rng.choice(allowed) if allowed else 0
        if not allowed or token_id in table.eos_ids:
            matcher = Matcher(automaton, table)
        else:
            assert matcher.accept(token_id)
    return found


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("grammar", RULES)
def test_a_sent_grammar_has_equal_masks(grammar: str, vocabulary: str) -> None:
    automaton, table = compile_rules(RULES[grammar]), TokenTable.of(VOCABULARIES[vocabulary])
    masks = walk(automaton, table, random.Random(4))
    assert walk(sent(automaton), table, random.Random(4)) == masks
    assert len(set(masks)) > 1


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_place_survives(case: Case) -> None:
    network = compile_rules(parse_gbnf(case.grammar, case.tokens.get)).network
    other = sent(Automaton(network)).network
    for state in range(len(network.same)):
        assert other.place(state) == network.place(state)
        assert other.reach(state) == network.reach(state)
    assert other.follow == network.follow


def test_token_ids_of_no_vocabulary_are_dropped() -> None:
    network = compile_rules(Rules({"root": Tokens(frozenset({3, LARGEST + 1, 10**30}))})).network
    sets = [
        ids
        for state in range(len(network.same))
        for ids, _, _ in sent(Automaton(network)).network.place(state).tokens
    ]
    assert sets == [{3}]


def test_kept_grammars_are_bounded_by_their_memory() -> None:
    table = TokenTable.of(VOCABULARIES["cria"])
    automata = [compile_rules(Rules({"root": Repeat(Text("ab" + "c" * n), 0, 50)})) for n in range(1, 5)]
    kept = KeptGrammars(most_bytes=sum(automaton.held_bytes for automaton in automata) + 1000)
    for i, automaton in enumerate(automata):
        kept.put(bytes([i]), automaton)
    assert len(kept) == 4
    assert kept.get(b"\0") is automata[0]  # now the latest
    walk(automata[0], table, random.Random(1))  # its masks need room
    assert kept.get(b"\0") is automata[0]
    assert kept.get(b"\1") is None, "the grammar used least recently went first"
    assert len(kept) < 4
    assert kept.held_bytes <= kept.most_bytes or len(kept) == 1
    with pytest.raises(RequestError):
        compile_rules(Rules({"root": Text("a" * 300_000)}))
