"""Getters for untrusted settings: each checks type and range, and its error names key and file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NoReturn, TypeGuard, cast

from camelid.formats.json_text import JsonObject, shown
from camelid.formats.source import format_error

MAX_COUNT = (1 << 31) - 1
MAX_NUMBER = 3.4e38  # the largest float32, rounded down


class _Required:
    """Marks that a key has no default."""


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Config:
    """The values of a settings file, such as config.json. null counts as absent, as in transformers.

    A getter raises ModelFormatError for a value of another type or out of range, and for an absent key
    without a default. A bool is not a number, and 4096.0 is not a count.
    """

    values: JsonObject
    path: str = "config.json"
    prefix: str = ""

    def has(self, key: str) -> bool:
        """True if the key is present and not null."""
        return self.values.get(key) is not None

    def count(
        self, key: str, default: int | _Required = REQUIRED, *, least: int = 1, most: int = MAX_COUNT
    ) -> int:
        """A whole number in [least, most]."""
        value = self._value(key, default)
        want = f"a whole number from {least} to {most}"
        return value if _is_count(value, least, most) else self._refuse(key, want)

    def counts(self, key: str, *, least: int = 0, most: int = MAX_COUNT) -> list[int]:
        """Whole numbers: a list or a single number, as in eos_token_id; [] if absent."""
        value = self._value(key, [])
        items = cast(list[object], value if isinstance(value, list) else [value])
        want = f"whole numbers from {least} to {most}"
        return [item if _is_count(item, least, most) else self._refuse(key, want) for item in items]

    def numbers(self, key: str) -> list[float]:
        """Finite numbers of a list; [] if absent."""
        items = [Config({key: item}, self.path, self.prefix) for item in self.get_list(key)]
        return [item.number(key) for item in items]

    def number(
        self,
        key: str,
        default: float | _Required = REQUIRED,
        *,
        above: float = -math.inf,
        most: float = MAX_NUMBER,
    ) -> float:
        """A finite number in (above, most], as a float."""
        value = self._value(key, default)
        if type(value) in (int, float):
            number = cast(float, value)  # an int of any size compares exactly
            if max(above, -MAX_NUMBER) < number <= most:
                return float(number)
        bounds = f" above {above:g}" if above > -math.inf else ""
        return self._refuse(key, f"a finite number{bounds} up to {most:g}")

    def flag(self, key: str, default: bool | _Required = REQUIRED) -> bool:
        """A boolean."""
        value = self._value(key, default)
        return value if isinstance(value, bool) else self._refuse(key, "true or false")

    def text(self, key: str, default: str | _Required = REQUIRED) -> str:
        """A string."""
        value = self._value(key, default)
        return value if isinstance(value, str) else self._refuse(key, "a string")

    def texts(self, key: str) -> list[str]:
        """A list of strings, such as layer_types; [] if absent."""
        items = self.get_list(key)
        return [item if isinstance(item, str) else self._refuse(key, "a list of strings") for item in items]

    def get_list(self, key: str) -> list[object]:
        """A list of values of any type; [] if absent."""
        value = self._value(key, [])
        return cast(list[object], value) if isinstance(value, list) else self._refuse(key, "a list")

    def get_dict(self, key: str) -> JsonObject:
        """An object, such as rope_scaling; {} if absent."""
        value = self._value(key, {})
        return cast(JsonObject, value) if isinstance(value, dict) else self._refuse(key, "an object")

    def section(self, key: str) -> Config:
        """An object as a Config. Its errors name the full key, such as text_config.hidden_size."""
        return Config(self.get_dict(key), self.path, f"{self.prefix}{key}.")

    def _value(self, key: str, default: object) -> object:
        value = self.values.get(key)
        if value is not None:
            return value
        if isinstance(default, _Required):
            raise format_error(self.path, f"{self.prefix}{key} is missing", key=self.prefix + key)
        return default

    def _refuse(self, key: str, want: str) -> NoReturn:
        got = shown(self.values.get(key))
        name = self.prefix + key
        raise format_error(
            self.path, f"{name} is {got}, but {want} is expected", key=name, got=got, want=want
        )


def _is_count(value: object, least: int, most: int) -> TypeGuard[int]:
    return type(value) is int and least <= value <= most
