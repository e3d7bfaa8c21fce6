"""The factors of published modules, or of a GGUF's tensors, from the terms of an adapter: the way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.errors import UnsupportedModelError
from camelid.formats.adapters.peft import EXPERT_PARAMETERS, EXPERTS
from camelid.loading.model_file import ModelFile
from camelid.model.adapter import Adapter, LowRank
from camelid.model.adapters.origins import Naming, Origin
from camelid.model.adapters.places import Matrix, Place, find_places
from camelid.model.arch import Model
from camelid.model.archs import ARCHS

F32: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Factors:
    """The term of one matrix: scale * b @ a."""

    a: F32  # [rank, in]
    b: F32  # [out, rank]
    scale: float

    @property
    def rank(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The origins of an adapter's weights, and the rows and columns of a matrix of each of their modules."""

    origins: tuple[Origin, ...]
    rows: Mapping[str, int]
    cols: Mapping[str, int]


def factors_of(term: LowRank) -> list[Factors]:
    """The factors of each matrix of a term."""
    n = max(term.experts, 1)
    a: F32 = np.asarray(term.a, np.float32).reshape(n, term.rank, term.n_in)
    b: F32 = np.asarray(term.b, np.float32).reshape(n, term.n_out, term.rank)
    return [Factors(a[i], b[i], term.scale) for i in range(n)]


def modules_of(adapter: Adapter, naming: Naming, file: ModelFile) -> dict[str, list[Factors]]:
    """The factors of each matrix of the modules whose weights the adapter changes.

    A module whose weights have terms of several ranks or A has all of them, side by side. Raises
    UnsupportedModelError for a weight that the naming does not have.
    """
    wanted, model = _wanted(adapter, naming, file), file.model
    pieces: dict[str, dict[int, list[_Piece]]] = {}
    seen: set[str] = set()
    for place in find_places(wanted.origins, wanted.rows, wanted.cols, naming.settings, model):
        seen.add(place.weight)
        if term := adapter.terms.get(place.weight):
            for matrix, piece in zip(place.matrices, _pieces(place, term), strict=True):
                pieces.setdefault(matrix.module, {}).setdefault(matrix.number, []).append(piece)
    if lost := min(adapter.terms.keys() - seen, default=""):
        raise _no_module(lost, adapter)
    n_matrices = {
        module: 1 + max(i for m, i in o.sources if m == module)
        for o in wanted.origins
        for module, _ in o.sources
    }
    joined = {
        module: [
            _joined(own.get(i, []), wanted.rows[module], wanted.cols[module])
            for i in range(n_matrices[module])
        ]
        for module, own in pieces.items()
    }
    return {
        module: all_equal(found) for module, found in joined.items() if any(each.b.any() for each in found)
    }


def all_equal(found: list[Factors]) -> list[Factors]:
    """The factors with one rank and scale for all matrices of a module."""
    rank, scale = max(each.rank for each in found), next((e.scale for e in found if e.rank), 1.0)
    return [_like(each, rank, scale) for each in found]


def _like(factors: Factors, rank: int, scale: float) -> Factors:
    pad = rank - factors.rank
    b = factors.b if factors.scale == scale else (factors.b * (factors.scale / scale)).astype(np.float32)
    return Factors(np.pad(factors.a, ((0, pad), (0, 0))), np.pad(b, ((0, 0), (0, pad))), scale)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of a module's matrix that one matrix of a weight has."""

    factors: Factors
    matrix: Matrix


def _pieces(place: Place, term: LowRank) -> list[_Piece]:
    """The pieces of a term, with published columns."""
    pieces: list[_Piece] = []
    for factors, matrix in zip(factors_of(term), place.matrices, strict=True):
        own = replace(factors, a=factors.b.T, b=factors.a.T) if place.is_turned else factors
        if place.columns is not None:
            a = np.empty_like(own.a)
            a[:, list(place.columns)] = own.a
            own = replace(own, a=a)
        if matrix.factors:
            own = replace(own, b=own.b / _repeated(matrix.factors))
        pieces.append(_Piece(own, matrix))
    return pieces


def _repeated(runs: tuple[tuple[int, float], ...]) -> F32:  # [rows, 1]
    return np.repeat([f for _, f in runs], [n for n, _ in runs]).astype(np.float32)[:, None]


def _joined(pieces: Iterable[_Piece], n_out: int, n_in: int) -> Factors:
    """One term of a matrix: pieces of one A share its ranks, others stand side by side."""
    groups: dict[tuple[bytes, float], Factors] = {}
    for piece in pieces:
        own = piece.factors
        key = (own.a.tobytes(), own.scale)
        group = groups.setdefault(key, Factors(own.a, np.zeros((n_out, own.rank), np.float32), own.scale))
        at = 0
        for start, n in piece.matrix.rows:
            group.b[start : start + n] = own.b[at : at + n]
            at += n
    found = [group for group in groups.values() if group.b.any()]
    if not found:
        return Factors(np.zeros((0, n_in), np.float32), np.zeros((n_out, 0), np.float32), 1.0)
    scale = found[0].scale
    each = [_like(group, group.rank, scale) for group in found]
    return Factors(np.concatenate([f.a for f in each]), np.concatenate([f.b for f in each], axis=1), scale)


def _wanted(adapter: Adapter, naming: Naming, file: ModelFile) -> Wanted:
    first, model = _chosen(naming), file.model
    weights = _weights_of(first, file)
    touched = [o for o in first.values() if adapter.terms.keys() & {*weights[o.tensor]}]
    modules = {module for origin in touched for module, _ in origin.sources}
    origins = [
        o for o in first.values() if any(module in modules for module, _ in o.sources) and weights[o.tensor]
    ]
    rows: dict[str, int] = {}
    cols: dict[str, int] = {}
    for origin in origins:
        shapes = [_shape(name, origin, model) for name in weights[origin.tensor]]
        n_sources = len(origin.sources)
        for module in {module for module, _ in origin.sources}:
            rows[module] = rows.get(module, 0) + sum(n for n, _ in shapes) // n_sources
            cols[module] = shapes[0][1]
    return Wanted(tuple(origins), rows, cols)


def _chosen(naming: Naming) -> dict[str, Origin]:
    """One origin of each tensor: the modules of transformers' classes, whose experts are parameters."""
    chosen: dict[str, Origin] = {}
    for origin in (origin for origins in naming.origins.values() for origin in origins):
        other = chosen.setdefault(origin.tensor, origin)
        if _preference(origin, naming) >= _preference(other, naming):
            chosen[origin.tensor] = origin
    return chosen


def _preference(origin: Origin, naming: Naming) -> int:
    """0 for a stack that PEFT does not know as such, 2 for its parameters of experts, else 1."""
    module, _, parameter = origin.sources[0][0].rpartition(".")
    if module.endswith(f".{EXPERTS}") and parameter in EXPERT_PARAMETERS:
        return 2
    return int(naming.settings is None or all(i == 0 for _, i in origin.sources))


def _weights_of(origins: Mapping[str, Origin], file: ModelFile) -> dict[str, list[str]]:
    """The weights that each tensor is, or is cut into; of one that the file lacks, those that no other
    gives."""
    stored = {name.removesuffix(".weight"): weight for name, weight in file.checkpoint.tensors.items()}
    own = {t: _parts(o, file.model, stored[t].shape) for t, o in origins.items() if t in stored}
    given = {name for names in own.values() for name in names}
    other = {t: _parts(o, file.model, ()) for t, o in origins.items() if t not in stored}
    return own | {t: [] if given & {*names} else names for t, names in other.items()}


def _parts(origin: Origin, model: Model, shape: Sequence[int]) -> list[str]:
    """The weights of a tensor, whose shape is () if it is not in the model's file."""
    prefix = origin.tensor[: -len(origin.short)]
    parts = [prefix + part for part, _ in ARCHS[model.spec.arch].splits.get(origin.short, ())]
    if origin.short == "attn_kv_b":
        parts = [prefix + part for part in ("attn_k_b", "attn_v_b")]
    is_whole = origin.tensor in model.weights and _n_rows(model.weights[origin.tensor].shape) == _n_rows(
        shape
    )
    if parts and not is_whole and all(part in model.weights for part in parts):
        return parts
    return [origin.tensor] if origin.tensor in model.weights else []


def _n_rows(shape: Sequence[int]) -> int:
    return shape[-2] if len(shape) > 1 else 1


def _shape(name: str, origin: Origin, model: Model) -> tuple[int, int]:
    """Rows of all matrices of a weight and its columns, as its source has them."""
    shape = model.weights[name].shape
    *stack, n_out, n_in = shape if len(shape) > 1 else (1, *shape)
    is_turned = name.endswith("attn_k_b") and origin.short != "attn_k_b"
    is_turned = is_turned or "k_of_kv_b" in origin.folds
    n = stack[0] if stack else 1
    return (n * n_in, n_out) if is_turned else (n * n_out, n_in)


def _no_module(name: str, adapter: Adapter) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{adapter.name}: {name} has no module by the names of this format, so its term cannot be written; "
        "write another format",
        kind="module",
        name=name,
    )


def naming_of_file(model: ModelFile) -> Naming:
    """The naming of a GGUF of the model: its tensors, before they are cut into weights."""
    origins: dict[str, tuple[Origin, ...]] = {}
    for name, weight in model.checkpoint.tensors.items():
        if name.endswith(".weight") and len(weight.shape) > 1:
            n = weight.shape[0] if len(weight.shape) == 3 else 1
            sources = tuple((name, i) for i in range(n))
            origins[name] = (Origin(name.removesuffix(".weight"), sources),)
    return Naming("", None, origins)
