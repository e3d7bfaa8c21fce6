"""Regexes and choices as grammars, against Python's `re`."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from tests.support.processor_time import within

from camelid.errors import RequestError
from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.choice import rules_of_choice
from camelid.text.grammar.dfa import dfa_of, either, intersect, lengths, longest, shortest, without, words
from camelid.text.grammar.regex import rules_of_regex, searched

ATOMS = [
    r"a",
    r"b",
    r"c",
    r"1",
    r"é",
    r".",
    r"\d",
    r"\w",
    r"\s",
    r"\W",
    r"\D",
    r"\S",
    r"[a-c]",
    r"[^ab]",
    r"\.",
    r"[\d-]",
    r"[^\W\d]",
    r"\n",
    r"[]a]",
    r"x",
    r"{",
    r"\x61",
    r"\u00e9",
    r"[^]a]",
    r"[a-]",
]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,3}", "{,2}", "{1,}", "*?", "+?", "??", "{0}", "{0,1}?"]
CHARACTERS = "aabbcc11 .xé-\n{]日_"


def pattern(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth > 3 or kind < 0.35:
        return rng.choice(ATOMS)
    if kind < 0.6:
        return pattern(rng, depth + 1) + pattern(rng, depth + 1)
    if kind < 0.75:
        return f"({rng.choice(['', '?:'])}{pattern(rng, depth + 1)}|{pattern(rng, depth + 1)})"
    return f"(?:{pattern(rng, depth + 1)}){rng.choice(QUANTIFIERS)}"


def text(rng: random.Random) -> str:
    return "".join(rng.choices(CHARACTERS, k=rng.randrange(8)))


def matches(automaton: Automaton, written: str) -> bool:
    data = written.encode().translate(automaton.network.class_of)
    return automaton.configs.read(automaton.configs.start, data).complete


def reads_alike(source: str, written: str) -> bool:
    """True if the dialects agree: classes and the dot are narrow outside ASCII, the dot also at \\r."""
    return written.isascii() or not re.search(r"\\[dDwWsS]", source)


@pytest.mark.conformance
def test_whole_texts_match_like_re() -> None:
    rng = random.Random(1)
    n_matched = 0
    for _ in range(600):
        source = pattern(rng)
        automaton, expected = compile_rules(rules_of_regex(source)), re.compile(source)
        for written in (text(rng) for _ in range(15)):
            found, wanted = matches(automaton, written), bool(expected.fullmatch(written))
            assert found <= wanted, (source, written)
            assert found == wanted or not reads_alike(source, written), (source, written)
            n_matched += found
    assert n_matched > 500


@pytest.mark.conformance
def test_searches_and_their_complements_agree_with_re() -> None:
    rng = random.Random(2)
    for _ in range(120):
        source = rng.choice(["", "^"]) + pattern(rng) + rng.choice(["", "$"])
        narrow, wide = dfa_of(searched(source)), without(dfa_of(searched(source, wide=True)))
        expected = re.compile(source)
        for written in (text(rng) for _ in range(15)):
            found = bool(expected.search(written))
            assert narrow.accepts(written) <= found, (source, written)
            assert wide.accepts(written) <= (not found), (source, written)
            assert (
                narrow.accepts(written) != wide.accepts(written) or not written.isascii() or "\n" in written
            )


@pytest.mark.conformance
def test_automata_are_an_algebra_of_sets() -> None:
    rng = random.Random(3)
    for _ in range(200):
        left, right = (dfa_of(rules_of_regex(pattern(rng, 1)).rules["root"]) for _ in range(2))
        least = rng.randrange(3)
        most = rng.choice([None, least, least + 2])
        both, any_of, counted = intersect(left, right), either(left, right), lengths(least, most)
        for written in (text(rng) for _ in range(20)):
            one, other = left.accepts(written), right.accepts(written)
            assert both.accepts(written) == (one and other)
            assert any_of.accepts(written) == (one or other)
            assert without(left).accepts(written) != one
            assert counted.accepts(written) == (
                least <= len(written) and (most is None or len(written) <= most)
            )
            if one:
                assert shortest(left) <= len(written) <= (longest(left) or 99)


CLASSES = [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", r"[^\s\w]", r"[^\d]", r"[^\W]"]


@pytest.mark.conformance
@pytest.mark.parametrize("source", CLASSES)
def test_every_code_point_of_a_class_agrees_with_re(source: str) -> None:
    """Narrow sets are subsets of `re`'s class, wide sets supersets, ASCII is exact; unassigned code points
    may differ.
    """
    narrow, wide = dfa_of(rules_of_regex(source).rules["root"]), dfa_of(searched(f"^{source}$", wide=True))
    expected = re.compile(source)
    for code in (
        *range(0x3000),
        *range(0x3000, 0xD800, 7),
        *range(0xE000, 0x11000, 5),
        *range(0x11000, 0x110000, 99),
    ):
        found = bool(expected.fullmatch(chr(code)))
        assert narrow.accepts(chr(code)) <= found <= wide.accepts(chr(code)), hex(code)
        assert (
            code >= 0x80
            or source == "."
            or narrow.accepts(chr(code)) == found
            or chr(code) in "\x1c\x1d\x1e\x1f"
        )


# Pattern -> words and position of its error.
REFUSED = {
    "(?=a)": ("lookahead", 0),
    "a(?<!b)": ("lookbehind", 1),
    "(?>a)": ("atomic", 0),
    "(?i)a": ("flag", 0),
    r"(a)\1": ("backreference", 3),
    "(?P=n)": ("backreference", 0),
    "a++": ("possessive", 1),
    "a**": ("follows a quantifier", 2),
    "*a": ("nothing to repeat", 0),
    "{3}": ("nothing to repeat", 0),
    "a{3,2}": ("above its maximum", 1),
    "a{1,1000000}": ("above 2000", 1),
    "a^b": ("only at the", 1),
    "a$b": ("only at the", 1),
    "(a$)": ("only at the", 2),
    "(a": ("never closed", 0),
    "a)": ("closes no group", 1),
    "[a": ("never closed", 0),
    "[z-a]": ("ends before it begins", 1),
    r"[\d-z]": ("bound a range", 1),
    r"\p{L}": ("property", 0),
    r"\bA": ("boundary", 0),
    r"\x4": ("hexadecimal", 0),
    r"\ud800": ("not a character", 0),
    "\\": ("not an escape", 0),
    r"\q": ("not an escape", 0),
    "(" * 10_000: ("nest deeper", 41),
    "((a{90}){90}){90}": ("more than 20000", 17),
    "\udc00": ("surrogate", 0),
    "a{" + "9" * 5000 + "}": ("above 2000", 1),
}


@pytest.mark.parametrize("source", REFUSED, ids=lambda source: source[:12].encode("unicode_escape").decode())
def test_irregular_or_oversized_patterns_are_refused_with_their_place(source: str) -> None:
    words_of, position = REFUSED[source]
    with pytest.raises(RequestError, match=words_of) as caught:
        rules_of_regex(source)
    assert caught.value.facts["position"] == position
    assert len(caught.value.message) < 300


LARGE: dict[str, Callable[[], Automaton]] = {
    "long text": lambda: compile_rules(rules_of_regex("A" * 10_000)),
    "many ways": lambda: compile_rules(rules_of_regex("(a?){60}b|" + "|".join("xyz" * 300))),
    "nested stars": lambda: compile_rules(rules_of_regex("((((a*)*)*)*)*b")),
    "options": lambda: compile_rules(rules_of_choice([f"option {i}" for i in range(3_000)])),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_patterns_compile_quickly(name: str) -> None:
    with within(8):  # 0.05 to 1 s
        assert not matches(LARGE[name](), "a" * 2_000 + "!")


def test_exponential_determinization_is_refused() -> None:
    with pytest.raises(RequestError, match="more than 4000 states"):
        dfa_of(searched("[ab]*a[ab]{14}$"))


def test_a_choice_matches_whole_options() -> None:
    options = ["yes", "yes please", "no", "", "é😀", "yes"]
    automaton = compile_rules(rules_of_choice(options))
    assert all(matches(automaton, option) for option in options)
    assert not any(matches(automaton, written) for written in ("y", "yes ", "noo", "é"))


@pytest.mark.parametrize("options", [[], "text", [1], ["\ud800"], ["a"] * 10_001, ["x" * 200_000]])
def test_an_empty_or_oversized_choice_is_refused(options: list[str]) -> None:
    with pytest.raises(RequestError):
        rules_of_choice(options)


def test_options_are_a_trie() -> None:
    trie = words(["ab", "abc", "b"])
    assert [written for written in ("", "a", "ab", "abc", "b", "bc") if trie.accepts(written)] == [
        "ab",
        "abc",
        "b",
    ]
