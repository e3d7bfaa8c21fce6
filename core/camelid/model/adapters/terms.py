"""Low-rank terms of a model's weights from the pairs of an adapter's file, on the standard library alone."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from camelid.errors import CamelidError, ModelFormatError, UnsupportedModelError
from camelid.formats.adapters.pairs import AdapterFile
from camelid.formats.source import format_error, located
from camelid.model.adapter import MOST_RANK, Adapter, LowRank
from camelid.model.adapters.origins import Naming, Origin, naming_of_tensors
from camelid.model.adapters.places import Matrix, Place, find_places
from camelid.model.adapters.values import Values, read_values, transposed
from camelid.model.arch import Model


def read_adapter(
    file: AdapterFile, name: str, model: Model, namings: Sequence[Naming], *, most_rank: int = MOST_RANK
) -> Generator[tuple[int, int], bytes, Adapter]:
    """The adapter of a parsed file for a model; yields (offset, n_bytes) and receives those bytes.

    `namings` are the possible names of the model's modules; a GGUF adapter needs none. Raises
    UnsupportedModelError for a module that the model lacks or that no term can follow, and for ranks above
    `most_rank`; TensorShapeError for an adapter of another model, ModelFormatError for numbers that are not
    finite.
    """
    _check_ranks(file, most_rank)
    places, names = find_file_places(file, model, namings)
    terms: dict[str, LowRank] = {}
    values: dict[str, Values] = {}
    for place in places:
        modules = {matrix.module for matrix in place.matrices} & file.pairs.keys()
        values = {module: kept for module, kept in values.items() if module in modules}  # those of one weight
        for module in modules - values.keys():
            values[module] = yield from read_values(file.pairs[module], file.path)
        if place.weight in terms:
            raise format_error(file.path, f"{place.weight} has two terms; expected one for each weight")
        terms[place.weight] = _term(place, values)
    facts = {"format": file.format, **({"modules of": names} if names else {}), **file.facts}
    return Adapter(name=name, terms=terms, invocation=file.invocation, facts=facts)


def _check_ranks(file: AdapterFile, most: int) -> None:
    pair = max(file.pairs.values(), key=lambda pair: pair.rank)
    if pair.rank > most:
        message = (
            f"{pair.module}: rank {pair.rank}, supported are ranks up to {most}; reduce it with camelid "
            f"adapter compose --method svd --rank {most}, or merge the adapter with camelid adapter merge"
        )
        raise UnsupportedModelError(
            located(file.path, message), kind="rank", name=str(pair.rank), path=file.path, known=most
        )


def find_file_places(file: AdapterFile, model: Model, namings: Sequence[Naming]) -> tuple[list[Place], str]:
    """The places of a file's modules in a model, and the model_type whose names the modules have.

    A GGUF's namings may differ; the first one that fits is taken. Raises the errors of `read_adapter`.
    """
    if file.format == "gguf":
        namings = [naming_of_tensors({name: pair.experts or 1 for name, pair in file.pairs.items()})]
    rows = {module: pair.n_out for module, pair in file.pairs.items()}
    cols = {module: pair.n_in for module, pair in file.pairs.items()}
    errors: list[CamelidError] = []
    for origins, naming in _origins(file, namings):
        try:
            return [*find_places(origins, rows, cols, naming.settings, model)], naming.name
        except (ModelFormatError, UnsupportedModelError) as error:
            errors.append(error)
    raise errors[0] if errors else _unknown_module(file, namings)


def _origins(file: AdapterFile, namings: Sequence[Naming]) -> Iterator[tuple[tuple[Origin, ...], Naming]]:
    """The origins of the file's modules by each naming that has them all, with the file's own names.

    Namings of a model_type that the name of the adapter's base contains are first.
    """
    base = file.facts.get("base", "").lower()
    for naming in sorted(namings, key=lambda naming: naming.name.split("_")[0] not in base):
        names = naming.find(file.pairs)
        if names is None:
            continue
        own = {name: module for module, name in names.items()}
        wanted = dict.fromkeys(origin for name in own for origin in naming.origins[name])
        _check_scales(file, naming, wanted)
        origins = tuple(
            replace(each, sources=tuple((own.get(module, ""), i) for module, i in each.sources))
            for each in wanted
        )
        yield origins, naming


def _check_scales(file: AdapterFile, naming: Naming, origins: Iterable[Origin]) -> None:
    """Raises UnsupportedModelError for rows that are scaled by settings that a GGUF does not state."""
    scales = naming.settings.row.scales if naming.settings else ()
    scaled = next((origin for origin in origins if origin.short in scales), None)
    if scaled and naming.is_guess:
        module = scaled.sources[0][0]
        message = (
            f"{module}: its rows in {scaled.tensor} are scaled by settings that a GGUF does not state; give "
            "the base model's directory"
        )
        raise UnsupportedModelError(located(file.path, message), kind="module", name=module, path=file.path)


def _unknown_module(file: AdapterFile, namings: Sequence[Naming]) -> UnsupportedModelError:
    """The error of the naming that has most of the modules."""
    missing = min((naming.missing(file.pairs) for naming in namings), key=len, default=[*file.pairs])
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    message = (
        f"the adapter changes {missing[0]}{more}, but the model has no module of this name; was it made for "
        "another model?"
    )
    return UnsupportedModelError(located(file.path, message), kind="module", name=missing[0], path=file.path)


def _term(place: Place, values: Mapping[str, Values]) -> LowRank:
    """The term of one weight. Matrices without a pair have zeros, those of a smaller rank are padded."""
    pairs = [values[matrix.module].pair for matrix in place.matrices if matrix.module in values]
    rank, scale = max(pair.rank for pair in pairs), pairs[0].scale
    a, b = array("f"), array("f")
    n_in, n_out = pairs[0].n_in, sum(n for _, n in place.matrices[0].rows)
    for matrix in place.matrices:
        own = values.get(matrix.module)
        a += _a(own, matrix, place, rank) if own else _zeros(rank * n_in)
        b += _b(own, matrix, rank, scale) if own else _zeros(n_out * rank)
    if place.is_turned:
        a, b, n_in, n_out = _turned(a, b, rank, n_in, n_out)
    experts = len(place.matrices) if place.is_stack else 0
    return LowRank(
        rank=rank, n_in=n_in, n_out=n_out, scale=scale, a=memoryview(a), b=memoryview(b), experts=experts
    )


def _zeros(n: int) -> array[float]:
    return array("f", bytes(4 * n))


def _a(own: Values, matrix: Matrix, place: Place, rank: int) -> array[float]:  # [rank, in]
    a, n_in = own.a_of(matrix.number), own.pair.n_in
    if place.columns is not None:
        a = array("f", [a[row + col] for row in range(0, len(a), n_in) for col in place.columns])
    return a + _zeros(rank * n_in - len(a))


def _b(own: Values, matrix: Matrix, rank: int, scale: float) -> array[float]:  # [out, rank]
    """The matrix's rows of B, for the scale of the whole weight."""
    width, whole = own.pair.rank, own.b_of(matrix.number)
    b = whole
    if matrix.rows != ((0, own.pair.n_out),):
        b = array("f")
        for start, n in matrix.rows:
            b += whole[start * width : (start + n) * width]
    if matrix.factors or own.pair.scale != scale:
        b = _scaled(b, width, matrix.factors or ((len(b) // width, 1.0),), own.pair.scale / scale)
    return b if width == rank else _padded(b, width, rank)


def _scaled(b: array[float], width: int, runs: Sequence[tuple[int, float]], factor: float) -> array[float]:
    out, at = array("f"), 0
    for n, own in runs:
        out.extend(value * (own * factor) for value in b[at : at + n * width])
        at += n * width
    return out


def _padded(b: array[float], width: int, rank: int) -> array[float]:
    out = _zeros(len(b) // width * rank)
    for i in range(width):
        out[i::rank] = b[i::width]
    return out


def _turned(
    a: array[float], b: array[float], rank: int, n_in: int, n_out: int
) -> tuple[array[float], array[float], int, int]:
    """The factors of the transposed product of each matrix."""
    n = len(a) // (rank * n_in)
    new_a, new_b = array("f"), array("f")
    for i in range(n):
        new_a += transposed(b[i * rank * n_out : (i + 1) * rank * n_out], n_out, rank)
        new_b += transposed(a[i * rank * n_in : (i + 1) * rank * n_in], rank, n_in)
    return new_a, new_b, n_out, n_in
