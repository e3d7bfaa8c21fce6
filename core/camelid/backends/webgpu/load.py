"""Loading of weights to device buffers: unchanged, repacked, or rearranged by load ops.

Bytes go from the source to the device and are transformed there; Python only computes offsets. Tiles of at
most STAGING_BYTES are uploaded, and a kernel moves each element to its place, so a matrix of any size can be
transposed.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Sequence
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

LANES = 64
NEGATE_EXP = "neg_exp"
MOVABLE = {"f32": 0, "f16": 1, "bf16": 2}  # source type -> its number in rearrange.wgsl
MAX_MOVES = (TASK_BYTES // 4 - 7) // 5


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
    if _addend(weight) and NEGATE_EXP in _names(weight):
        raise _refusal(weight, f"load ops add and {NEGATE_EXP} of one weight have no kernel")
    is_unchanged = weight.type == weight.stored_type and not _changes_values(weight)
    if weight.stored_type not in MOVABLE or not (weight.type == "f32" or is_unchanged):
        names = ", ".join(_names(weight))
        raise _refusal(
            weight, f"load ops ({names}) from {weight.stored_type} to {weight.type} have no kernel"
        )
    return moves


def _is_plain(weight: Weight, moves: Sequence[Move]) -> bool:
    """True if loading changes neither the values nor their places."""
    return not moves and not _changes_values(weight) and weight.stored_type == weight.type


def _add_buffer(section: Section, weight: Weight, data: str = "") -> None:
    section.add_buffer(buffer_name(weight), device_bytes(weight), READ_WRITE, data=data)


def _fills_words(weight: Weight) -> bool:
    """True if every part starts at a word of the buffer."""
    return all(part.n_bytes % 4 == 0 for part in weight.parts[:-1])


def _copy(section: Section, weight: Weight) -> None:
    """Uploads the file's bytes unchanged to the weight's buffer."""
    if len(weight.parts) == 1 and weight.parts[0].source == INLINE:
        _add_buffer(section, weight, weight.parts[0].data)
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
    add_bits = struct.unpack("<I", struct.pack("<f", sum(_addend(weight))))[0]
    negates = int(NEGATE_EXP in _names(weight))
    how = (MOVABLE[weight.stored_type], int(weight.type != "f32"), add_bits, negates, len(moves))
    first = 0
    for part in weight.parts:
        for start in range(0, part.n_bytes, STAGING_BYTES):
            n = min(STAGING_BYTES, part.n_bytes - start) // element
            words = (n, first + start // element, *how, *(word for move in moves for word in move))
            _tile(section, part, start, n * element, words)
            section.dispatch(*kernel, [-(-n // LANES), 1, 1])
        first += part.n_bytes // element


def _names(weight: Weight) -> list[str]:
    return [op.name for op in weight.load_ops]


def _changes_values(weight: Weight) -> bool:
    return bool(_addend(weight)) or NEGATE_EXP in _names(weight)


def _addend(weight: Weight) -> list[float]:
    return [float(op.args[0]) for op in weight.load_ops if op.name == "add"]


def _moves(weight: Weight) -> list[Move]:
    """The moves of load ops that change the places of elements."""
    stored = QUANTS[weight.stored_type]
    total = sum(part.n_bytes for part in weight.parts) // stored.block_bytes * stored.block
    moves: list[Move] = []
    for op in weight.load_ops:
        if op.name not in MOVES:
            raise _refusal(weight, f"the load op {op.name!r} has no kernel")
        moves += (_checked(weight, op, move, total) for move in MOVES[op.name](op, total))
        total = moves[-1][1] if moves else total
    if total != prod(weight.shape) or total >= 1 << 32 or len(moves) > MAX_MOVES:
        raise _refusal(weight, f"{len(moves)} moves of {total} elements do not make {list(weight.shape)}")
    return moves


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
    "transpose": _transpose,
    "permute_rows": _permute_rows,
    "rows": _rows,
}


def _refusal(weight: Weight, reason: str) -> BackendError:
    return BackendError(
        f"{weight.name}: {reason} on webgpu; use the reference backend, or a file of type f16 or f32",
        backend="webgpu",
    )
