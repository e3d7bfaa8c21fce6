"""Sampling options: validated, named, never dropped in silence; the options that a device's chain
supports.
"""

from __future__ import annotations

from dataclasses import fields
from math import inf, nan
from typing import Any

import pytest

from camelid.errors import ModelFormatError, RequestError
from camelid.formats.gguf import Gguf
from camelid.plan.step import StepSampling
from camelid.requests.build import check_names
from camelid.requests.file_defaults import file_defaults
from camelid.sampling.options import SamplingOptions
from camelid.sampling.params import CHECKS, DEFAULT_ORDER, ORDERS, SamplingParams

# llama.cpp's common/common.h, by its names.
LLAMA_CPP = {
    "temp": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typ_p": 1.0, "top_n_sigma": -1.0,
    "xtc_probability": 0.0, "xtc_threshold": 0.1, "penalty_last_n": 64, "penalty_repeat": 1.0,
    "penalty_freq": 0.0, "penalty_present": 0.0, "dry_multiplier": 0.0, "dry_base": 1.75,
    "dry_allowed_length": 2, "dry_penalty_last_n": 64, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0,
    "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "min_keep": 0,
    "dry_sequence_breakers": ("\n", ":", '"', "*"),
}  # fmt: skip
OURS = {"temp": "temperature", "typ_p": "typical_p", "penalty_last_n": "repeat_last_n",
        "penalty_repeat": "repeat_penalty", "penalty_freq": "frequency_penalty",
        "penalty_present": "presence_penalty"}  # fmt: skip


def made(**options: object) -> SamplingParams:
    return SamplingParams.from_options(options)


def test_defaults_equal_llama_cpps() -> None:
    params = SamplingParams()
    assert {name: getattr(params, OURS.get(name, name)) for name in LLAMA_CPP} == LLAMA_CPP


def test_every_option_has_a_field_a_check_and_a_public_name() -> None:
    names = {field.name for field in fields(SamplingParams)}
    assert names == CHECKS.keys() == set(SamplingOptions.__annotations__) == set(SamplingParams.names())


@pytest.mark.parametrize("name", ["top_kk", "n"])
def test_unknown_option_is_refused_with_the_known_names(name: str) -> None:
    with pytest.raises(RequestError, match=rf"'{name}' is .*; known: .*temperature, .*seed") as caught:
        check_names({"temperature": 1.0, name: 1})
    assert caught.value.field == name
    assert ("is not available in this version" in str(caught.value)) == (name == "n")


NO_NUMBER = ("1", True, None, nan, [1], 10**400)
SHARES = ("top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold")
WRONG: dict[str, tuple[object, ...]] = {
    "temperature": (-1, 1e-5, 101, inf, *NO_NUMBER),
    **dict.fromkeys(SHARES, (-0.1, 1.1, *NO_NUMBER)),
    "dynatemp_range": (-1, 101, *NO_NUMBER),
    "dynatemp_exponent": (-1, 101, *NO_NUMBER),
    "top_n_sigma": (-0.5, 101, *NO_NUMBER),
    "top_k": (-2, 1.5, 2**31, "1", True, None),
    "min_keep": (-1, 0.5, None, False),
    "repeat_penalty": (0, -1, 0.001, 101, *NO_NUMBER),
    "frequency_penalty": (101, -101, inf, *NO_NUMBER),
    "presence_penalty": (101, -101, inf, *NO_NUMBER),
    "repeat_last_n": (-2, 1.5, None),
    "dry_multiplier": (-1, 101, *NO_NUMBER),
    "dry_base": (0.9, 101, *NO_NUMBER),
    "dry_allowed_length": (-1, 1.5, None),
    "dry_penalty_last_n": (-2, 1.5, None),
    "dry_sequence_breakers": ("\n", [""], [1], ["x" * 41], ["x"] * 33, None),
    "mirostat": (-1, 3, True, "2", None),
    "mirostat_tau": (-1, 101, *NO_NUMBER),
    "mirostat_eta": (-1, 11, *NO_NUMBER),
    "logit_bias": (
        {-1: 1}, {"a": 1}, {1: 101}, {1: inf}, {1: nan}, {1: True}, {1: None}, {True: 1}, {1: 1, "1": 2},
        {2**40: 1}, [1], [[1, 2, 3]], "1+1", 5, None, dict.fromkeys(range(1025), 1.0), {"٣": 1},
    ),
    "order": ("topk", "top_q", ["top_k", "top_k"], ["mirostat", "top_k"], ["logit_bias"], [1], 5, None, ""),
    "logprobs": (-1, 21, 1.5, "1", None),
    "seed": (-1, 2**64, 1.5, "1", True),
}  # fmt: skip
WRONG["order"] = WRONG["order"][1:]


def test_every_option_has_invalid_cases() -> None:
    assert WRONG.keys() == CHECKS.keys()


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_value_out_of_range_is_refused_and_stated(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"^{name} is .*, expected") as caught:
        SamplingParams.from_options({name: value})
    assert caught.value.field == name
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        *(("temperature", v, v) for v in (0, 0.0, 0.01, 1, 100)),
        *((name, v, v) for name in SHARES for v in (0, 0.5, 1)),
        ("top_k", -1, -1), ("top_n_sigma", -1, -1), ("top_n_sigma", 0, 0), ("repeat_last_n", -1, -1),
        ("logit_bias", {5: 1, "6": -2.5, 7: False, 8: -inf}, ((5, 1.0), (6, -2.5), (7, -inf), (8, -inf))),
        ("logit_bias", [[5, 1], (6, False)], ((5, 1.0), (6, -inf))),
        ("logit_bias", {}, ()),
        ("dry_sequence_breakers", ["a", "\n"], ("a", "\n")),
        ("dry_sequence_breakers", [], ()),
        ("order", "default", DEFAULT_ORDER), ("order", "temperature-first", ORDERS["temperature-first"]),
        ("order", "top-k; TEMP ;typ_p", ("top_k", "temperature", "typical_p")),
        ("order", ["topk", "nucleus", "min-p"], ("top_k", "top_p", "min_p")), ("order", [], ()),
        ("logprobs", True, 1), ("logprobs", False, 0), ("logprobs", 20, 20),
        ("seed", None, None), ("seed", 2**64 - 1, 2**64 - 1),
    ],
)  # fmt: skip
def test_valid_values_are_normalized(name: str, value: object, kept: object) -> None:
    assert getattr(made(**{name: value}), name) == kept


def test_fields_set_directly_are_checked_too() -> None:
    with pytest.raises(RequestError, match="top_k is -5, expected"):
        SamplingParams(top_k=-5)


def test_fields_set_directly_are_normalized() -> None:
    given: dict[str, Any] = {"order": "temperature-first", "logit_bias": {5: 1}, "logprobs": True}
    assert SamplingParams(**given) == made(**given)
    assert SamplingParams(**given).chain == made(**given).chain


def test_seed_is_kept_or_drawn() -> None:
    assert [SamplingParams(seed=seed).seeded().seed for seed in (0, 7)] == [0, 7]
    drawn = {SamplingParams().seeded().seed for _ in range(4)}
    assert len(drawn) > 1
    assert all(seed is not None and 0 <= seed < 2**32 for seed in drawn)


def test_a_bias_of_a_token_beyond_the_vocabulary_is_refused() -> None:
    made(logit_bias={99: 1}).check_vocab(100)
    with pytest.raises(RequestError, match="logit_bias names token 100, outside the vocabulary of 100"):
        made(logit_bias={99: 1, 100: 1}).check_vocab(100)


CHAINS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ("top_k", "top_p", "min_p", "temperature")),
    ({"temperature": 1}, ("top_k", "top_p", "min_p")),
    ({"temperature": 0}, ("temperature",)),
    ({"temperature": 0, "repeat_penalty": 2}, ("penalties", "temperature")),
    ({"temperature": 0, "typical_p": 0.5}, ("top_k", "typical_p", "temperature")),
    ({"temperature": 0, "order": ["temperature", "xtc"], "xtc_probability": 1}, ("temperature",)),
    ({"temperature": 0, "dynatemp_range": 1}, ("top_k", "top_p", "min_p", "temperature")),
    ({"mirostat": 2, "repeat_penalty": 2, "logit_bias": {1: 1}}, ("logit_bias", "temperature", "mirostat")),
    ({"mirostat": 1, "order": "temperature-first"}, ("temperature", "top_k", "top_p", "min_p", "mirostat")),
    ({"order": "temperature-first"}, ("temperature", "top_k", "top_p", "min_p")),
    ({"order": []}, ()),
    ({"repeat_penalty": 1.1, "repeat_last_n": 0}, ("top_k", "top_p", "min_p", "temperature")),
    ({"xtc_probability": 0.5, "xtc_threshold": 0.51, "order": ["xtc"]}, ()),
    (
        {"repeat_penalty": 2, "dry_multiplier": 1, "top_n_sigma": 1, "typical_p": 0.9, "xtc_probability": 1},
        DEFAULT_ORDER,
    ),
]  # fmt: skip


# Other spellings that llama.cpp's --samplers accepts, and one with a dash and capitals.
SPELLINGS = {
    "typ_p": "typical_p", "typ": "typical_p", "typical": "typical_p", "typp": "typical_p",
    "temp": "temperature", "nucleus": "top_p", "topk": "top_k", "topp": "top_p", "minp": "min_p",
    "topnsigma": "top_n_sigma", "top_nsigma": "top_n_sigma", " Top-N-Sigma ": "top_n_sigma",
}  # fmt: skip


@pytest.mark.parametrize("word", SPELLINGS)
def test_samplers_have_several_spellings(word: str) -> None:
    assert made(order=[word]).order == made(order=word).order == (SPELLINGS[word],)


@pytest.mark.parametrize(("options", "chain"), CHAINS)
def test_chain_has_active_samplers_in_order(options: dict[str, Any], chain: tuple[str, ...]) -> None:
    assert made(**options).chain == chain


DEVICE: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({}, {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}),
    ({"temperature": 0}, {"temperature": 0.0}),
    ({"temperature": 0, "top_k": 0}, {"temperature": 0.0}),
    ({"temperature": 1, "top_k": 256, "min_p": 0}, {"temperature": 1.0, "top_k": 256, "top_p": 0.95}),
    ({"order": ["top_k"]}, {"temperature": 1.0, "top_k": 40}),
    ({"order": [], "logit_bias": {1: 2}}, {"temperature": 1.0, "biases": ((1, 2.0),)}),
    ({"order": ["penalties"], "repeat_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": -0.5},
     {"temperature": 1.0, "repeat_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": -0.5,
      "penalty_last_n": 64}),
    ({"top_k": 0, "top_p": 1, "min_p": 0.1}, {"temperature": 0.8, "min_p": 0.1}),
    ({"top_k": 257}, None),
    ({"top_k": 0}, None),  # top_p over the whole vocabulary
    ({"min_keep": 2}, None),
    ({"min_keep": 2, "min_p": 0}, None),
    ({"min_keep": 2, "top_p": 1}, None),
    ({"repeat_penalty": 1.1, "repeat_last_n": 65}, None),
    ({"repeat_penalty": 1.1, "repeat_last_n": -1}, None),
    ({"logit_bias": dict.fromkeys(range(17), 1)}, None),
    ({"order": "temperature-first"}, None),
    *(({name: value}, None) for name, value in {
        "typical_p": 0.9, "dry_multiplier": 1, "top_n_sigma": 1, "xtc_probability": 0.1,
        "dynatemp_range": 0.1, "mirostat": 1,
    }.items()),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words"), DEVICE)
def test_words_encode_the_devices_chain_or_greedy_for_host_sampling(
    options: dict[str, Any], words: dict[str, Any] | None
) -> None:
    params = made(seed=2**40 + 3, **options)
    assert params.fits_device == (words is not None)
    want = StepSampling(seed=2**40 + 3, choice=4, offset=5, **(words or {}))
    assert params.words(choice=4, offset=5) == want


@pytest.mark.parametrize(
    ("options", "is_pointwise"),
    [
        ({}, False), ({"temperature": 0}, True), ({"top_k": 0, "top_p": 1, "min_p": 0}, True),
        ({"order": ["penalties", "temperature"], "repeat_penalty": 2}, True), ({"order": ["top_k"]}, False),
        ({"order": ["temperature"], "dynatemp_range": 1}, False),
        ({"temperature": 0, "typical_p": 0.5}, False), ({"order": ["min_p"]}, False),
        ({"order": ["typical_p"], "typical_p": 0.5}, False), ({"order": ["top_p"]}, False),
        ({"order": ["top_n_sigma"], "top_n_sigma": 1}, False),
        ({"order": ["dry"], "dry_multiplier": 1}, True),
        ({"order": ["xtc"], "xtc_probability": 0.5}, False), ({"order": ["mirostat"], "mirostat": 2}, False),
    ],
)  # fmt: skip
def test_a_per_token_chain_is_recognised(options: dict[str, Any], is_pointwise: bool) -> None:
    assert made(**options).is_pointwise == is_pointwise


def header(**metadata: Any) -> Gguf:
    named = {f"general.sampling.{key}": value for key, value in metadata.items()}
    return Gguf(3, 32, named, dict.fromkeys(named, "stored"), {}, 0, 0)


def test_a_file_recommends_every_option_that_llama_cpp_reads() -> None:
    stated = {
        "temp": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.25, "xtc_probability": 0.125, "xtc_threshold": 0.5,
        "penalty_last_n": 9, "penalty_repeat": 1.5, "mirostat": 2, "mirostat_tau": 4.0, "mirostat_eta": 0.5,
        "sequence": "top_k;temperature",
    }  # fmt: skip
    params = SamplingParams.from_options({"top_k": 3}, file_defaults(header(**stated)))
    assert params.order == ("top_k", "temperature")
    for name, value in stated.items():
        if name not in ("top_k", "sequence"):
            assert getattr(params, OURS.get(name, name)) == value
    assert params.top_k == 3, "explicit options take precedence"
    assert file_defaults(header()) == {}


def test_a_recommendation_of_another_type_breaks_the_format() -> None:
    with pytest.raises(ModelFormatError, match=r"general.sampling.top_k is 1.5 .* int is expected"):
        file_defaults(header(top_k=1.5))


def test_an_invalid_recommendation_names_the_way_out() -> None:
    defaults = file_defaults(header(sequence="top_k;infill"))
    with pytest.raises(
        RequestError, match=r"file recommends .*'top_k;infill'.*; set this option in the request"
    ):
        SamplingParams.from_options({}, defaults)
    assert SamplingParams.from_options({"order": "default"}, defaults).order == DEFAULT_ORDER
