"""Typed access to one architecture's GGUF metadata: every getter checks type and range."""

from __future__ import annotations

import math
from collections.abc import Sized

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.gguf import Gguf

MAX_COUNT = 2**24


class MetadataReader:
    """Getters for the keys `<prefix>.<name>` of a GGUF header.

    A key of the wrong type or range raises ModelFormatError with the key's name.
    """

    def __init__(self, gguf: Gguf, prefix: str) -> None:
        self.gguf = gguf
        self.prefix = prefix

    def key(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def has(self, name: str) -> bool:
        return self.key(name) in self.gguf.metadata

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """An integer in `least` .. 2^24 - 1; a list of equal numbers counts as one number."""
        value = self._uniform(name)
        if value is None and default is None:
            return self.gguf.get(self.key(name), int)
        if value is None:
            return default or 0
        if not least <= value < MAX_COUNT:
            self.fail(name, f"is {value}, expected {least} to {MAX_COUNT - 1}; the file is damaged")
        return value

    def counts(self, name: str, n: int, default: int) -> list[int]:
        """`n` integers in 0 .. 2^24 - 1, one per layer; a single number applies to every layer."""
        if not self.is_list(name):
            return [self.count(name, default, least=0)] * n
        values = self.gguf.get(self.key(name), list[int])
        self._check_length(name, values, n)
        if not all(0 <= value < MAX_COUNT for value in values):
            self.fail(name, f"holds {min(values)} to {max(values)}, expected 0 to {MAX_COUNT - 1}")
        return values

    def flags(self, name: str, n: int) -> list[bool]:
        """`n` booleans, one per layer."""
        values = self.gguf.get(self.key(name), list[bool])
        self._check_length(name, values, n)
        return values

    def numbers(self, name: str, n: int) -> list[float]:
        """`n` finite numbers, one per layer."""
        values = self.gguf.get(self.key(name), list[float])
        self._check_length(name, values, n)
        if not all(map(math.isfinite, values)):
            self.fail(name, "holds a number that is not finite")
        return values

    def is_list(self, name: str) -> bool:
        return isinstance(self.gguf.metadata.get(self.key(name)), list)

    def _check_length(self, name: str, values: Sized, n: int) -> None:
        if len(values) != n:
            self.fail(name, f"has {len(values)} items for {n} layers; the file is damaged")

    def _uniform(self, name: str) -> int | None:
        value = self.gguf.metadata.get(self.key(name))
        if not isinstance(value, list):
            return self.gguf.get(self.key(name), int, default=None)
        values = self.gguf.get(self.key(name), list[int])
        if len(set(values)) == 1:
            return values[0]
        raise UnsupportedModelError(
            f"{self.key(name)} differs from layer to layer, expected one number for all layers of "
            f"{self.prefix!r}; this model is not supported yet",
            kind=self.key(name),
            name=f"a list of {len(values)}",
        )

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        key = self.key(name)
        value = self.gguf.get(key, float) if default is None else self.gguf.get(key, float, default=default)
        if not math.isfinite(value):
            self.fail(name, f"is {value}, expected a finite number")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        return self.gguf.get(self.key(name), bool, default=default)

    def fail(self, name: str, message: str) -> None:
        raise ModelFormatError(f"{self.key(name)} {message}", key=self.key(name))
