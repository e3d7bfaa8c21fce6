"""JSON schemas as grammars: `jsonschema` judges the accepted texts; known restrictions are listed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.schema_cases import CASES, Case
from tests.support.text.schema_instances import InstanceMaker
from tests.support.text.schema_made import FORMATS, SchemaMaker
from tests.support.text.schema_refused import REFUSED
from tests.support.text.schema_walks import oracle, run, small_tokenizer

from camelid.errors import RequestError
from camelid.text.grammar.automaton import Automaton, compile_rules
from camelid.text.grammar.json_schema import rules_of_schema
from camelid.text.grammar.json_text import rules_of_json
from camelid.text.grammar.json_types.formats import FORMATS as KNOWN_FORMATS
from camelid.text.grammar.json_types.formats import format_dfa


def matches(automaton: Automaton, text: str) -> bool:
    data = text.encode().translate(automaton.network.class_of)
    return automaton.configs.read(automaton.configs.start, data).complete


@lru_cache(maxsize=1)
def compiled(schema_text: str) -> Automaton:
    return compile_rules(rules_of_schema(schema_text))


def is_valid(schema: Any, text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return oracle(schema).is_valid(value)


@pytest.mark.conformance
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_keyword_matches_and_refuses(case: Case) -> None:
    automaton = compiled(json.dumps(case.schema))
    assert [text for text in case.matched if not matches(automaton, text)] == []
    assert [text for text in (*case.refused, *case.narrow) if matches(automaton, text)] == []
    assert [text for text in case.matched if not is_valid(case.schema, text)] == [], (
        "the oracle refuses these"
    )


@pytest.mark.conformance
def test_refused_texts_are_no_instances() -> None:
    """The oracle checks neither int32, OpenAPI's format, nor lone surrogates, which are no characters."""
    wrong = [
        (case.name, text)
        for case in CASES
        for text in case.refused
        if is_valid(case.schema, text)
        and case.name not in {"int32", "lengths", "multiple of 300", "listed names"}
    ]
    assert wrong == []


@pytest.mark.conformance
@pytest.mark.parametrize("n", share_of([35, 70]))
def test_random_walks_end_in_instances(n: int) -> None:
    """`python -m tests.support.text.schema_walks` walks all 5,000."""
    tally = run(n, small_tokenizer(), seed=11, n_walks=1)
    assert tally.wrong == []
    assert sum(tally.refused.values()) < 0.15 * tally.schemas
    assert tally.walks > 0.65 * n
    assert tally.endless < 0.06 * tally.walks


@pytest.mark.conformance
@pytest.mark.parametrize("n", share_of([35, 70]))
def test_instances_in_the_schemas_order_match(n: int) -> None:
    rng = random.Random(8)
    n_judged = n_missed = 0
    for _ in range(n):
        schema = SchemaMaker(rng, odd=0).document()
        try:
            automaton = compile_rules(rules_of_schema(schema))
        except RequestError as error:
            automaton = None
            impossible = "no value" in error.message
        for value in (InstanceMaker(rng, schema).value(schema) for _ in range(6)):
            if not is_valid(schema, json.dumps(value)) or (automaton is None and not impossible):
                continue
            n_judged += 1
            n_missed += automaton is None or not all(matches(automaton, text) for text in spellings(value))
    assert n_judged > 1.72 * n
    assert n_missed <= 0.05 * n_judged  # keys of two schemas at once, numbers beyond the digit limits


def spellings(value: Any) -> list[str]:
    compact = json.dumps(value, separators=(",", ":"))
    return [compact, json.dumps(value), json.dumps(value, indent=2), json.dumps(value, ensure_ascii=False)]


@pytest.mark.conformance
@pytest.mark.parametrize("name", KNOWN_FORMATS)
def test_texts_that_match_a_format_are_valid(name: str) -> None:
    rng, dfa = random.Random(3), format_dfa(name)
    assert name in oracle(True).format_checker.checkers
    for _ in range(400):
        state, text = 0, ""
        while (edges := dfa.edges[state]) and (state not in dfa.final or rng.random() < 0.8):
            first, last, state = rng.choice(edges)
            text += chr(rng.randint(first, min(last, first + 40)))
        assert is_valid({"format": name}, json.dumps(text)), text
    assert [text for text in FORMATS[name] if not dfa.accepts(text)] == []


@pytest.mark.parametrize(("schema", "keyword", "pointer"), REFUSED, ids=lambda value: str(value)[:40])
def test_unsupported_keywords_are_named_with_their_place(schema: Any, keyword: str, pointer: str) -> None:
    with pytest.raises(RequestError) as caught:
        rules_of_schema(schema)
    assert caught.value.facts == {"field": "json_schema", "keyword": keyword, "pointer": pointer}


def nested(n: int) -> Any:
    schema: Any = True
    for _ in range(n):
        schema = {"items": schema}
    return schema


def chained(n: int) -> Any:
    return {"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(n)}}


HOSTILE: dict[str, Callable[[], Any]] = {
    "deep value": lambda: nested(100_000),
    "deep text": lambda: '{"items":' * 100_000,
    "deep list": lambda: "[" * 100_000,
    "wide": lambda: {"enum": list(range(200_000))},
    "chain": lambda: chained(5_000),
    "many alternatives": lambda: {"anyOf": [{"minimum": i} for i in range(5_000)]},
    "product": lambda: {"allOf": [{"anyOf": [{"minimum": i} for i in range(16)]}] * 16},
    "digits": lambda: '{"minimum": ' + "1" * 5_000 + "}",
    "integer": lambda: {"type": "integer", "minimum": 10**5000},
    "group": lambda: {"type": "string", "pattern": "(" * 10_000},
    "not JSON": lambda: '{"a"',
    "key twice": lambda: '{"type":"null","type":"string"}',
    "NaN": lambda: '{"minimum": NaN}',
    "surrogate": lambda: '{"const": "\\ud800"}',
    "surrogate key": lambda: {"properties": {"\udc00": True}},
    "tuple": lambda: {"enum": (1, 2)},
    "key": lambda: {1: 2},
    "list": list,
    "nothing": lambda: {"type": "string", "minLength": 3, "maxLength": 2},
    "false": lambda: False,
    "needs itself": lambda: {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "long pattern": lambda: {"type": "string", "pattern": "A" * 10_000},
    "many keys": lambda: {"type": "object", "properties": {f"k{i}": {} for i in range(20_000)}},
}


@pytest.mark.faults
@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_beyond_the_limits_is_refused_quickly(name: str) -> None:
    schema = HOSTILE[name]()
    with within(5), pytest.raises(RequestError, match=r"json_schema: |grammar "):  # 0.0 to 0.5 s
        rules_of_schema(schema)


LARGE = {
    "items": {"type": "array", "minItems": 10**9},
    "length": {"type": "string", "maxLength": 10**9},
    "both": {"type": "string", "minLength": 10**12, "maxLength": 10**15},
    "keys": {"type": "object", "maxProperties": 10**6},
    "tiny bound": {"type": "number", "minimum": 5e-300},
    "bound": {"type": "number", "maximum": 10**350},
    "large values": {"enum": [10**350, 1e300], "multipleOf": 0.5},
    "step": {"type": "integer", "multipleOf": 10**9},
    "properties": {"type": "object", "properties": {f"key {i}": {"type": "null"} for i in range(500)}},
}


@pytest.mark.parametrize("name", LARGE)
def test_large_counts_cost_little(name: str) -> None:
    with within(5):  # 0.1 to 0.5 s
        automaton = compile_rules(rules_of_schema(LARGE[name]))
        assert not matches(automaton, "?")


MANY: dict[str, Any] = {
    "choices": {"enum": [f"choice {i}" for i in range(20_000)]},
    "dependent keys": {
        "properties": {f"k{i}": {} for i in range(3000)},
        "dependentRequired": {f"k{i}": [f"k{i + 1}"] for i in range(3000)},
    },
}


@pytest.mark.parametrize("name", MANY)
def test_many_choices_and_keys_take_linear_time(name: str) -> None:
    with within(5):  # 0.3 to 2 s
        rules_of_schema(MANY[name])


def test_open_objects_follow_the_specification() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    text = '{"a": null, "b": 1}'
    assert not matches(compile_rules(rules_of_schema(schema)), text)
    assert matches(compile_rules(rules_of_schema(schema, open_objects=True)), text)


@pytest.mark.parametrize(("any_value", "text"), [(False, '{"a": [1, "é\\u00e9", {}]}'), (True, "[1, null]")])
def test_any_json(any_value: bool, text: str) -> None:
    automaton = compile_rules(rules_of_json(any_value=any_value))
    assert matches(automaton, text)
    assert matches(automaton, "{}")
    assert matches(automaton, "1") == any_value
    assert not matches(automaton, text[:-1])
