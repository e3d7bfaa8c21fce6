"""Device layouts of weights: one row per weight type, with its layout in a storage buffer.

GGUF's blocks are aligned to two bytes. A WGSL kernel separates quants and scales once, while loading, so that
compute kernels read whole words. The number of bytes stays the same as in the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from camelid.formats.quants import QUANTS
from camelid.plan.weights import Weight

STAGING, STAGING_BYTES = "staging", 4 << 20  # buffer of uploaded bytes, the input of load kernels
TASK, TASK_BYTES = "task", 128  # buffer of a load kernel's parameters
READ_WRITE = ("storage", "copy_dst", "copy_src")


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """The device layout of a weight type.

    `codec` names the shader that decodes it, `repack` the shader that fills the buffer (empty: the file's
    bytes are used unchanged). `quant_words` is the number of u32 words of quants per block; all scales follow
    all quants, two f16 per word.
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
    """Bytes of the weight's buffer: its bytes in the file, rounded up to whole words."""
    if not LAYOUTS[weight.type].repack:
        return weight.n_bytes
    return 4 * (scales_at(weight) + -(-n_blocks(weight) // 2))


def buffer_name(weight: Weight) -> str:
    return f"weight/{weight.name}"


def bound_bytes(weight: Weight) -> int:
    """Bytes of the binding of the whole buffer."""
    return -(-device_bytes(weight) // 16) * 16
