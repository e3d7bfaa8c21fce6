"""Pairs of low-rank factors in a file, by the module or tensor that they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from camelid.errors import UnsupportedModelError, shown
from camelid.formats.source import format_error, located

MAX_PAIRS = 1 << 17  # a model of 128 layers with 512 experts of 3 matrices would have 196,608
MAX_KEY = 80  # characters of a key that an error shows as it is
FLOATS = ("f32", "f16", "bf16")
# Order of the numbers of a pair, of r ranks and E experts:
# - rows: A [r, in], B [out, r], or stacks of E of them;
# - columns: A [in, r], B [r, out];
# - joined: A [E * r, in], B [out, r * E] whose last axis counts experts first.
LAYOUTS = ("rows", "columns", "joined")


@dataclass(frozen=True, slots=True)
class Factor:
    """A tensor of a file: name, type in lower case, shape row-major, and the offset of its bytes."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two factors of one module, or of a stack of `experts` matrices (0: one matrix)."""

    module: str
    a: Factor
    b: Factor
    scale: float
    rank: int
    layout: str = "rows"
    experts: int = 0

    @property
    def n_in(self) -> int:
        """Columns of a matrix of the module."""
        return self.a.shape[-2] if self.layout == "columns" else self.a.shape[-1]

    @property
    def n_out(self) -> int:
        """Rows of a matrix of the module."""
        return self.b.shape[0] if self.layout == "joined" else self.b.shape[-1 - (self.layout == "rows")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFile:
    """The header of an adapter: its pairs by module, invocation tokens, and facts to show.

    `format` is "peft", "gguf" or "mlx-lm"; modules of a GGUF have GGUF names, others published ones.
    """

    format: str
    path: str
    pairs: Mapping[str, Pair]
    invocation: tuple[int, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


def pair_up(
    tensors: Iterable[Factor], endings: tuple[str, str], path: str
) -> Mapping[str, tuple[Factor, Factor]]:
    """Both factors of each module, whose tensors have these endings behind its name.

    Raises ModelFormatError for a factor without its other half, and for tensors that are none.
    """
    halves: tuple[dict[str, Factor], dict[str, Factor]] = ({}, {})
    for tensor in tensors:
        half = next((i for i, ending in enumerate(endings) if tensor.name.endswith(ending)), None)
        if half is None:
            raise format_error(
                path, f"{tensor.name}: not a factor; expected {' or '.join(endings)}", tensor=tensor.name
            )
        halves[half][tensor.name.removesuffix(endings[half])] = tensor
    _check_halves(halves, endings, path)
    return {name: (a, halves[1][name]) for name, a in halves[0].items()}


def _check_halves(
    halves: tuple[dict[str, Factor], dict[str, Factor]], endings: tuple[str, str], path: str
) -> None:
    for own, other, ending in ((*halves, endings[1]), (*halves[::-1], endings[0])):
        if odd := min(own.keys() - other.keys(), default=""):
            message = f"{own[odd].name} has no other half {odd + ending}; was the file written whole?"
            raise format_error(path, message, tensor=own[odd].name)
    if not halves[0]:
        raise format_error(path, "it has no low-rank factors; is it an adapter?")
    if len(halves[0]) > MAX_PAIRS:
        raise format_error(path, f"{len(halves[0])} modules; at most {MAX_PAIRS} are allowed")


def make_pair(
    module: str, a: Factor, b: Factor, *, scale: float, path: str, layout: str = "rows", experts: int = 0
) -> Pair:
    """A pair whose types and shapes fit. `experts` is stated for the layout "joined" alone.

    Raises ModelFormatError for shapes that do not fit, UnsupportedModelError for another type.
    """
    for each in (a, b):
        if each.type not in FLOATS:
            message = f"{each.name}: type {each.type}, expected one of {', '.join(FLOATS)}"
            raise UnsupportedModelError(
                located(path, message), kind="tensor type", name=each.type, known=FLOATS, path=path
            )
    rank, n_experts = _sizes(a, b, layout, experts) if len(a.shape) == len(b.shape) else (0, 0)
    if rank < 1 or 0 in (*a.shape, *b.shape):
        message = (
            f"{module}: factors {a.shape} and {b.shape} do not fit each other; expected matrices of one rank"
        )
        raise format_error(path, message, tensor=a.name, got=(a.shape, b.shape))
    return Pair(module=module, a=a, b=b, scale=scale, rank=rank, layout=layout, experts=n_experts)


def _sizes(a: Factor, b: Factor, layout: str, experts: int) -> tuple[int, int]:
    """(rank, experts) of factors; a rank of 0 if they do not fit."""
    dims = len(a.shape)
    if layout == "joined":
        fits = dims == 2 and experts > 0 and a.shape[0] == b.shape[1] and a.shape[0] % experts == 0
        return (a.shape[0] // experts, experts) if fits else (0, 0)
    if layout == "columns":
        return (a.shape[1], 0) if dims == 2 and a.shape[1] == b.shape[0] else (0, 0)
    if dims == 2:
        return (a.shape[0], 0) if a.shape[0] == b.shape[1] else (0, 0)
    fits = dims == 3 and a.shape[0] == b.shape[0] and a.shape[1] == b.shape[2]
    return (a.shape[1], a.shape[0]) if fits else (0, 0)


def refuse(path: str, key: str, value: object, why: str) -> NoReturn:
    """Raises UnsupportedModelError for a setting with another effect than LoRA's."""
    key = key if key.isprintable() and len(key) < MAX_KEY else shown(key)
    message = f"{key} is {shown(value)}: {why}"
    raise UnsupportedModelError(located(path, message), kind=key, name=shown(value), path=path)
