"""Rows of a store as plain values, without SQLite."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.learning.items import Exchange

FEWEST_PAST = 50  # past requests below which nothing tells the requests out of scope
MOST_PAST = 600  # the latest past requests, to which scopes are fitted
MOST_FITTED = 300  # the latest items that act, to which the scope of memory is fitted
# What recalled items do: kNN-LM, kNN-LM in a narrower scope, earlier turns, nothing.
FORMS = ("mix", "narrow", "turns", "none")
MIXTURES = frozenset(FORMS[:2])
NO_FORM = FORMS[-1]
FORM = "memory form"  # the fact with the form; f"{FORM} v1" has the form when v1 was last in use
MEMORY_SCOPE = "memory scope"  # the fact with the scope that was fitted to the items


@dataclass(frozen=True, slots=True)
class PastRequest:
    """A request of the past with its vector (float32 bytes)."""

    exchange: Exchange
    vector: bytes


@dataclass(frozen=True, slots=True)
class Contexts:
    """An item's answer token by token: the token ids, and the key of the context before each.

    `keys` are float32, [T, D], as bytes.
    """

    tokens: tuple[int, ...]
    keys: bytes
