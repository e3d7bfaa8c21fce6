"""Checked sampling options of a request, with llama.cpp's names and defaults."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, cast

from camelid.errors import RequestError
from camelid.plan.step import MOST_BIASES, MOST_LAST_N, MOST_TOP_K, StepSampling
from camelid.sampling.checks import Check, integer, items
from camelid.sampling.options import SamplingOptions
from camelid.sampling.samplers import SAMPLERS
from camelid.sampling.values import DEFAULT_ORDER, SamplingValues

__all__ = ["DEFAULT_ORDER", "ORDERS", "SamplingParams"]

MAX_SEED = 2**64 - 1
MAX_LOGPROBS = 20
# Sampler orders by name.
ORDERS = {
    "default": DEFAULT_ORDER,
    "temperature-first": ("penalties", "temperature", "top_k", "top_p", "min_p", "typical_p", "mirostat"),
}
# Aliases of samplers from llama.cpp's --samplers; a dash may replace each underscore.
ALIASES = {"typ_p": "typical_p", "typ": "typical_p", "typical": "typical_p", "typp": "typical_p",
           "temp": "temperature", "nucleus": "top_p", "topk": "top_k", "topp": "top_p", "minp": "min_p",
           "topnsigma": "top_n_sigma", "top_nsigma": "top_n_sigma"}  # fmt: skip
# The samplers of a device's chain, in its order: field of `StepSampling` -> option.
DEVICE_FIELDS: Mapping[str, Mapping[str, str]] = {
    "logit_bias": {"biases": "logit_bias"},
    "penalties": {
        "repeat_penalty": "repeat_penalty",
        "frequency_penalty": "frequency_penalty",
        "presence_penalty": "presence_penalty",
        "penalty_last_n": "repeat_last_n",
    },
    "top_k": {"top_k": "top_k"},
    "top_p": {"top_p": "top_p"},
    "min_p": {"min_p": "min_p"},
    "temperature": {"temperature": "temperature"},
}


def parse_order(value: object) -> tuple[str, ...] | None:
    """The samplers of an order: the name of an order, names separated by semicolons, or a list of names.

    None if a sampler is unknown, listed twice, or follows mirostat, which draws.
    """
    if isinstance(value, str):
        value = ORDERS.get(value) or value.split(";")
    names = [sampler_name(item) for item in items(value) or ()]
    is_known = items(value) is not None and all(name in ORDERABLE for name in names)
    if not is_known or len(set(names)) < len(names) or "mirostat" in names[:-1]:
        return None
    return tuple(names)


def sampler_name(item: object) -> str:
    name = item.strip().lower().replace("-", "_") if isinstance(item, str) else ""
    return ALIASES.get(name, name)


ORDERABLE = [name for name in SAMPLERS if name != "logit_bias"]  # logit_bias always comes first
CHECKS: Mapping[str, Check] = {
    **{name: check for row in SAMPLERS.values() for name, check in row.options.items()},
    "seed": Check(
        "an integer from 0 to 2**64 - 1", lambda value: value is None or integer(0, MAX_SEED).test(value)
    ),
    "min_keep": integer(0),
    "order": Check(
        f"{' or '.join(map(repr, ORDERS))}, or a list of some of {', '.join(ORDERABLE)}, each once, "
        "mirostat last",
        lambda value: parse_order(value) is not None,
        parse_order,
    ),
    "logprobs": Check(
        f"an integer from 0 to {MAX_LOGPROBS}, or a bool",
        lambda value: isinstance(value, int) and 0 <= value <= MAX_LOGPROBS,
        lambda value: int(cast(int, value)),
    ),
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams(SamplingValues):
    """Checked sampling options of a request, and properties derived from them.

    Without slots, since `cached_property` needs a `__dict__`.
    """

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            # A frozen dataclass can store the normal form in no other way.
            object.__setattr__(self, name, check.read(name, getattr(self, name)))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of all sampling options."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def from_options(
        cls, options: Mapping[str, object], defaults: Mapping[str, object] | None = None
    ) -> SamplingParams:
        """Checks options. Raises RequestError for an option that is unknown, ill-typed or out of range.

        `defaults` are the recommendations of the model's file, for options that `options` lacks.
        """
        unknown = sorted(options.keys() - CHECKS.keys())
        if unknown:
            known = ", ".join(SamplingOptions.__annotations__)
            raise RequestError(f"sampling option {unknown[0]!r} is unknown; known: {known}", field=unknown[0])
        return cls(**{**_file_values(defaults or {}, options), **options})  # type: ignore[arg-type]  # checked

    def seeded(self) -> SamplingParams:
        """These params with a seed: the request's seed, or 32 random bits."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(32))

    def check_vocab(self, vocab_size: int) -> None:
        """Raises RequestError for a `logit_bias` of a token outside the vocabulary."""
        bad = next((i for i, _ in self.logit_bias if i >= vocab_size), None)
        if bad is not None:
            raise RequestError(
                f"logit_bias names token {bad}, outside the vocabulary of {vocab_size}", field="logit_bias"
            )

    @cached_property
    def chain(self) -> tuple[str, ...]:
        """The active samplers, in order.

        With mirostat only temperature and mirostat itself, unless the order lists mirostat.
        """
        replaced = self.mirostat > 0 and "mirostat" not in self.order
        order = ("temperature", "mirostat") if replaced else self.order
        active = [name for name in ("logit_bias", *order) if SAMPLERS[name].is_active(self)]
        return tuple(_until_greedy(active) if self.is_greedy else active)

    @property
    def is_greedy(self) -> bool:
        """True at temperature 0: the likeliest token is taken without noise."""
        return self.temperature == 0 and self.dynatemp_range == 0

    @cached_property
    def fits_device(self) -> bool:
        """True if a device's chain can draw these tokens; else a `HostSampler` draws them."""
        return (
            self.chain == tuple(name for name in DEVICE_FIELDS if name in self.chain)
            and (self.top_k <= MOST_TOP_K or "top_k" not in self.chain)
            and ("top_p" not in self.chain or ("top_k" in self.chain and self.min_keep <= 1))
            and (0 <= self.repeat_last_n <= MOST_LAST_N or "penalties" not in self.chain)
            and ("min_p" not in self.chain or self.min_keep <= 1)
            and ("temperature" not in self.chain or self.dynatemp_range == 0)
            and len(self.logit_bias) <= MOST_BIASES
        )

    @cached_property
    def is_pointwise(self) -> bool:
        """True if each token's final logit depends on no other token.

        A draw without the mask is then also the draw with the mask, if the mask allows its token.
        """
        return self.dynatemp_range == 0 and set(self.chain) <= {
            "logit_bias",
            "penalties",
            "dry",
            "temperature",
        }

    def words(self, choice: int = 0, offset: int = 0) -> StepSampling:
        """The sampling row of a step: the device's chain, or greedy if the host draws.

        The seed must be set. `offset` is added to an output's position in the key of its noise.
        """
        assert self.seed is not None, "seeded() comes first"
        if not self.fits_device:
            return StepSampling(seed=self.seed, choice=choice, offset=offset)
        pairs = chain.from_iterable(DEVICE_FIELDS[name].items() for name in self.chain)
        # The default temperature of StepSampling is 0, greedy.
        values: dict[str, Any] = {"temperature": 1.0}
        values |= {name: getattr(self, option) for name, option in pairs}
        return StepSampling(**values, seed=self.seed, choice=choice, offset=offset)


def _file_values(defaults: Mapping[str, object], options: Mapping[str, object]) -> dict[str, object]:
    """The file's values for options that the request lacks. Raises RequestError for a value out of range."""
    try:
        return {name: CHECKS[name].read(name, defaults[name]) for name in defaults.keys() - options.keys()}
    except RequestError as error:
        raise RequestError(
            f"the model's file recommends an invalid value: {error.message}; set this option in the request",
            **error.facts,
        ) from error


def _until_greedy(active: list[str]) -> list[str]:
    """The chain without samplers that do not change a greedy answer.

    These are all samplers after temperature, and those right before it that always keep the likeliest token.
    """
    if "temperature" not in active:
        return active
    before = active[: active.index("temperature")]
    while before and SAMPLERS[before[-1]].keeps_first:
        before.pop()
    return [*before, "temperature"]
