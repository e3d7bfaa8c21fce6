"""How a request draws its tokens: greedy and temperature for now, both on the device."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from camelid.errors import RequestError
from camelid.messages import shown
from camelid.options import Options
from camelid.plan.step import StepSampling

MAX_SEED = 2**64 - 1
TEMPERATURES = (0.01, 100.0)  # besides 0; below, logits / temperature overflows float32
# Options that other runtimes know and this one does not have yet: named, so that none is dropped in silence.
LATER = frozenset(
    (
        "dry_multiplier", "frequency_penalty", "logit_bias", "logprobs", "min_p",
        "mirostat", "n", "presence_penalty", "repeat_penalty", "top_k",
        "top_n_sigma", "top_p", "typical_p", "xtc_probability",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Temperature 0 is greedy; without a seed, one is drawn and reported in the completion."""

    temperature: float = 0.8  # llama.cpp's default
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)
        _check_seed(self.seed)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The options that exist."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> SamplingParams:
        """Checked options. RequestError for one that is unknown, not there yet, or out of range."""
        unknown = sorted(options.keys() - set(cls.names()))
        if unknown:
            raise _unknown(unknown[0])
        return cls(**options)  # type: ignore[arg-type]  # checked in __post_init__

    def seeded(self) -> SamplingParams:
        """The same with a seed: the one given, or 32 random bits."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(32))

    def words(self) -> StepSampling:
        """The sampling row of a step. The seed must be set."""
        assert self.seed is not None, "seeded() comes first"
        return StepSampling(temperature=self.temperature, seed=self.seed)


def _unknown(name: str) -> RequestError:
    what = "is not available in this version" if name in LATER else "is unknown"
    return RequestError(f"option {name!r} {what}; known: {', '.join(Options.__annotations__)}", field=name)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_temperature(value: object) -> None:
    low, high = TEMPERATURES
    if not (_is_number(value) and (value == 0 or low <= float(str(value)) <= high)):
        raise RequestError(
            f"temperature is {shown(value)}, expected 0 (greedy) or {low} to {high}", field="temperature"
        )


def _check_seed(value: object) -> None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SEED):
        return
    raise RequestError(f"seed is {shown(value)}, expected an integer from 0 to 2**64 - 1", field="seed")
