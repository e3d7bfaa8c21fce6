"""Loading of weights to device buffers: unchanged, repacked, or rearranged by load ops.

Bytes go from the source to the device and are transformed there; Python only computes offsets. Tiles of at
most STAGING_BYTES are uploaded, and a kernel moves each element to its place, so a matrix of any size can be
transposed.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from math import prod

from camelid.backends.common.grid_tables import book_bytes
from camelid.backends.common.plain_weights import plain_weight
from camelid.backends.webgpu.layouts import (
    LAYOUTS,
    READ_WRITE,
    STAGING,
    STAGING_BYTES,
    TASK,
    TASK_BYTES,
    bound_bytes,
    buffer_name,
    device_bytes,
    plane_words,
    planes_of,
)
from camelid.backends.webgpu.tape import Section
from camelid.errors import BackendError
from camelid.formats.quants import QUANTS
from camelid.plan.weights import INLINE, LoadOp, Part, Weight

Join = Callable[..., str]  # shaders.join: names of shader files to WGSL
# (start, n, b, c, d): select n elements from start, then swap axes 1 and 2 of [-1, b, c, d].
Move = tuple[int, int, int, int, int]
Run = tuple[int, float]  # number of rows, factor

LANES, HEADER_WORDS = 64, 6  # words of a task before its moves
NEGATE_EXP, SCALE, PICK = "neg_exp", "scale_rows", "pick"
CHANGES = ("add", NEGATE_EXP, SCALE)  # load ops that change values
MOVABLE = {"f32": 0, "f16": 1, "bf16": 2}  # source type -> its number in rearrange.wgsl
MAX_WORDS = TASK_BYTES // 4


def add_weight(section: Section, weight: Weight, join: Join) -> None:
    """Appends a weight's buffer, uploads and dispatches.

    Raises BackendError if no kernel can load the weight.
    """
    moves = check_weight(weight)
    if not _is_plain(weight, moves):
        _add_buffer(section, weight)
        _rearrange(section, weight, moves, join)
    elif not LAYOUTS[weight.type].planes and _fills_words(weight):
        _copy(section, weight)
    else:
        _repack(section, weight, join)


def check_weight(weight: Weight) -> list[Move]:
    """The moves of the weight's load ops. Raises BackendError if no kernel can load the weight."""
    weight = plain_weight(weight)
    moves = _moves(weight)
    if _is_plain(weight, moves):
        return moves
    changes = {*_changes(weight)}
    if len(changes) > 1:
        raise _refusal(weight, f"load ops {' and '.join(sorted(changes))} of one weight have no kernel")
    is_unchanged = weight.type == weight.stored_type and not changes
    if weight.stored_type not in MOVABLE or not (weight.type == "f32" or is_unchanged):
        names = ", ".join(_names(weight))
        raise _refusal(
            weight, f"load ops ({names}) from {weight.stored_type} to {weight.type} have no kernel"
        )
    return moves


def _is_plain(weight: Weight, moves: Sequence[Move]) -> bool:
    """True if loading changes neither the values nor their places."""
    return not (moves or _changes(weight) or _picked(weight)) and weight.stored_type == weight.type


def _add_buffer(section: Section, weight: Weight, data: str = "") -> None:
    section.add_buffer(buffer_name(weight), device_bytes(weight), READ_WRITE, data=data)


def _fills_words(weight: Weight) -> bool:
    """True if every part starts at a word of the buffer."""
    return all(part.n_bytes % 4 == 0 for part in weight.parts[:-1])


def _copy(section: Section, weight: Weight) -> None:
    """Uploads the file's bytes unchanged to the weight's buffer."""
    part = weight.parts[0]
    if len(weight.parts) == 1 and part.source == INLINE and part.n_bytes % 4 == 0:
        _add_buffer(section, weight, part.data)
        return
    _add_buffer(section, weight)
    at = 0
    for part in weight.parts:
        for start in range(0, part.n_bytes, STAGING_BYTES):
            n_bytes = min(STAGING_BYTES, part.n_bytes - start)
            _upload(section, part, start, n_bytes, (buffer_name(weight), at + start))
        at += part.n_bytes


def _upload(section: Section, part: Part, start: int, n_bytes: int, to: tuple[str, int]) -> None:
    source = (INLINE, part.data) if part.source == INLINE else part.source
    section.commands.append(("upload", source, part.offset + start, n_bytes, *to))


def _tile(section: Section, part: Part, start: int, n_bytes: int, words: Sequence[int]) -> None:
    """Uploads bytes of a part to the staging buffer, and parameters to the task buffer."""
    _upload(section, part, start, n_bytes, (STAGING, 0))
    section.commands.append(("words", TASK, 0, list(words)))


def _kernel(section: Section, weight: Weight, files: Sequence[str], join: Join) -> tuple[int, int]:
    """(pipeline, bind group) of a load kernel, whose bindings are task, staging and the weight."""
    layout = section.add_layout(("read", "read", "write"))
    places = [
        (TASK, 0, TASK_BYTES),
        (STAGING, 0, STAGING_BYTES),
        (buffer_name(weight), 0, bound_bytes(weight)),
    ]
    pipeline = section.add_pipeline("+".join(files), join(*files), layout, {})
    return pipeline, section.add_group(layout, places)


def _repack(section: Section, weight: Weight, join: Join) -> None:
    """Splits blocks into planes, and uploads the codebook after the planes."""
    _add_buffer(section, weight)
    kernel = _kernel(section, weight, ("repack",), join)
    block_bytes, first = QUANTS[weight.type].block_bytes, 0
    tile_blocks = STAGING_BYTES // block_bytes
    for part in weight.parts:
        total = part.n_bytes // block_bytes
        for start in range(0, total, tile_blocks):
            blocks = min(tile_blocks, total - start)
            _upload(section, part, start * block_bytes, blocks * block_bytes, (STAGING, 0))
            _split(section, weight, kernel, first + start, blocks)
        first += total
    book = LAYOUTS[weight.type].book
    if book:
        data = base64.b64encode(book_bytes(book)).decode()
        to = (buffer_name(weight), 4 * plane_words(weight)[-1])
        section.commands.append(("upload", (INLINE, data), 0, len(book_bytes(book)), *to))


def _split(section: Section, weight: Weight, kernel: tuple[int, int], first: int, blocks: int) -> None:
    """Dispatches that copy each plane of staged blocks to its place."""
    block_bytes = QUANTS[weight.type].block_bytes
    for (start, width), word in zip(planes_of(weight.type), plane_words(weight), strict=False):
        words = [blocks, first, block_bytes, start, width, word]
        section.commands.append(("words", TASK, 0, words))
        n_words = blocks * width // 4 + 2  # the first and the last may be shared with other blocks
        section.dispatch(*kernel, [-(-n_words // LANES), 1, 1])


def _rearrange(section: Section, weight: Weight, moves: Sequence[Move], join: Join) -> None:
    """Moves every element to its place; 16-bit elements stay 16 bits wide unless cast to f32."""
    kernel = _kernel(section, weight, ("fine_exp", "rearrange"), join)
    element = QUANTS[weight.stored_type].block_bytes
    negates, addend = int(NEGATE_EXP in _names(weight)), _bits(sum(_addend(weight)))
    how = (MOVABLE[weight.stored_type], int(weight.type != "f32"), addend, negates)
    tail = _tail_words(weight, moves)
    first = 0
    for part in weight.parts:
        for start in range(0, part.n_bytes, STAGING_BYTES):
            n = min(STAGING_BYTES, part.n_bytes - start) // element
            _tile(section, part, start, n * element, (n, first + start // element, *how, *tail))
            section.dispatch(*kernel, [-(-n // LANES), 1, 1])
        first += part.n_bytes // element


def _names(weight: Weight) -> list[str]:
    return [op.name for op in weight.load_ops]


def _changes(weight: Weight) -> list[str]:
    """Names of the load ops that change values."""
    return [name for name in _names(weight) if name in CHANGES]


def _tail_words(weight: Weight, moves: Sequence[Move]) -> list[int]:
    """Words of a task behind its header."""
    return [*_moves_words(moves), *_runs_words(weight), *_picked_words(weight)]


def _moves_words(moves: Sequence[Move]) -> list[int]:
    return [len(moves), *chain.from_iterable(moves)]


def _runs_words(weight: Weight) -> list[int]:
    """Number of runs of rows, columns of a row, then the end and the factor of each run."""
    runs = _runs(weight)
    ends = accumulate(n for n, _ in runs)
    pairs = ((end, _bits(factor)) for end, (_, factor) in zip(ends, runs, strict=True))
    return [len(runs), weight.cols, *chain.from_iterable(pairs)]


def _picked_words(weight: Weight) -> list[int]:
    """Number of picked rows, numbers of a row, then the row of each; 0 if all rows are loaded."""
    picked = _picked(weight)
    return [len(picked), prod(weight.shape) // len(picked), *picked] if picked else [0]


def _bits(number: float) -> int:
    return struct.unpack("<I", struct.pack("<f", number))[0]


def _runs(weight: Weight) -> list[Run]:
    """Runs of rows with the factor of each, in the order of the loaded rows; [] if no row is scaled."""
    runs: list[Run] = []
    for op in weight.load_ops:
        if op.name == SCALE and not runs:
            runs = [(int(n), float(by)) for n, by in zip(op.args[::2], op.args[1::2], strict=True)]
        elif runs and op.name != "rows":
            raise _refusal(weight, f"the load op {op.name!r} after {SCALE!r} has no kernel")
        elif runs:
            runs = _cut_runs(runs, int(op.args[0]), int(op.args[1]))
    return runs


def _cut_runs(runs: Sequence[Run], start: int, n: int) -> list[Run]:
    """The runs of rows `start .. start + n`."""
    ends = accumulate(length for length, _ in runs)
    spans = (
        (max(end - length, start), min(end, start + n), by)
        for end, (length, by) in zip(ends, runs, strict=True)
    )
    return [(end - first, by) for first, end, by in spans if first < end]


def _picked(weight: Weight) -> list[int]:
    """The picked row for each loaded one; [] if no row is picked."""
    picked: list[int] = []
    for op in weight.load_ops:
        if op.name == PICK and not picked:
            picked = [int(row) for row in op.args[1:]]
        elif picked and op.name == "rows" and op.args[2] == len(picked):
            picked = picked[int(op.args[0]) :][: int(op.args[1])]
        elif picked and op.name not in CHANGES:
            raise _refusal(weight, f"the load op {op.name!r} after {PICK!r} has no kernel")
    return picked


def _addend(weight: Weight) -> list[float]:
    return [float(op.args[0]) for op in weight.load_ops if op.name == "add"]


def _moves(weight: Weight) -> list[Move]:
    """The moves of load ops that change the places of elements."""
    stored = QUANTS[weight.stored_type]
    total = sum(part.n_bytes for part in weight.parts) // stored.block_bytes * stored.block
    moves: list[Move] = []
    for op in weight.load_ops:
        if op.name == PICK:  # a row may have several places, so the kernel picks behind all moves
            total = _picked_total(weight, op, total)
            break
        if op.name not in MOVES:
            raise _refusal(weight, f"the load op {op.name!r} has no kernel")
        moves += (_checked(weight, op, move, total) for move in MOVES[op.name](op, total))
        total = moves[-1][1] if moves else total
    if total != prod(weight.shape) or total >= 1 << 32:
        raise _refusal(weight, f"{len(moves)} moves of {total} elements do not make {list(weight.shape)}")
    _check_rows(weight, moves)
    return moves


def _picked_total(weight: Weight, op: LoadOp, total: int) -> int:
    """Number of elements of the picked rows, out of `total` elements."""
    of, *rows = (int(number) for number in op.args)
    if of < 1 or total % of or not rows or not 0 <= min(rows) <= max(rows) < of:
        raise _refusal(weight, f"{PICK}{op.args} does not fit {total} elements")
    return total // of * len(_picked(weight))


def _check_rows(weight: Weight, moves: Sequence[Move]) -> None:
    """Raises BackendError if runs of rows are not all rows, or if a task has no place for moves and rows."""
    runs, picked = _runs(weight), _picked(weight)
    if runs and sum(n for n, _ in runs) != weight.rows:
        raise _refusal(weight, f"{SCALE} of {sum(n for n, _ in runs)} rows, expected {weight.rows}")
    if HEADER_WORDS + len(_tail_words(weight, moves)) > MAX_WORDS:
        what = f"{len(moves)} moves, {len(runs)} runs of rows and {len(picked)} picked rows"
        raise _refusal(weight, f"{what} do not fit a kernel's task")


def _checked(weight: Weight, op: LoadOp, move: Move, total: int) -> Move:
    start, n, *axes = move
    if start + n > total or n % max(prod(axes), 1) or min(n, *axes) < 1:
        raise _refusal(weight, f"{op.name}{op.args} does not fit {total} elements")
    return move


def _transpose(op: LoadOp, total: int) -> Iterable[Move]:
    rows, cols = (int(n) for n in op.args)
    return [(0, total, rows, cols, 1)] if total % (rows * cols) == 0 else [(0, total + 1, 1, 1, 1)]


def _permute_rows(op: LoadOp, total: int) -> Iterable[Move]:
    n_heads, head_dim = (int(n) for n in op.args)
    return [(0, total, 2, head_dim // 2, total // (n_heads * head_dim))]


def _rows(op: LoadOp, total: int) -> Iterable[Move]:
    start, n, of = (int(number) for number in op.args)
    return [(start * (total // of), n * (total // of), 1, 1, 1)]


MOVES: dict[str, Callable[[LoadOp, int], Iterable[Move]]] = {
    "concat": lambda op, total: (),
    "cast": lambda op, total: (),
    "add": lambda op, total: (),
    NEGATE_EXP: lambda op, total: (),
    SCALE: lambda op, total: (),
    "transpose": _transpose,
    "permute_rows": _permute_rows,
    "rows": _rows,
}


def _refusal(weight: Weight, reason: str) -> BackendError:
    return BackendError(
        f"{weight.name}: {reason} on webgpu; use the reference backend, or a file of type f16 or f32",
        backend="webgpu",
    )
