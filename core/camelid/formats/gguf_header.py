"""The header of a GGUF file: metadata, tensors, and getters that check the type of a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias, TypeVar, cast, get_args, get_origin, overload

from camelid.formats.source import format_error

Scalar: TypeAlias = int | float | bool | str
MetadataValue: TypeAlias = Scalar | list[int] | list[float] | list[bool] | list[str]
T = TypeVar("T")
D = TypeVar("D")


class _Required:
    """Marks that a key has no default."""


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a file. `shape` is row-major (GGUF's order reversed), `offset` is from the file's start."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Gguf:
    """The header of a file. `kinds` maps each key to its stored type, such as "uint32" or "array[string]"."""

    version: int
    alignment: int
    metadata: dict[str, MetadataValue]
    kinds: dict[str, str]
    tensors: dict[str, GgufTensor]
    data_offset: int
    file_size: int
    path: str = ""

    @overload
    def get(self, key: str, kind: type[T]) -> T: ...
    @overload
    def get(self, key: str, kind: type[T], default: D) -> T | D: ...
    def get(self, key: str, kind: type[T], default: D | _Required = REQUIRED) -> T | D:
        """The value of `key`. `kind` is int, float, bool, str or a list of one of them.

        A bool is not an int and an int is not a float, as in llama.cpp. Raises ModelFormatError for a value
        of another type, and for an absent key without a default.
        """
        value = self.metadata.get(key)
        if value is None:
            return self._absent(key, kind) if isinstance(default, _Required) else default
        if _is_kind(value, kind):
            return cast(T, value)
        message = f"{key} is {_shown(value)} ({self.kinds[key]}), but {_kind_name(kind)} is expected"
        raise format_error(self.path, message, key=key, got=self.kinds[key], want=_kind_name(kind))

    def _absent(self, key: str, kind: object) -> NoReturn:
        message = (
            f"the key {key} ({_kind_name(kind)}) is missing; was the file converted for another architecture?"
        )
        raise format_error(self.path, message, key=key, got=None, want=_kind_name(kind))


def _is_kind(value: object, kind: object) -> bool:
    """True if a value is of a kind. Only the first item of a list is checked, since an array has one type; an
    empty list is of every list kind."""
    if get_origin(kind) is list:
        items = cast(list[object], value)
        return isinstance(value, list) and (not items or type(items[0]) is get_args(kind)[0])
    return isinstance(kind, type) and type(value) is kind


def _kind_name(kind: object) -> str:
    return kind.__name__ if get_origin(kind) is None and isinstance(kind, type) else str(kind)


def _shown(value: MetadataValue) -> str:
    text = f"a list of {len(value)}" if isinstance(value, list) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
