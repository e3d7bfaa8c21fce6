"""Answers constrained by a grammar, through LLM, on the reference and on webgpu."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.parity.adapters import need_driver

import camelid
from camelid.api.llm import LLM
from camelid.errors import PlanError, RequestError
from camelid.text.grammar.automaton import compile_rules
from camelid.text.grammar.choice import rules_of_choice
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.trie import TokenTable

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "n": {"type": "integer", "maximum": 99}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
GBNF = 'root ::= "yes" | "no" (" " [a-c]{2,4})?'


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=5, hidden=64, head_dim=16, ffn=96)
    return place


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with camelid.load(path, backend="reference", context=256) as loaded:
        yield loaded


def is_json(text: str) -> bool:
    found = json.loads(text)
    return set(found) == {"name", "n"} and len(found["name"]) <= 6 and found["n"] <= 99


WAYS: dict[str, tuple[dict[str, Any], Any]] = {
    "grammar": ({"grammar": GBNF}, re.compile("yes|no( [a-c]{2,4})?").fullmatch),
    "regex": ({"regex": "[a-f]{3}-[0-9]{2,5}"}, re.compile("[a-f]{3}-[0-9]{2,5}").fullmatch),
    "choice": ({"choice": ["red", "green", "blue"]}, {"red", "green", "blue"}.__contains__),
    "json_schema": ({"json_schema": SCHEMA}, is_json),
    "schema as text": ({"json_schema": json.dumps(SCHEMA)}, is_json),
    "response_format": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, is_json,
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_match_their_grammar(llm: LLM, way: str, temperature: float) -> None:
    options, fits = WAYS[way]
    before = llm.counters.redrawn_rows
    for seed in range(4):
        done = llm.generate("the llama", temperature=temperature, seed=seed, max_tokens=120, **options)
        assert done.finish_reason == "stop"
        assert fits(done.text), done.text
    assert llm.counters.redrawn_rows > before, "the unguided answer already matches"
    assert llm.is_idle


def test_any_json_is_a_json_prefix(llm: LLM) -> None:
    done = llm.generate("x", response_format={"type": "json_object"}, max_tokens=40, seed=1)
    assert done.text.startswith("{")


def test_response_format_text_sets_no_constraint(llm: LLM) -> None:
    plain = llm.generate("the llama", max_tokens=9, seed=3)
    guided = llm.counters.guided_rows
    assert (
        llm.generate("the llama", max_tokens=9, seed=3, response_format={"type": "text"}).text == plain.text
    )
    assert llm.counters.guided_rows == guided


def test_a_grammar_that_allows_every_token_changes_nothing(llm: LLM) -> None:
    """Mask, then chain: where the mask allows every token, the draws equal the unguided draws."""
    for seed in range(6):
        plain = llm.generate("the llama", max_tokens=12, seed=seed)
        if not any(map(llm.tokenizer.is_control, plain.token_ids)) and "\ufffd" not in plain.text:
            anything = llm.generate("the llama", max_tokens=12, seed=seed, grammar="root ::= .*")
            assert anything.token_ids == plain.token_ids


def test_draws_equal_those_of_masked_logits(llm: LLM) -> None:
    """The definition, from the model's logits after the tokens so far."""
    words = ["green", "grey", "blue", "river"]
    tokens = TokenTable.of(llm.tokenizer)
    done = llm.generate("the llama", choice=words, temperature=0, max_tokens=20)
    matcher = Matcher(compile_rules(rules_of_choice(words)), tokens)
    token_ids = llm.tokenize("the llama")
    for token_id in done.token_ids:
        logits = np.array(llm.logits(token_ids))[-1]
        allowed = np.unpackbits(np.frombuffer(matcher.mask(), np.uint8), bitorder="little")
        assert token_id == int(np.argmax(np.where(allowed[: len(logits)] == 1, logits, -np.inf)))
        assert matcher.accept(token_id)
        token_ids.append(token_id)
    assert matcher.is_complete


def test_a_batch_changes_nothing(llm: LLM) -> None:
    """Guided and plain requests in one batch, each as alone."""
    asked: list[dict[str, Any]] = [
        {"max_tokens": 25, "seed": 1}, {"json_schema": SCHEMA, "max_tokens": 90, "seed": 2},
        {"choice": ["red", "green"], "seed": 3}, {"max_tokens": 11, "seed": 4},
    ]  # fmt: skip
    alone = [llm.generate("the llama", **options).token_ids for options in asked]

    async def together() -> list[list[int]]:
        done = await asyncio.gather(*(llm.agenerate("the llama", **options) for options in asked))
        return [completion.token_ids for completion in done]

    assert asyncio.run(together()) == alone


def test_max_tokens_truncates_a_guided_answer(llm: LLM) -> None:
    done = llm.generate("x", json_schema=SCHEMA, max_tokens=3, seed=1)
    assert (done.finish_reason, done.usage.completion_tokens) == ("length", 3)


def test_a_prompt_of_one_token_can_be_guided(llm: LLM) -> None:
    assert llm.generate([5], choice=["red"]).text == "red"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regex": "a", "choice": ["a"]}, "regex, choice are set, expected at most one"),
        ({"grammar": 5}, "grammar is 5, expected GBNF text"),
        ({"grammar": "root ::= ["}, "line 1"),
        ({"regex": ["a"]}, "regex is .'a'., expected a pattern"),
        ({"choice": "red"}, "choice is .*expected a list of texts"),
        ({"choice": []}, "choice is .., expected a list of texts"),
        ({"json_schema": 7}, "json_schema is 7, expected a schema"),
        ({"json_schema": {"type": "string", "contains": {}}}, "contains"),
        ({"json_schema": object()}, "json_schema is not a JSON value"),
        ({"response_format": {"type": "xml"}}, "response_format is .*expected"),
        ({"response_format": "json"}, "response_format is 'json', expected"),
        ({"choice": ["a"], "ignore_eos": True}, "ignore_eos continues past the end of a grammar"),
    ],
)
def test_unsupported_constraints_are_refused(llm: LLM, options: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        llm.generate("a", **options)
    assert llm.is_idle


def test_endless_nesting_is_refused_with_a_short_message(llm: LLM) -> None:
    deep: Any = []
    for _ in range(3000):
        deep = [deep]
    prompt: Any = [{"role": "user", "content": "hi"}]
    asked = ("response_format", "json_schema", "choice", "stop", "variables", "tools")
    for name in (*asked, "seed", "temperature", "max_tokens"):
        with pytest.raises(RequestError):
            llm.generate(prompt, **{name: deep})
    for wrong in (None, 5, b"a"):
        with pytest.raises(RequestError, match="expected text, token ids or messages"):
            llm.generate(wrong)  # type: ignore[arg-type]
    assert llm.is_idle


def test_a_direct_submit_needs_the_program(path: Path) -> None:
    with (
        camelid.load(path, backend="reference", context=64) as fresh,
        pytest.raises(PlanError, match="needs program 'guided', which is not compiled"),
    ):
        fresh.submit("a", choice=["b"])


@pytest.mark.parity
def test_webgpu_follows_grammars_too(path: Path, llm: LLM) -> None:
    with camelid.load(path, backend="webgpu", adapter=need_driver("llvmpipe"), context=256) as device:
        for way, (options, _) in WAYS.items():
            asked = {**options, "temperature": 0, "max_tokens": 90}
            assert device.generate("the llama", **asked).text == llm.generate("the llama", **asked).text, way
        assert device.counters.redrawn_rows > 0
