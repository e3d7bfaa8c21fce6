"""A wrong fact of a golden model, and the short forms that tables of wrong facts use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
LEAST = 1e-5  # NMSE by which a wrong fact moves the logits


@dataclass(frozen=True, slots=True)
class Mutation:
    """A feature of a case, and a change to it that must move the logits; or that Camelid refuses by name."""

    case: str
    feature: str
    config: Json
    neutral: tuple[str, ...] = ()
    is_refused: bool = False

    def __str__(self) -> str:
        return f"{self.case}-{self.feature.replace(' ', '_')}"


def key(case: str, name: str, value: Any) -> Mutation:
    return Mutation(case, name, {name: value})


def refused(case: str, name: str, value: Any) -> Mutation:
    """A setting that no row supports."""
    return Mutation(case, name, {name: value}, is_refused=True)


def within(case: str, key: str, old: Json, **changes: Any) -> Mutation:
    """Changes items of the dict at `key` of the config."""
    return Mutation(case, f"{key} {' '.join(changes)}", {key: old | changes})


def without(case: str, feature: str, *endings: str) -> Mutation:
    return Mutation(case, feature, {}, endings)


def common(case: str, *, act: str = "hidden_act") -> list[Mutation]:
    """Mutations for all architectures. The epsilon is far off, as a tiny model's hidden states are
    of size 1.
    """
    return [key(case, "rope_theta", 300.0), key(case, "rms_norm_eps", 0.05), key(case, act, "relu")]
