"""Masks against tests of single tokens and against derivatives; rollback; stuck and finished matchers."""

from __future__ import annotations

import random

import pytest
from tests.support.text.grammar_cases import (
    BROKEN,
    CASES,
    NOTHING,
    Case,
    FakeTokenizer,
    Recognizer,
    small_vocab,
)
from tests.text.grammar.test_automaton import compilable, rules

from camelid.errors import RequestError
from camelid.text.grammar import configs, masks
from camelid.text.grammar.automaton import compile_rules
from camelid.text.grammar.gbnf import parse_gbnf
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.trie import TokenTable

TOKENIZER = small_vocab()
TABLE = TokenTable.of(TOKENIZER)
EOS, THINK, END_THINK = 0, 1, 2

# Derivatives lack tokens, and grow without bound in an ambiguous grammar.
DERIVED = {case.name for case in CASES if "<" not in case.grammar} - {"ambiguous"}


def matcher(grammar: str, table: TokenTable = TABLE) -> Matcher:
    return Matcher(compile_rules(parse_gbnf(grammar)), table)


def allowed(matcher: Matcher, n_tokens: int = TOKENIZER.vocab_size) -> list[int]:
    mask = matcher.mask()
    assert len(mask) == (n_tokens + 7) // 8
    found = [i for i in range(len(mask) * 8) if mask[i >> 3] >> (i & 7) & 1]
    assert all(i < n_tokens for i in found)
    return found


def ids(*tokens: bytes) -> list[int]:
    return [i for i, data in enumerate(TOKENIZER.tokens) if data in tokens]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_mask_equals_the_tokens_accepted_next(case: Case) -> None:
    rng, automaton = random.Random(1), compile_rules(rules(case))
    for _ in range(6):
        matcher = Matcher(automaton, TABLE)
        for _ in range(25):
            found = allowed(matcher)
            assert found == [i for i in range(TOKENIZER.vocab_size) if matcher.test(i)]
            assert (EOS in found) == matcher.is_complete
            text = [token_id for token_id in found if token_id != EOS]
            if not text:
                break
            assert matcher.accept(rng.choice(text))


@pytest.mark.parametrize("grammar", ['root ::= "a" | <[3]> "b"', 'root ::= <[3]> | "ab"'])
def test_a_token_allowed_as_text_and_by_id_continues_both(grammar: str) -> None:
    found = matcher(grammar)
    assert ids(b"a") == [3]
    assert found.accept(3)
    assert found.is_complete
    assert allowed(found) == [EOS, *ids(b"b")]


@pytest.mark.conformance
@pytest.mark.parametrize("case", [case for case in CASES if case.name in DERIVED], ids=str)
def test_tokens_are_allowed_where_derivatives_continue(case: Case) -> None:
    rng, automaton, recognizer = random.Random(2), compile_rules(rules(case)), Recognizer(rules(case))
    for _ in range(3):
        matcher, data, rest = Matcher(automaton, TABLE), b"", recognizer.root
        for _ in range(7):
            goes_on = [
                i for i, d in enumerate(TOKENIZER.tokens) if i > 2 and recognizer.goes_on(rest, data + d)
            ]
            found = allowed(matcher)
            assert [i for i in found if i != EOS] == goes_on, data
            assert (EOS in found) == (not data and recognizer.is_nullable(rest))
            if not goes_on:
                break
            token_id = rng.choice(goes_on)
            matcher.accept(token_id)
            data += TOKENIZER.tokens[token_id]
            whole = data.decode("utf-8", "ignore")
            rest, data = recognizer.after(whole, rest), data[len(whole.encode()) :]


def test_random_grammars_allow_the_derivatives_tokens() -> None:
    tokens = [
        b"</s>",
        b"a",
        b"b",
        b"ab",
        b"ba",
        b"aab",
        b"\xc3",
        b"\xa9",
        b"a\xc3",
        b"\xa9b",
        "é".encode(),
        b"bbbb",
    ]
    table = TokenTable.of(FakeTokenizer(tokens, frozenset({0}), frozenset({0})))
    for drawn, automaton in compilable(5, 120):
        rng, recognizer = random.Random(6), Recognizer(drawn)
        matcher, data = Matcher(automaton, table), b""
        for _ in range(5):
            rest = recognizer.after(data.decode("utf-8", "ignore"))
            part = data[len(data.decode("utf-8", "ignore").encode()) :]
            goes_on = [i for i, d in enumerate(tokens) if i and recognizer.goes_on(rest, part + d)]
            assert [i for i in allowed(matcher, len(tokens)) if i] == goes_on, (drawn, data)
            assert matcher.is_complete == (not part and rest != NOTHING and recognizer.is_nullable(rest))
            if not goes_on:
                break
            token_id = rng.choice(goes_on)
            assert matcher.accept(token_id)
            data += tokens[token_id]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rollback_and_fork_restore_the_masks(case: Case) -> None:
    rng, matcher = random.Random(3), Matcher(compile_rules(rules(case)), TABLE)
    path = [matcher.mask()]
    for _ in range(60):
        if rng.random() < 0.3:
            n_back = rng.randrange(min(len(path), 5))
            matcher.rollback(n_back)
            del path[len(path) - n_back :]
        else:
            token_id = (
                rng.randrange(TOKENIZER.vocab_size)
                if rng.random() < 0.3
                else rng.choice([0, *allowed(matcher)])
            )
            was_allowed = token_id in allowed(matcher)
            fork = matcher.fork()
            assert fork.accept(token_id) == was_allowed
            assert matcher.mask() == path[-1], "the fork depends on its origin"
            assert matcher.accept(token_id) == was_allowed
            path += [matcher.mask()] if was_allowed else []
            assert fork.mask() == matcher.mask()
        assert matcher.mask() == path[-1]


def test_cache_evictions_change_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = next(case.grammar for case in CASES if case.name == "json")
    expected, found = list[bytes](), list[bytes]()
    for into, limits in ((expected, None), (found, (20, 1))):
        if limits:
            monkeypatch.setattr(configs, "MAX_CONFIGS", limits[0])
            monkeypatch.setattr(masks, "MIN_CACHED", limits[1])
            monkeypatch.setattr(masks, "MAX_MASK_BYTES", 1)
        walker, rng = matcher(grammar), random.Random(4)
        for _ in range(60):
            into.append(walker.mask())
            walker.accept(rng.choice(allowed(walker)))
    assert expected == found


def test_evicted_configs_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "MAX_CONFIGS", 50)
    automaton = compile_rules(parse_gbnf('root ::= "[" root? "]"'))
    config, opening = automaton.configs.start, bytes([automaton.network.class_of[ord("[")]])
    for _ in range(400):
        config = automaton.configs.read(config, opening)
    seen, todo = set[configs.Config](), [automaton.configs.start]
    while todo:
        found = todo.pop()
        todo += [after for after in found.next if after and after not in seen]
        seen.add(found)
    assert len(seen) < 60


def test_invalid_bytes_are_refused_and_partial_characters_accepted() -> None:
    walker = matcher("root ::= .*")
    found = set(allowed(walker))
    assert found.isdisjoint(ids(*BROKEN, b"\x97\xa5", b"\xa5", b"\xa9b", b"\x98\x80x"))
    assert found.issuperset(ids(b"\xc3", b"\xe6", b"\xe6\x97", b"a\xc3", b"\xf0\x9f"))
    assert walker.accept(ids(b"\xe6")[0])
    assert not walker.is_complete
    assert allowed(walker) == ids(b"\x97\xa5", b"\xa5", b"\x98\x80x")
    assert matcher("root ::= [日]").accept(ids(b"\xe6")[0])
    assert not matcher("root ::= [é]").accept(ids(b"\xe6")[0])


def test_control_tokens_are_allowed_only_by_name() -> None:
    assert {THINK, END_THINK}.isdisjoint(allowed(matcher("root ::= .*")))
    walker = matcher('root ::= <[1]> (!<[2]>)* <[2]> "a"')
    assert allowed(walker) == [THINK]
    assert walker.accept(THINK)
    assert allowed(walker) == list(range(1, TOKENIZER.vocab_size)), "tokens of invalid UTF-8 included"
    assert walker.accept(ids(b"\xff")[0])
    assert walker.accept(END_THINK)
    assert allowed(walker) == ids(b"a")
    assert allowed(matcher('root ::= "b" | <[99999]>')) == ids(b"b")


def test_a_token_matches_by_its_id_and_by_its_text() -> None:
    token_id = ids(b"ab")[0]
    walker = matcher(f'root ::= "ab" "cat" | <[{token_id}]> "words"')
    assert walker.accept(token_id)
    assert allowed(walker) == ids(b"c", b"cat", b"w", b"words")


def test_complete_finished_and_without_a_continuation() -> None:
    walker = matcher('root ::= "a" "b"?')
    assert not walker.accept(EOS)
    assert (walker.is_complete, walker.is_finished) == (False, False)
    assert walker.accept(ids(b"a")[0])
    assert (walker.is_complete, walker.is_finished) == (True, False)
    assert walker.accept(EOS)
    assert walker.accept(ids(b"b")[0]), "EOS changed the matcher"
    assert (walker.is_complete, walker.is_finished) == (True, True)
    assert allowed(walker) == [EOS]
    walker = matcher('root ::= "a" "\x7f"')
    assert any(walker.mask())
    walker.accept(ids(b"a")[0])
    assert not any(walker.mask()), "no token of the vocabulary continues"


@pytest.mark.parametrize("token_id", [-1, TOKENIZER.vocab_size, 10**9])
def test_ids_outside_the_vocabulary_are_an_error(token_id: int) -> None:
    with pytest.raises(RequestError, match="out of range"):
        matcher('root ::= "a"').accept(token_id)


@pytest.mark.parametrize("n_tokens", [-1, 1, 5])
def test_rollback_too_far_is_an_error(n_tokens: int) -> None:
    with pytest.raises(RequestError, match="0 were accepted"):
        matcher('root ::= "a"').rollback(n_tokens)


LONG = (
    'root ::= "\\"" [a.]{35,110} "\\""',
    'root ::= "\\"" ([a] [.]?){60,100} "\\""',
    'root ::= "\\"" x [a"]{0,20}\nx ::= [a.]{35,60}',
    'root ::= "\\"" x [a"]{0,20} x\nx ::= [a.]{0,60}',
    'root ::= "\\"" (x? "\\"")+ \nx ::= [a]{3,60} "."+ | "a"{20}',
)


def test_masks_of_long_repetitions_are_exact_at_every_position() -> None:
    """Short tokens share their masks along a repetition, long ones do not; tests both near each limit."""
    words = [b"a" * n for n in (1, 2, 3, 7, 31, 32, 33, 50, 64, 65, 99)] + [
        b'"',
        b'a"',
        b"aa.",
        b"." * 40,
        b"a." * 20,
    ]
    tokenizer = FakeTokenizer([b"</s>", *words], frozenset({0}), frozenset({0}))
    for grammar in LONG:
        walker = matcher(grammar, TokenTable.of(tokenizer))
        walker.accept(words.index(b'"') + 1)
        for _ in range(115):
            found = allowed(walker, tokenizer.vocab_size)
            assert found == [i for i in range(tokenizer.vocab_size) if walker.test(i)]
            if not walker.accept(1):
                break
