"""Texts that grammars match, against Python's `re` and derivatives; grammars that cannot be compiled."""

from __future__ import annotations

import random
import re
from itertools import product

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.grammar_cases import CASES, Case, Recognizer, small_vocab

from camelid.errors import RequestError
from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.configs import MAX_DEPTH
from camelid.text.grammar.gbnf import parse_gbnf
from camelid.text.grammar.rules import Chars, Choice, Expr, Ref, Repeat, Rules, Sequence, Text, Tokens

TOKENIZER = small_vocab()
REGULAR = [case for case in CASES if case.regex is not None]


def rules(case: Case) -> Rules:
    return parse_gbnf(case.grammar, case.tokens.get)


def matches(automaton: Automaton, text: str) -> bool:
    config = automaton.configs.read(
        automaton.configs.start, text.encode().translate(automaton.network.class_of)
    )
    return config.complete


@pytest.mark.parametrize("case", CASES, ids=str)
def test_named_texts(case: Case) -> None:
    automaton = compile_rules(rules(case))
    assert [text for text in case.matched if not matches(automaton, text)] == []
    assert [text for text in case.refused if matches(automaton, text)] == []


def some_texts(case: Case, seed: int) -> list[str]:
    """Every short text over a few characters, and long ones."""
    rng = random.Random(seed)
    alphabet = "abc" if not case.grammar.isascii() else 'abc" ]'
    short = ["".join(chars) for n in range(5) for chars in product(alphabet, repeat=n)]
    wide = [*alphabet, *"é日本😀ぁ\nà-[^"]
    return short + ["".join(rng.choices(wide, k=rng.randrange(9))) for _ in range(300)]


@pytest.mark.conformance
@pytest.mark.parametrize("case", REGULAR, ids=str)
def test_regular_grammars_match_res_texts(case: Case) -> None:
    automaton, pattern = compile_rules(rules(case)), re.compile(case.regex or "")
    for text in some_texts(case, 1) + [char * n for char in "abc" for n in (58, 61, 79, 82, 99, 103)]:
        assert matches(automaton, text) == bool(pattern.fullmatch(text)), repr(text)


@pytest.mark.parametrize("case", [case for case in CASES if case.matched], ids=str)
def test_grammars_match_the_derivatives_texts(case: Case) -> None:
    automaton, recognizer = compile_rules(rules(case)), Recognizer(rules(case))
    rng = random.Random(2)
    for text in [*case.matched, *case.refused]:
        for _ in range(20):
            at = rng.randrange(len(text) + 1)
            changed = text[:at] + rng.choice(["", *'abc"1,)(}']) + text[at + rng.randrange(2) :]
            assert matches(automaton, changed) == recognizer.accepts(changed), repr(changed)


def random_rules(rng: random.Random) -> Rules:
    names = ["root", "x", "y"][: rng.randrange(1, 4)]
    return Rules({name: random_expr(rng, names, 3) for name in names})


def random_expr(rng: random.Random, names: list[str], depth: int) -> Expr:
    kind = rng.randrange(3 if depth == 0 else 8)
    if kind == 0:
        return Text(rng.choice(["a", "b", "ab", "é", ""]))
    if kind == 1:
        return Chars(rng.choice([((97, 98),), ((0x61, 0x61), (0xE0, 0xFF)), ((0x62, 0x10FFFF),)]))
    if kind == 2:
        return Ref(rng.choice(names))
    parts = tuple(random_expr(rng, names, depth - 1) for _ in range(rng.randrange(1, 4)))
    if kind < 6:
        return Sequence((Text(rng.choice("ab")), *parts)) if kind == 3 else Sequence(parts)
    if kind == 6:
        return Choice(parts)
    least = rng.randrange(3)
    return Repeat(parts[0], least, rng.choice([None, least, least + 2]))


def compilable(seed: int, n_rules: int) -> list[tuple[Rules, Automaton]]:
    rng, found = random.Random(seed), list[tuple[Rules, Automaton]]()
    while len(found) < n_rules:
        drawn = random_rules(rng)
        try:
            found.append((drawn, compile_rules(drawn)))
        except RequestError:
            continue
    return found


def test_random_grammars_match_the_derivatives_texts() -> None:
    texts = ["".join(chars) for n in range(6) for chars in product("abé" if n < 5 else "ab", repeat=n)]
    for drawn, automaton in compilable(3, 150):
        recognizer = Recognizer(drawn)
        expected = {text for text in texts if recognizer.accepts(text)}
        assert {text for text in texts if matches(automaton, text)} == expected, drawn


A, B = Text("a"), Text("b")
ROOT, X, Y = Ref("root"), Ref("x"), Ref("y")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"root": Sequence((ROOT, A))}, ("'root'", "left recursion")),
        ({"root": Choice((Sequence((ROOT, A)), B))}, ("'root'", "left recursion")),
        ({"root": Choice((A, Sequence((X, B)))), "x": Choice((B, Sequence((Y, A)))), "y": X}, ("left rec",)),
        ({"root": Choice((B, Sequence((X, ROOT, A)))), "x": Repeat(A)}, ("'root'", "left recursion")),
        ({"root": Choice((B, Sequence((X, ROOT, A)))), "x": Sequence((Y, Y)), "y": Text("")}, ("left rec",)),
        ({"root": Choice((ROOT, A))}, ("'root'", "left recursion")),
        ({"root": Repeat(Choice((A, ROOT)))}, ("'root'", "left recursion")),
        ({"root": Sequence((A, X))}, ("'x'", "define it")),
        ({"top": A}, ("'root'", "define it")),
        ({"root": Choice(())}, ("'root'", "never end")),
        ({"root": Sequence((A, ROOT))}, ("'root'", "never end")),
        ({"root": Choice((A, X)), "x": Sequence((B, Y)), "y": Sequence((A, X))}, ("never end",)),
        ({"root": Chars(())}, ("'root'", "never end")),
        ({"root": Chars(((0xD800, 0xDFFF),))}, ("'root'", "never end")),
        ({"root": Tokens(frozenset())}, ("'root'", "never end")),
        ({"root": Text("a\ud800")}, ("U+D800", "surrogate")),
        ({"root": Repeat(A, 3, 2)}, ("minimum 3", "swap")),
        ({"root": Repeat(A, 1, 1_000_000)}, ("200,000 states",)),
        ({"root": Repeat(A, 10**30)}, ("200,000 states",)),
        ({"root": Repeat(Repeat(A, 0, 2000), 0, 2000)}, ("200,000 states",)),
        ({"root": Text("a" * 300_000)}, ("200,000 states",)),
    ],
)
def test_invalid_grammars_are_refused(rules: dict[str, Expr], words: tuple[str, ...]) -> None:
    with pytest.raises(RequestError) as caught:
        compile_rules(Rules(rules))
    assert caught.value.field == "grammar"
    assert [word for word in words if word not in caught.value.message] == []


def test_dead_alternatives_and_unused_rules_are_dropped() -> None:
    dead = Sequence((A, Choice(())))
    automaton = compile_rules(Rules({"root": Choice((dead, B, Repeat(dead))), "x": Sequence((X, A))}))
    assert [matches(automaton, text) for text in ("b", "", "a")] == [True, True, False]
    start, a = automaton.configs.start, automaton.network.class_of[97]
    assert automaton.configs.step(start, a) is automaton.configs.dead


def nested(depth: int) -> Expr:
    expr: Expr = A
    for _ in range(depth):
        expr = Choice((Sequence((expr,)),))
    return expr


def chain(n_rules: int) -> Rules:
    last = {f"r{n_rules}": Repeat(A, 0, 1)}
    return Rules({f"r{i}": Sequence((Ref(f"r{i + 1}"), Text(""))) for i in range(n_rules)} | last, "r0")


HOSTILE = {
    "60,000 groups": lambda: compile_rules(parse_gbnf("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000)),
    "60,000 nested expressions": lambda: compile_rules(Rules({"root": nested(60_000)})),
    "10,000 rules in a row": lambda: compile_rules(chain(10_000)),
    "a long text": lambda: compile_rules(parse_gbnf(f'root ::= "{"A" * 100_000}"')),
    "30,000 words": lambda: compile_rules(Rules({"root": Choice(tuple(map(Text, map(str, range(30_000)))))})),
    "a large count": lambda: compile_rules(parse_gbnf('root ::= "a"{1,50000}')),
}  # fmt: skip
REFUSED = {
    "60,000 open groups": lambda: parse_gbnf("root ::= " + "(" * 60_000),
    "60,000 groups of two": lambda: compile_rules(parse_gbnf("root ::= " + '("a" ' * 60_000 + ")" * 60_000)),
    "60,000 stars": lambda: compile_rules(parse_gbnf('root ::= "a"' + "*" * 60_000)),
    "{1,1000000}": lambda: compile_rules(parse_gbnf('root ::= "ab"{1,1000000}')),
    "counts of counts": lambda: compile_rules(parse_gbnf('root ::= "a"' + "{9}" * 20)),
    "a count of many digits": lambda: parse_gbnf('root ::= "a"{1' + "0" * 60_000 + "}"),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", [*share_of(HOSTILE, 4), *share_of(REFUSED, 4)])
def test_hostile_grammars_compile_in_bounded_time(name: str) -> None:
    with within(8):  # 0.01 to 0.8 s; anything quadratic would take minutes
        if name in HOSTILE:
            automaton = HOSTILE[name]()
            assert automaton.configs.start is not automaton.configs.dead
        else:
            with pytest.raises(RequestError):
                REFUSED[name]()


@pytest.mark.faults
@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "a" | "a" root root',
        'root ::= ("a"? "a"?){0,60}',
        'root ::= ("a"* "a"*)* "b"',
        'root ::= x x x x "b"\nx ::= "a" x | "a" root | "a"',
    ],
)
def test_ambiguity_does_not_explode(grammar: str) -> None:
    automaton = compile_rules(parse_gbnf(grammar))
    config = automaton.configs.start
    with within(10):
        for _ in range(100):
            config = automaton.configs.read(config, bytes([automaton.network.class_of[97]]))
            assert config is not automaton.configs.dead
        assert len(config.items) < 20_000


def test_too_much_ambiguity_is_an_error() -> None:
    parts = tuple(Sequence((Repeat(A), Text(f"{i}"))) for i in range(12_000))
    with pytest.raises(RequestError, match="too ambiguous"):
        compile_rules(Rules({"root": Choice(parts)}))


def test_right_recursion_and_lists_keep_the_stack_flat() -> None:
    automaton = compile_rules(parse_gbnf('root ::= "a" root | x\nx ::= "b" x | "c"'))
    class_of = automaton.network.class_of
    configs = {
        automaton.configs.read(automaton.configs.start, bytes([class_of[97]] * n)) for n in range(1, 50)
    }
    assert len(configs) <= 2
    nested = compile_rules(parse_gbnf('root ::= "[" (root ("," root)*)? "]"'))
    data = b"[[],[],[],[]".translate(nested.network.class_of)
    configs = {nested.configs.read(nested.configs.start, data[:n]) for n in (5, 8, 11)}
    assert len(configs) == 1, "a closed rule stays on the stack"


def test_nested_rules_have_a_depth_limit() -> None:
    """Limits long chains of rules, whose recursive deallocation would overflow Pyodide's stack."""
    automaton = compile_rules(parse_gbnf('root ::= "[" root? "]"'))
    configs, class_of = automaton.configs, automaton.network.class_of
    opened = configs.read(configs.start, (b"[" * (MAX_DEPTH - 2)).translate(class_of))
    assert configs.read(opened, (b"]" * (MAX_DEPTH - 2)).translate(class_of)).complete
    with pytest.raises(RequestError, match="nests the grammar's rules deeper than 1,000; write lists as"):
        configs.read(opened, b"[[[[".translate(class_of))


def test_tail_recursion_has_no_depth() -> None:
    automaton = compile_rules(parse_gbnf('root ::= "a" ("," root)?'))
    configs, class_of = automaton.configs, automaton.network.class_of
    assert configs.read(configs.start, (b"a," * 5000 + b"a").translate(class_of)).complete
