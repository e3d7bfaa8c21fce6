"""Rows of sampling fields that several dialects share: OpenAI's, and llama.cpp's samplers."""

from __future__ import annotations

from typing import Any

from camelid.server.fields.kinds import Converted, Either, Flag, Integer, ListOf, Number, Object, Text
from camelid.server.fields.table import Field
from camelid.server.http.errors import ApiError

MAX_STOPS, MAX_STOP_CHARS = 16, 4096
MAX_BIASES = 100_000
RANDOM_SEED = 2**32 - 1  # llama.cpp's number for a random seed; -1 in a request
# Letters of llama.cpp's `samplers` as one text -> names in an order.
SAMPLER_LETTERS = {
    "e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typical_p", "p": "top_p",
    "m": "min_p", "x": "xtc", "t": "temperature",
}  # fmt: skip
SAMPLERS = Either({str: Text(64), list: ListOf(Text(64), 64)}, "a list of names, or letters")
STOPS = Either(
    {str: Text(MAX_STOP_CHARS), list: ListOf(Text(MAX_STOP_CHARS), MAX_STOPS)},
    f"a string or a list of at most {MAX_STOPS} strings",
)


def stop_list(stops: str | list[str]) -> list[str]:
    """Stop sequences as a list; an empty one stops nothing, as in OpenAI's API."""
    return [stop for stop in ([stops] if isinstance(stops, str) else stops) if stop]


def bias_map(biases: dict[str, Any]) -> dict[int, float | bool]:
    """OpenAI's map of token ids, written as texts, to biases."""
    return {_token_id(name): _bias(value, name) for name, value in biases.items()}


def _token_id(name: str) -> int:
    if name.isdecimal() and len(name) <= 9:
        return int(name)
    raise ApiError(400, f"logit_bias has the key {name!r:.40}, expected a token id", param="logit_bias")


def _bias(value: object, name: str) -> float | bool:
    if value is False:
        return False
    return Number(-100, 100).read(value, f"logit_bias[{name:.20}]")


def seed(value: int) -> int | None:
    """A seed of 32 bits; None draws a random one."""
    number = value % 2**32
    return None if number == RANDOM_SEED else number


def order(value: str | list[str]) -> list[str]:
    """The names of a sampler order. Raises ApiError for a letter that stands for no sampler."""
    if not isinstance(value, str):
        return value
    unknown = next((letter for letter in value if letter not in SAMPLER_LETTERS), None)
    if unknown is not None:
        known = ", ".join(f"{letter} {name}" for letter, name in SAMPLER_LETTERS.items())
        raise ApiError(400, f"samplers has the letter {unknown!r}, known: {known}", param="samplers")
    return [SAMPLER_LETTERS[letter] for letter in value]


OPENAI_SAMPLING = (
    Field("temperature", Number(0, 2), "temperature"),
    Field("top_p", Number(0, 1), "top_p"),
    Field("frequency_penalty", Number(-2, 2), "frequency_penalty"),
    Field("presence_penalty", Number(-2, 2), "presence_penalty"),
    Field("seed", Converted(Integer(-(2**63), 2**63 - 1), seed), "seed"),
    Field("stop", Converted(STOPS, stop_list), "stop"),
    Field("logit_bias", Converted(Object(most=MAX_BIASES), bias_map), "logit_bias"),
)
# llama.cpp's samplers, by its field names; clients of either API send them.
MORE_SAMPLING = (
    Field("dynatemp_range", Number(0, 100), "dynatemp_range"),
    Field("dynatemp_exponent", Number(0, 100), "dynatemp_exponent"),
    Field("top_k", Converted(Integer(-1), lambda n: max(n, 0)), "top_k"),
    Field("min_p", Number(0, 1), "min_p"),
    Field("typical_p", Number(0, 1), "typical_p"),
    Field("top_n_sigma", Number(-1, 1000), "top_n_sigma"),
    Field("min_keep", Integer(0, 1_000_000), "min_keep"),
    Field("xtc_probability", Number(0, 1), "xtc_probability"),
    Field("xtc_threshold", Number(0, 1), "xtc_threshold"),
    Field("repeat_penalty", Number(0, 100), "repeat_penalty"),
    Field("repetition_penalty", Number(0, 100), "repeat_penalty"),
    Field("repeat_last_n", Integer(-1), "repeat_last_n"),
    Field("dry_multiplier", Number(0, 1000), "dry_multiplier"),
    Field("dry_base", Number(0, 1000), "dry_base"),
    Field("dry_allowed_length", Integer(), "dry_allowed_length"),
    Field("dry_penalty_last_n", Integer(-1), "dry_penalty_last_n"),
    Field("dry_sequence_breakers", ListOf(Text(256), 64), "dry_sequence_breakers"),
    Field("mirostat", Integer(0, 2), "mirostat"),
    Field("mirostat_tau", Number(0, 1000), "mirostat_tau"),
    Field("mirostat_eta", Number(0, 1000), "mirostat_eta"),
    Field("ignore_eos", Flag(), "ignore_eos"),
    Field("cache_prompt", Flag(), "cache_prompt"),
    Field("samplers", Converted(SAMPLERS, order), "order"),
)
