"""Stacks of matrices in MXFP4, as gpt-oss publishes them: blocks and scales as one tensor.

X_blocks has bytes [experts, out, in / 32, 16], two E2M1 values in each, the first in the low bits; X_scales
has E8M0 exponents [experts, out, in / 32]. Source: OCP Microscaling Formats specification 1.0, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from camelid.errors import TensorShapeError
from camelid.formats.hf_weights import HfTensor
from camelid.formats.quants import row_bytes

METHOD = "mxfp4"  # value of config.json's quant_method
BLOCKS, SCALES = "_blocks", "_scales"
BLOCK = 32
GROUPS = ("mxfp4", 4, BLOCK, "u8")  # arguments of the load op: the planes are those of MLX's mode mxfp4


def fold_blocks(tensors: Mapping[str, HfTensor]) -> dict[str, HfTensor]:
    """The tensors with each pair of blocks and scales as one tensor of the values' shape.

    Raises TensorShapeError for blocks without scales, and for types or shapes that do not fit.
    """
    names = {name.removesuffix(BLOCKS) for name in tensors if name.endswith(BLOCKS)}
    parts = {name + ending for name in names for ending in (BLOCKS, SCALES)}
    plain = {name: tensor for name, tensor in tensors.items() if name not in parts}
    return plain | {name: _stack(name, tensors[name + BLOCKS], tensors.get(name + SCALES)) for name in names}


def _stack(name: str, blocks: HfTensor, scales: HfTensor | None) -> HfTensor:
    want = (*scales.shape, BLOCK // 2) if scales else ()
    if scales is None or blocks.shape != want or (blocks.type, scales.type) != ("u8", "u8"):
        got = f"{blocks.type} {list(blocks.shape)}"
        raise TensorShapeError(
            f"{name}{BLOCKS}: found {got}, expected u8 {list(want) or 'beside scales'}",
            name=name,
            got=got,
            want=want,
        )
    *stack, n_groups = scales.shape
    shape = (*stack, n_groups * BLOCK)
    n_bytes = row_bytes(METHOD, shape[-1]) * (blocks.n_bytes // max(shape[-1] // 2, 1))
    planes = (blocks, scales)
    return replace(blocks, type=METHOD, shape=shape, n_bytes=n_bytes, planes=planes, groups=GROUPS)
