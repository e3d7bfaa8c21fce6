"""GBNF against llama.cpp itself, token by token, and the errors of broken grammars."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.text.grammar_cases import CASES, Case, FakeTokenizer, split_utf8

from camelid.errors import RequestError
from camelid.text.grammar.automaton import compile_rules
from camelid.text.grammar.gbnf import parse_gbnf
from camelid.text.grammar.matcher import Matcher
from camelid.text.grammar.rules import Choice, Ref, Repeat, Sequence, Text, Tokens
from camelid.text.grammar.trie import TokenTable

needs_llama_cpp = pytest.mark.skipif(not find_spec("llama_cpp"), reason="no llama.cpp wheel: `make rivals`")
# llama.cpp keeps every parse of a text: fewer steps, or none.
SLOW_THERE = {"ambiguous": 5}
UNCOMPARED = {
    "empty repeats",
    *(case.name for case in CASES if case.tokens),
}  # tokens missing in GPT-2
N_CANDIDATES = 1500


@dataclass
class Llama:
    """llama.cpp's grammar sampler over one vocabulary."""

    api: Any
    vocab: Any
    tokenizer: FakeTokenizer
    table: TokenTable

    def sampler(self, grammar: str) -> Any:
        return self.api.llama_sampler_init_grammar(self.vocab, grammar.encode(), b"root")

    def allowed(self, sampler: Any, token_ids: list[int]) -> set[int]:
        """The ids that the sampler allows."""
        data = (self.api.llama_token_data * len(token_ids))(*((i, 0.0, 0.0) for i in token_ids))
        array = self.api.llama_token_data_array(data, len(token_ids), -1, False)
        self.api.llama_sampler_apply(sampler, ctypes.byref(array))
        return {item.id for item in data if item.logit == 0.0}


def piece(api: Any, vocab: Any, token_id: int) -> bytes:
    buffer = ctypes.create_string_buffer(256)
    size = api.llama_token_to_piece(vocab, token_id, buffer, 256, 0, True)
    return buffer.raw[: max(size, 0)]


@pytest.fixture(scope="module")
def llama(shared: Path) -> Iterator[Llama]:
    api: Any = import_module("llama_cpp")
    silent = api.llama_log_callback(lambda *_: None)
    api.llama_log_set(silent, ctypes.c_void_p(0))
    params = api.llama_model_default_params()
    params.vocab_only = True
    model = api.llama_model_load_from_file(str(shared / "data/vocab/gpt-2.gguf").encode(), params)
    vocab = api.llama_model_get_vocab(model)
    n_tokens = api.llama_vocab_n_tokens(vocab)
    eos = frozenset(i for i in range(n_tokens) if api.llama_vocab_is_eog(vocab, i))
    tokenizer = FakeTokenizer([piece(api, vocab, i) for i in range(n_tokens)], eos, eos)
    yield Llama(api, vocab, tokenizer, TokenTable.of(tokenizer))
    api.llama_model_free(model)
    # llama.cpp would call `silent` after its deallocation.
    api.llama_log_set(ctypes.cast(0, api.llama_log_callback), ctypes.c_void_p(0))


def bits(mask: bytes) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little").astype(bool)


def is_compared(data: bytes, case: Case) -> bool:
    """False for inputs on which llama.cpp differs: it ends a token's text at a NUL, does not check
    continuation bytes, and refuses a token that ends within a character where any token is allowed.
    """
    part = split_utf8(data)[1]
    return b"\0" not in data and (part == b"" if "<[" in case.grammar else part is not None)


def compare(llama: Llama, case: Case, rng: random.Random, n_steps: int) -> None:
    """Walks at random once; compares both masks at every step, over a sample and the tokens that we allow."""
    matcher, sampler = (
        Matcher(compile_rules(parse_gbnf(case.grammar)), llama.table),
        llama.sampler(case.grammar),
    )
    tokens, pending = llama.tokenizer.tokens, b""
    for _ in range(n_steps):
        ours = set(np.flatnonzero(bits(matcher.mask())).tolist())
        drawn = {
            *rng.sample(range(len(tokens)), N_CANDIDATES),
            *rng.sample(sorted(ours), min(len(ours), 300)),
        }
        sound = [i for i in drawn if is_compared(pending + tokens[i], case)]
        theirs = llama.allowed(sampler, sound)
        assert ours.intersection(sound) == theirs, (case.name, pending)
        text = sorted(theirs - llama.tokenizer.eos_ids)
        if not text:
            break
        token_id = min(rng.sample(text, min(len(text), 4)), key=lambda i: len(tokens[i]))
        assert matcher.accept(token_id)
        llama.api.llama_sampler_accept(sampler, token_id)
        pending = split_utf8(pending + tokens[token_id])[1] or b""
    llama.api.llama_sampler_free(sampler)


@needs_llama_cpp
@pytest.mark.conformance
@pytest.mark.parametrize("case", [case for case in CASES if case.name not in UNCOMPARED], ids=str)
def test_masks_equal_llama_cpps(case: Case, llama: Llama) -> None:
    for seed in range(3):
        compare(llama, case, random.Random(seed), SLOW_THERE.get(case.name, 10))


ERRORS = {
    'root ::= "a" )': (1, 14, "closes nothing"),
    'root ::= ("a"': (1, 10, "never closed"),
    'root ::= ("a"\n "b"\n': (1, 10, "never closed"),
    "root ::= [a": (1, 10, "never closed"),
    'root ::= "a': (1, 10, "never closed"),
    "root ::= *": (1, 10, "nothing to repeat"),
    'root ::= "a" | + "b"': (1, 16, "nothing to repeat"),
    'root ::= ({2} "b")': (1, 11, "nothing to repeat"),
    "root ::= a_b\na ::= a": (1, 11, "unexpected '_'"),
    'x ::= "a"': (1, 10, "no rule `root`"),
    "": (1, 1, "no rule `root`"),
    'root ::= "a"\n  y ::= z\n': (2, 9, "no rule 'z'"),
    "root ::= <think>": (1, 10, "'<think>' is not one token"),
    "root ::= <think": (1, 10, "expected a token"),
    "root ::= <[x]>": (1, 10, "expected a token"),
    "root ::= <[12345678901]>": (1, 10, "expected a token"),
    'root ::= !"a"': (1, 11, "expected a token"),
    'root = "a"': (1, 6, "expected `::=`"),
    '::= "a"': (1, 1, "expected the name of a rule"),
    'root ::= "a"\n "b"': (2, 2, "expected the name of a rule"),
    'root ::= "a" ::= "b"': (1, 14, "unexpected ':'"),
    r'root ::= "\q"': (1, 11, "expected an escape"),
    r'root ::= "\x4"': (1, 11, "expected an escape"),
    r"root ::= [\U00110000]": (1, 11, "U+110000"),
    r"root ::= [\ud800]": (1, 11, "U+D800"),
    'root ::= "\ud800"': (1, 11, "surrogate"),
    "root ::= [z-a]": (1, 11, "swap"),
    "root ::= []": (1, 10, "an empty class"),
    "root ::= [^]": (1, 10, "an empty class"),
    'root ::= "a"{3,2}': (1, 13, "swap"),
    'root ::= "a"{': (1, 14, "expected a number"),
    'root ::= "a"{,2}': (1, 14, "expected a number"),
    'root ::= "a"{1.5}': (1, 15, "expected `}`"),
    'root ::= "a"{1234567890}': (1, 14, "at most nine digits"),
}


@pytest.mark.faults
@pytest.mark.parametrize("grammar", ERRORS)
def test_errors_state_the_place(grammar: str) -> None:
    line, column, words = ERRORS[grammar]
    with pytest.raises(RequestError) as caught:
        parse_gbnf(grammar)
    error = caught.value
    assert (error.field, error.line, error.column) == ("grammar", line, column)
    assert words in error.message
    assert f"line {line}, column {column}" in error.message


def test_expressions() -> None:
    found = parse_gbnf('root ::= "a" x* | (<b> !<[7]>){2,3}\nx ::= ("é")', {"<b>": 5}.get).rules
    tokens = Sequence((Tokens(frozenset({5})), Tokens(frozenset({7}), True)))
    assert found["root"] == Choice((Sequence((Text("a"), Repeat(Ref("x")))), Repeat(tokens, 2, 3)))
    assert found["x"] == Text("é")


def test_hostile_texts_raise_only_grammar_errors() -> None:
    rng, alphabet = random.Random(5), 'root ::="a"[b-]^(){}1,*+?|<>!.#\\x\n é'
    for case in CASES:
        for _ in range(60):
            at = rng.randrange(len(case.grammar))
            text = case.grammar[:at] + rng.choice(alphabet) + case.grammar[at + rng.randrange(3) :]
            try:
                compile_rules(parse_gbnf(text, case.tokens.get), max_states=20_000)
            except RequestError as error:
                assert error.field == "grammar"
