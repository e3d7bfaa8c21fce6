"""Device layouts of weights: one row per quant type says how a file's blocks lie in a storage buffer.

GGUF's blocks are aligned to two bytes. Quants and scales are taken apart once, while loading, by a WGSL
kernel, so that a decode kernel reads whole words. The bytes stay as many as in the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from camelid.formats.quants import QUANTS
from camelid.plan.weights import Weight

STAGING, STAGING_BYTES = "staging", 4 << 20  # where bytes of a file wait for a load kernel
TASK, TASK_BYTES = "task", 128  # what such a kernel is to do
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
    "bf16": WeightLayout("codec_bf16"),
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


def bound_bytes(weight: Weight) -> int:
    """Bytes of the whole buffer, as it is bound."""
    return -(-device_bytes(weight) // 16) * 16
