"""Device layouts of weights: one row per quant type says how a file's blocks lie in a storage buffer.

GGUF's blocks are aligned to two bytes. Quants and scales are taken apart once, while loading, by a WGSL
kernel, so that a decode kernel reads whole words. The bytes stay as many as in the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from camelid.backends.webgpu.tape import Section
from camelid.errors import BackendError
from camelid.formats.quants import QUANTS
from camelid.plan.weights import INLINE, Part, Weight

STAGING_BYTES = 4 << 20
TILES_LANES = 64
READ_WRITE = ("storage", "copy_dst", "copy_src")


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """`repack` names the shader that fills the buffer; empty means that file bytes are used as they are.

    `quant_words` counts u32 words of quants a block; scales follow all quants, two f16 a word.
    """

    codec: str
    repack: str = ""
    quant_words: int = 0


LAYOUTS: dict[str, WeightLayout] = {
    "f32": WeightLayout("codec_f32"),
    "f16": WeightLayout("codec_f16"),
    "q8_0": WeightLayout("codec_q8_0", "repack_q8_0", quant_words=8),
    "q4_0": WeightLayout("codec_q4_0", "repack_q4_0", quant_words=4),
}


def n_blocks(weight: Weight) -> int:
    return weight.rows * weight.cols // QUANTS[weight.type].block


def scales_at(weight: Weight) -> int:
    """Word offset of the scales."""
    return n_blocks(weight) * LAYOUTS[weight.type].quant_words


def device_bytes(weight: Weight) -> int:
    """Bytes of the weight's buffer; equal to the file's but for rounding."""
    if not LAYOUTS[weight.type].repack:
        return weight.n_bytes
    return 4 * (scales_at(weight) + -(-n_blocks(weight) // 2))


def buffer_name(weight: Weight) -> str:
    return f"weight/{weight.name}"


def add_weight(section: Section, weight: Weight, repack_wgsl: str) -> None:
    """Appends what loads one weight: its buffer, the uploads, and the repack dispatches."""
    layout = LAYOUTS[weight.type]
    _check_whole_words(weight)
    inline = weight.parts[0].data if weight.parts[0].source == INLINE and not layout.repack else ""
    section.add_buffer(buffer_name(weight), device_bytes(weight), READ_WRITE, data=inline)
    if inline:
        return
    at = 0
    for part in weight.parts:
        if layout.repack:
            _repack_part(section, weight, part, at // QUANTS[weight.type].block_bytes, repack_wgsl)
        else:
            section.commands.append(
                ("upload", part.source, part.offset, part.n_bytes, buffer_name(weight), at)
            )
        at += part.n_bytes


def _check_whole_words(weight: Weight) -> None:
    """A kernel reads units of 8 weights and scales in pairs; rows of odd length have no layout yet."""
    layout, block = LAYOUTS[weight.type], QUANTS[weight.type]
    odd = any(part.n_bytes // block.block_bytes % 2 for part in weight.parts) if layout.repack else False
    if odd or (len(weight.shape) > 1 and weight.cols % 8):
        raise BackendError(
            f"{weight.name}: rows of {weight.cols} {weight.type} weights do not fill whole words on webgpu; "
            "use the reference backend, or a file of type f16 or f32 with rows that are multiples of 8",
            backend="webgpu",
        )


def _repack_part(section: Section, weight: Weight, part: Part, first_block: int, wgsl: str) -> None:
    layout, block_bytes = LAYOUTS[weight.type], QUANTS[weight.type].block_bytes
    bindings = section.add_layout(("read", "read", "write"))
    pipeline = section.add_pipeline(layout.repack, wgsl, bindings, {})
    group = section.add_group(
        bindings,
        [("task", 0, 16), ("staging", 0, STAGING_BYTES), (buffer_name(weight), 0, _bound_bytes(weight))],
    )
    tile_blocks = STAGING_BYTES // (2 * block_bytes) * 2
    total = part.n_bytes // block_bytes
    for start in range(0, total, tile_blocks):
        blocks = min(tile_blocks, total - start)
        offset = part.offset + start * block_bytes
        section.commands.append(_upload(part, offset, blocks * block_bytes))
        section.commands.append(("words", "task", 0, [blocks, first_block + start, scales_at(weight), 0]))
        section.dispatch(pipeline, group, [-(-blocks // (2 * TILES_LANES)), 1, 1])


def _upload(part: Part, offset: int, n_bytes: int) -> tuple[object, ...]:
    source = (INLINE, part.data) if part.source == INLINE else part.source
    return ("upload", source, offset, n_bytes, "staging", 0)


def _bound_bytes(weight: Weight) -> int:
    return -(-device_bytes(weight) // 16) * 16
