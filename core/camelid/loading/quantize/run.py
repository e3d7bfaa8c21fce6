"""`camelid quantize` to GGUF: every tensor in the type of a mix, written on all cores.

Memory is bounded by two tiles per thread. A file appears under its name only when it is complete.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from camelid.errors import RequestError
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.gguf_writer import TensorOut, infer_kinds, write_gguf
from camelid.formats.imatrix import Imatrix
from camelid.formats.progress import Progress
from camelid.formats.quants import GGUF_TYPES, QUANTS, row_bytes
from camelid.loading.convert import Conversion, check_target, stored_tiles
from camelid.loading.quantize.choice import FALLBACKS, Wishes, choose_types, missing_imatrix, part_of
from camelid.loading.quantize.importance import check_shapes, importance_of
from camelid.loading.quantize.mixes import MIXES
from camelid.loading.quantize.source import QuantizeSource, open_source
from camelid.plan.weights import Weight

if TYPE_CHECKING:
    from camelid.backends.common.quantizers.rows import RowQuantizer

TILE_VALUES = 1 << 20  # 4 MiB as float32
Added: TypeAlias = Callable[[int, int], Any]  # (first row, number of rows) -> float32 [rows, cols]
FLOATS = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeOptions:
    """Options of a quantization: the mix, wishes, an importance matrix; quantize a quantized source again;
    one file per file of the source; threads, None for one per processor.

    `added` are rows to add to those of tensors, by name; without a mix ("") each tensor then keeps its type.
    """

    to: str
    wishes: Wishes = field(default_factory=Wishes)
    imatrix: Imatrix | None = None
    allow_requantize: bool = False
    keep_split: bool = False
    threads: int | None = None
    added: Mapping[str, Added] = field(default_factory=dict[str, Added])


@dataclass(frozen=True, slots=True)
class QuantizePlan:
    """The source, the options, and the type of every tensor, by name."""

    source: QuantizeSource
    options: QuantizeOptions
    types: Mapping[str, str]

    @property
    def n_bytes(self) -> int:
        """Bytes of the quantized weights."""
        weights = self.source.weights.values()
        return sum(each.rows * row_bytes(self.types[each.name], each.cols) for each in weights)

    @property
    def n_values(self) -> int:
        """Number of weights."""
        return sum(each.rows * each.cols for each in self.source.weights.values())

    def encodes(self, name: str) -> bool:
        """True if a tensor gets another type than it has, or other values."""
        return name in self.options.added or self.types[name] != self.source.weights[name].type


def plan_quantization(model: str | PathLike[str], options: QuantizeOptions) -> QuantizePlan:
    """Chooses every tensor's type; reads headers, but no weights.

    Raises RequestError for a type without an encoder, a quantized source unless allowed, and types that
    need an importance matrix without one; ModelFormatError for an importance matrix of another model.
    """
    if options.to not in MIXES and not (options.added and not options.to):
        raise RequestError(f"type {options.to!r} cannot be written; known: {', '.join(MIXES)}", field="type")
    source = open_source(model)
    facts = source.facts(imatrix=options.imatrix is not None)
    chosen = options.to and choose_types(source.named, options.to, facts, options.wishes)
    plan = QuantizePlan(source, options, chosen or source.kept)
    _check_types(plan)
    _check_source(plan)
    _check_imatrix(plan)
    return plan


def quantize(
    model: str | PathLike[str],
    target: str | PathLike[str],
    options: QuantizeOptions,
    *,
    progress: Progress | None = None,
) -> Conversion:
    """Writes `model` as a GGUF, or as several with `keep_split`, in the types of `plan_quantization`.

    Raises its errors, RequestError for a target that is the source, and ModelFormatError for weights that a
    type cannot store, or a file that cannot be written.
    """
    plan = plan_quantization(model, options)
    source, out = plan.source, Path(target)
    check_target(source.files, out)
    from camelid.backends.common.quantizers.rows import open_quantizer

    quantizer, why_slow = open_quantizer()
    files = _files(plan, out)
    for path, _, _ in files:
        check_target(source.files, path)
    with ThreadPoolExecutor(_n_threads(options.threads)) as pool:
        shown = _joined(progress, plan.n_bytes)
        for path, weights, metadata in files:
            tensors = [_out(each, plan, quantizer, pool) for each in weights]
            kinds = infer_kinds(metadata, {**source.header.kinds, **SPLIT_KINDS})
            write_gguf(
                path,
                metadata=metadata,
                kinds={k: kinds[k] for k in metadata},
                tensors=tensors,
                progress=shown,
            )
    paths = [path for path, _, _ in files]
    counts = Counter(plan.types.values())
    n_bytes = sum(path.stat().st_size for path in paths)
    return Conversion(paths[0], source.n_bytes, n_bytes, counts, tuple(_notes(plan, why_slow)))


SPLIT_KINDS = {"split.no": "uint16", "split.count": "uint16", "split.tensors.count": "int32"}
File = tuple[Path, Sequence[Weight], dict[str, MetadataValue]]


def _files(plan: QuantizePlan, target: Path) -> list[File]:
    """The files to write: path, weights and metadata of each."""
    weights, metadata = list(plan.source.weights.values()), _metadata(plan)
    if not (plan.options.keep_split and plan.source.shards):
        return [(target, weights, metadata)]
    n, stem = len(plan.source.shards), target.name.removesuffix(".gguf")
    files: list[File] = []
    for i, shard in enumerate(plan.source.shards):
        own = [each for each in weights if each.parts[0].source == shard]
        split = {"split.no": i, "split.count": n, "split.tensors.count": len(weights)}
        first: Mapping[str, MetadataValue] = metadata if i == 0 else {}
        files.append((target.with_name(f"{stem}-{i + 1:05d}-of-{n:05d}.gguf"), own, {**first, **split}))
    return files


def _metadata(plan: QuantizePlan) -> dict[str, MetadataValue]:
    metadata = dict(plan.source.metadata)
    if plan.options.to:
        metadata["general.file_type"] = MIXES[plan.options.to].file_type
    metadata["general.quantization_version"] = 2
    imatrix = plan.options.imatrix
    if imatrix:
        metadata["quantize.imatrix.file"] = imatrix.path.name
        metadata["quantize.imatrix.dataset"] = ", ".join(imatrix.datasets)
        metadata["quantize.imatrix.entries_count"] = len(imatrix.entries)
        metadata["quantize.imatrix.chunks_count"] = imatrix.chunks
    return metadata


def _joined(progress: Progress | None, n_bytes: int) -> Progress | None:
    """Progress over all files."""
    if progress is None:
        return None
    before, last = 0, 0

    def report(name: str, done: int, total: int) -> None:
        nonlocal before, last
        if done < last:
            before += last
        last = done
        progress(name, before + done, max(n_bytes, total))

    return report


def _n_threads(wanted: int | None) -> int:
    from camelid.backends.common.processors import allowed_processors, cpu_quota

    quota = cpu_quota()
    most = len(allowed_processors())
    return wanted or max(min(most, int(quota) if quota else most), 1)


def _check_types(plan: QuantizePlan) -> None:
    """Raises RequestError for types that a GGUF or a quantizer lacks."""
    from camelid.backends.common.codecs import CODECS
    from camelid.backends.common.quantizers import QUANTIZERS

    for name, kind in plan.types.items():
        if kind not in GGUF_TYPES:
            message = f"{name}: a GGUF cannot store {kind}; give a --tensor-type for it, such as q8_0"
            raise RequestError(message, field="type")
        if plan.encodes(name) and kind not in QUANTIZERS and not CODECS[kind].encodes:
            raise RequestError(f"{name}: {kind} cannot be written, only read", field="type")


def _check_source(plan: QuantizePlan) -> None:
    """Raises RequestError if a quantized tensor would be quantized again unless that is allowed."""
    weights = plan.source.weights
    again = [name for name in plan.types if plan.encodes(name) and weights[name].type not in FLOATS]
    if again and not plan.options.allow_requantize:
        raise RequestError(
            f"{plan.source.name} is quantized already ({again[0]} is {weights[again[0]].type}), and more "
            "is lost by quantizing again; take the unquantized model, or give --allow-requantize",
            field="model",
        )


def _check_imatrix(plan: QuantizePlan) -> None:
    imatrix = plan.options.imatrix
    entries = [*imatrix.entries] if imatrix else list[str]()
    keeps = [name for name in plan.types if not plan.encodes(name)]
    missing = missing_imatrix(plan.types, plan.options.to, entries, keeps)
    if missing:
        has = f"the importance matrix has no entry for {missing[0]}" if imatrix else f"{missing[0]} needs it"
        raise RequestError(
            f"{plan.options.to or 'the model'} needs an importance matrix ({has}, as "
            f"{plan.types[missing[0]]}); collect one with camelid imatrix MODEL -f TEXT -o FILE, and give "
            "--imatrix FILE",
            field="imatrix",
        )
    if imatrix:
        check_shapes(imatrix, [w for w in plan.source.weights.values() if plan.encodes(w.name)])


def _notes(plan: QuantizePlan, why_slow: str) -> Iterator[str]:
    """Yields what the result lacks."""
    yield from plan.source.losses
    imatrix, to = plan.options.imatrix, plan.options.to
    odd = [w.name for w in plan.source.weights.values() if _is_fallback(plan, w)]
    if odd:
        kinds = ", ".join(sorted({plan.types[name] for name in odd}))
        yield f"{len(odd)} tensors have {kinds}, as blocks of {to} do not divide their rows, such as {odd[0]}"
    if imatrix:
        without = [n for n in plan.types if part_of(n) and plan.encodes(n) and n not in imatrix.entries]
        if without:
            yield f"the importance matrix has no entry for {len(without)} matrices, such as {without[0]}"
    if why_slow:
        yield f"NumPy quantized on one thread at a time, which is slow: {why_slow}"


def _is_fallback(plan: QuantizePlan, weight: Weight) -> bool:
    if not plan.options.to:
        return False
    own = MIXES[plan.options.to].type
    kind = plan.types[weight.name]
    is_odd = weight.cols % QUANTS[own].block != 0
    return plan.encodes(weight.name) and is_odd and kind in (*FALLBACKS.values(), "f16")


def _out(weight: Weight, plan: QuantizePlan, quantizer: RowQuantizer, pool: ThreadPoolExecutor) -> TensorOut:
    """One tensor of the result, in its own type or encoded anew."""
    to, files = plan.types[weight.name], plan.source.files
    if not plan.encodes(weight.name):
        return TensorOut(weight.name, to, weight.shape, stored_tiles(weight, files))
    chunks = _encoded(weight, to, plan, quantizer, pool)
    return TensorOut(weight.name, to, weight.shape, chunks)


def _encoded(
    weight: Weight, to: str, plan: QuantizePlan, quantizer: RowQuantizer, pool: ThreadPoolExecutor
) -> Callable[[], Iterator[bytes]]:
    """A function that yields encoded tiles in order, while threads encode the next ones."""

    def chunks() -> Iterator[bytes]:
        importance = importance_of(plan.options.imatrix, weight)
        jobs = deque[Future[bytes]]()
        ahead = 2 * _n_threads(plan.options.threads)
        try:
            for start, n in _tiles(weight):
                mean = importance(start) if importance else None
                jobs.append(pool.submit(_encode, weight, to, plan, quantizer, mean, start, n))
                if len(jobs) >= ahead:
                    yield jobs.popleft().result()
            while jobs:
                yield jobs.popleft().result()
        finally:
            for job in jobs:
                job.cancel()

    return chunks


def _tiles(weight: Weight) -> Iterator[tuple[int, int]]:
    """Tiles of rows, none of which spans two matrices of a stack."""
    from camelid.backends.common.load_ops import tiles

    height = weight.shape[-2] if len(weight.shape) > 1 else 1
    for start, n in tiles(weight, TILE_VALUES):
        end = start + n
        while start < end:
            stop = min(end, (start // height + 1) * height)
            yield start, stop - start
            start = stop


def _encode(
    weight: Weight,
    to: str,
    plan: QuantizePlan,
    quantizer: RowQuantizer,
    importance: Any,
    start: int,
    n: int,
) -> bytes:
    from camelid.backends.common.load_ops import encode_rows, load_rows
    from camelid.backends.common.part_reader import PartReader

    with PartReader(plan.source.files) as reader:
        values = load_rows(weight, reader.read, start, n)
    if added := plan.options.added.get(weight.name):
        values = values + added(start, n)
    return encode_rows(weight.name, to, values, lambda name, rows: quantizer.rows(name, rows, importance))
