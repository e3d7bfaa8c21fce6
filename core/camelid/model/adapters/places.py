"""Places: the rows and columns of published matrices that each weight of a model has.

The folds and cuts that make a weight from published matrices run on the numbers of their rows, as a matrix of
one column, so that rows of B are moved as the weight's rows are. Folds of columns run on the numbers of
columns, and move those of A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from camelid.errors import TensorShapeError, UnsupportedModelError
from camelid.model.adapters.origins import Origin
from camelid.model.arch import ELEMENTWISE, Model
from camelid.model.archs import ARCHS
from camelid.model.hf_folds import FOLDS, scaled
from camelid.model.hf_settings import HfSettings
from camelid.model.latent import fits
from camelid.model.tensors import split_tensors
from camelid.plan.weights import LoadOp, Part, Weight, take_rows

T = TypeVar("T")

F32 = 4
EMBEDDINGS = ("token_embd", "position_embd", "token_types", "per_layer_token_embd")
COLUMN_FOLDS = ("columns_by_key_head", "tiled_columns")
# Folds that change how a published matrix is stored: factors state inputs and outputs whatever their order.
STORAGE_FOLDS = ("transpose", "transpose_each", "outputs_first")
K_FOLD, V_FOLD = (
    "k_of_kv_b",
    "v_of_kv_b",
)  # parts of latent attention's matrix; the first is stored transposed
NO_ROWS = ("stack",)  # experts below each other, which no published class has as a module
Spans = tuple[tuple[int, int], ...]  # (first row, number of rows), in order


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix of a weight: rows `rows` of matrix `number` of a module, times their `factors`."""

    module: str
    number: int
    rows: Spans
    factors: tuple[tuple[int, float], ...] = ()  # (number of rows, factor) runs; empty: all 1


@dataclass(frozen=True, slots=True)
class Place:
    """The matrices of one weight, and the published column of each of its columns (None: the same).

    A turned weight has the transposed rows of its source.
    """

    weight: str
    is_stack: bool
    matrices: tuple[Matrix, ...]
    columns: tuple[int, ...] | None = None
    is_turned: bool = False


def _alternate(start: int) -> Callable[[Weight, HfSettings], Weight]:
    """Every other row of each matrix."""

    def fold(weight: Weight, _: HfSettings) -> Weight:
        *stack, n, _width = weight.shape
        return (
            weight
            if n % 2
            else replace(weight, shape=(*stack, n // 2, 1)).then("every", start, 2, weight.rows)
        )

    return fold


def _of_kv_b(origin: Origin, weight: Weight, model: Model) -> Weight:
    """The rows of keys or of values of each head, as a stack, of the matrix that expands both."""
    mla = model.spec.mla
    nope, value = (model.spec.head_dim - mla.rope_dim, mla.value_dim) if mla else (0, 0)
    heads, is_key = range(model.spec.n_heads), K_FOLD in origin.folds
    if not mla or not fits(weight, len(heads), nope, value):
        return weight
    start, n = (0, nope) if is_key else (nope, value)
    spans = [(head * (nope + value) + start, n) for head in heads]
    return replace(take_rows(weight, weight.name, spans), shape=(len(heads), n, 1))


# Folds whose rows of B differ from those of a stored matrix.
ROW_FOLDS: Mapping[str, Callable[[Weight, HfSettings], Weight]] = {
    "even": _alternate(0),
    "odd": _alternate(1),
    "left_half": FOLDS["first_half"],
    "right_half": FOLDS["second_half"],
}


def find_places(
    origins: Iterable[Origin],
    rows: Mapping[str, int],
    cols: Mapping[str, int],
    settings: HfSettings | None,
    model: Model,
) -> Iterator[Place]:
    """The places of the weights that origins give; `rows` and `cols` are those of a matrix by known module.

    Raises UnsupportedModelError for a fold or a weight that no low-rank term can follow, TensorShapeError for
    a weight that the model lacks or that has another shape.
    """
    numbered = [part for origin in origins for part in _parts(origin, model)]
    _check_once(numbered)
    known = [next(module for module, _ in origin.sources if module in rows) for origin in numbered]
    probes = {
        f"{o.tensor}.weight": _rows_of(o, str(i), rows[known[i]], settings, model)
        for i, o in enumerate(numbered)
    }
    for name, weight in split_tensors(probes, model.spec, ARCHS[model.spec.arch]).items():
        i = int(weight.parts[0].source)
        sizes = rows[known[i]], cols[known[i]]
        yield _place(name.removesuffix(".weight"), weight, numbered[i], sizes, settings, model)


def _parts(origin: Origin, model: Model) -> list[Origin]:
    """The origin, or those of the parts of latent attention that a model absorbs."""
    if origin.short != "attn_kv_b" or origin.tensor in model.weights or not model.spec.mla:
        return [origin]
    prefix = origin.tensor.removesuffix("kv_b")
    return [
        Origin(f"{prefix}{part}_b", origin.sources, (*origin.folds, fold))
        for part, fold in (("k", K_FOLD), ("v", V_FOLD))
    ]


def _check_once(origins: Sequence[Origin]) -> None:
    """Raises UnsupportedModelError for two modules that change one tensor."""
    named: dict[str, Origin] = {}
    for origin in origins:
        if other := named.get(origin.tensor):
            raise _unsupported(origin, f"the module {other.sources[0][0]} too")
        named[origin.tensor] = origin


def _rows_of(origin: Origin, source: str, n_rows: int, settings: HfSettings | None, model: Model) -> Weight:
    """The numbers of rows of all sources, after the folds of rows."""
    n = len(origin.sources)
    shape = (n, n_rows, 1) if n > 1 else (n_rows, 1)
    weight = Weight(
        name=f"{origin.tensor}.weight", type="f32", shape=shape, parts=(Part(source, 0, n * n_rows * F32),)
    )
    if {K_FOLD, V_FOLD} & {*origin.folds}:
        return _of_kv_b(origin, weight, model)
    if settings is None:
        return weight
    if origin.short in settings.row.scales:
        weight = scaled(weight, settings.row.scales[origin.short](settings.config, weight.rows))
    for fold in origin.folds:
        if fold in NO_ROWS:
            raise _unsupported(origin, fold)
        if fold not in (*COLUMN_FOLDS, *STORAGE_FOLDS):
            weight = ROW_FOLDS.get(fold, FOLDS.get(fold, _no_fold))(weight, settings)
    return weight


def _no_fold(weight: Weight, _: HfSettings) -> Weight:
    return weight


def _place(
    name: str,
    weight: Weight,
    origin: Origin,
    sizes: tuple[int, int],
    settings: HfSettings | None,
    model: Model,
) -> Place:
    """The place of one weight, checked against the model; `sizes` are those of a source."""
    n_rows, n_cols = sizes
    own = model.weights.get(name)
    short = name.rpartition(".")[2]
    if own is None or len(own.shape) < 2 or short in (*EMBEDDINGS, *ELEMENTWISE):
        raise _no_target(origin, name, own)
    *stack, n_out, n_in = own.shape
    is_turned = K_FOLD in origin.folds
    want = (*stack, n_in, n_out) if is_turned else own.shape
    if (*weight.shape[:-1], n_cols) != want:
        got = (*weight.shape[:-1], n_cols)
        message = (
            f"{origin.sources[0][0]}: the adapter gives {name} the shape {got}, but the model has {want}"
        )
        raise TensorShapeError(f"{message}; was it made for another model?", name=name, got=got, want=want)
    height = weight.shape[-2]
    numbers, factors = _numbers(weight, len(origin.sources) * n_rows, origin)
    parts = [numbers[i : i + height] for i in range(0, len(numbers), height)]
    scales = [factors[i : i + height] for i in range(0, len(factors), height)] or [[]] * len(parts)
    matrices = tuple(
        _matrix(origin, part, own_scales, n_rows) for part, own_scales in zip(parts, scales, strict=True)
    )
    return Place(name, len(own.shape) == 3, matrices, _columns(origin, n_cols, settings), is_turned)


def _matrix(origin: Origin, numbers: Sequence[int], factors: Sequence[float], n_rows: int) -> Matrix:
    sources = {
        number // n_rows for number in (numbers if isinstance(numbers, list) else (numbers[0], numbers[-1]))
    }
    if len(sources) > 1:
        raise _unsupported(origin, "rows of several modules in one matrix")
    source = sources.pop()
    module, number = origin.sources[source]
    return Matrix(module, number, _spans(numbers, source * n_rows), _runs(factors))


def _spans(numbers: Sequence[int], first: int) -> Spans:
    """Runs of consecutive numbers, less `first`."""
    if isinstance(numbers, range):
        return ((numbers.start - first, len(numbers)),)
    starts = [0, *(i for i, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1), len(numbers)]
    return tuple((numbers[a] - first, b - a) for a, b in pairwise(starts))


def _runs(factors: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """Runs of equal factors; none if all are 1."""
    if all(factor == 1.0 for factor in factors):
        return ()
    starts = [0, *(i for i, (a, b) in enumerate(pairwise(factors), 1) if a != b), len(factors)]
    return tuple((b - a, factors[a]) for a, b in pairwise(starts))


def _numbers(weight: Weight, n: int, origin: Origin) -> tuple[Sequence[int], list[float]]:
    """The published number of each row, and its factor ([]: all 1)."""
    parts = [range(p.offset // F32, (p.offset + p.n_bytes) // F32) for p in weight.parts]
    moves = [op for op in weight.load_ops if op.name not in ("concat", "cast")]
    if len(parts) == 1 and not moves:
        return parts[0], []
    numbers = [i for part in parts for i in part]
    factors: list[float] = []
    for op in moves:
        if op.name == "scale_rows":
            factors = [
                float(f) for k, f in zip(op.args[::2], op.args[1::2], strict=True) for _ in range(int(k))
            ]
        elif op.name in MOVES:
            numbers = MOVES[op.name](numbers, op)
            factors = MOVES[op.name](factors, op) if factors else []
        else:
            raise _unsupported(origin, op.name)
    assert all(0 <= number < n for number in numbers)
    return numbers, factors


def _columns(origin: Origin, n_cols: int, settings: HfSettings | None) -> tuple[int, ...] | None:
    """The published column of each column; None if folds leave them in place."""
    folds = [fold for fold in origin.folds if fold in COLUMN_FOLDS]
    if not folds or settings is None:
        return None
    part = Part("columns", 0, n_cols * F32)
    weight = Weight(name=f"{origin.tensor}.weight", type="f32", shape=(1, n_cols), parts=(part,))
    for fold in folds:
        weight = FOLDS[fold](weight, settings)
    columns = [*range(n_cols)]
    for op in weight.load_ops:
        columns = _transposed(columns, op)
    return tuple(columns)


def _of(values: list[T], op: LoadOp, at: int) -> tuple[list[int], int]:
    numbers = [int(number) for number in op.args]
    return numbers, len(values) // numbers[at]


def _rows(values: list[T], op: LoadOp) -> list[T]:
    (start, n, _), width = _of(values, op, 2)
    return values[start * width : (start + n) * width]


def _every(values: list[T], op: LoadOp) -> list[T]:
    start, step = (int(number) for number in op.args[:2])
    return values[start::step]


def _pick(values: list[T], op: LoadOp) -> list[T]:
    (_, *picked), width = _of(values, op, 0)
    return [value for i in picked for value in values[i * width : (i + 1) * width]]


def _permute_rows(values: list[T], op: LoadOp) -> list[T]:
    """Row (head, half, i) moves to (head, i, half)."""
    size = int(op.args[1])
    heads = range(0, len(values), size)
    return [values[h + half * (size // 2) + i] for h in heads for i in range(size // 2) for half in (0, 1)]


def _transposed(values: list[T], op: LoadOp) -> list[T]:
    rows, cols = (int(number) for number in op.args)
    blocks = range(0, len(values), rows * cols)
    return [values[start + r * cols + c] for start in blocks for c in range(cols) for r in range(rows)]


# Load ops that move rows of a matrix of one column, on its values.
MOVES: Mapping[str, Callable[[list[Any], LoadOp], list[Any]]] = {
    "rows": _rows, "every": _every, "pick": _pick, "permute_rows": _permute_rows,
}  # fmt: skip


def _unsupported(origin: Origin, what: str) -> UnsupportedModelError:
    module = origin.sources[0][0]
    return UnsupportedModelError(
        f"{module}: adapters of this module are not supported, since {origin.tensor} is made from it by "
        f"{what}; merge the adapter into its base with PEFT",
        kind="module",
        name=module,
    )


def _no_target(origin: Origin, name: str, own: Weight | None) -> UnsupportedModelError:
    module = origin.sources[0][0]
    found = "the model has no such weight" if own is None else f"{name} multiplies no vectors"
    if own is None and name == "output":
        found = "the model's head is its token embedding"
    return UnsupportedModelError(
        f"{module}: adapters of this module are not supported: {found}; leave it out of target_modules",
        kind="module",
        name=module,
    )
