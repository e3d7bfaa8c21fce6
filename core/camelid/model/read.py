"""Reads a checkpoint into a `Model`: its row of `ARCHS` gives the spec and the rule of every tensor."""

from __future__ import annotations

from collections.abc import Generator

from camelid.errors import UnsupportedModelError, nearest, shown
from camelid.formats.gguf import Gguf
from camelid.model.arch import Arch, Model
from camelid.model.archs import ARCHS
from camelid.model.checkpoint import Checkpoint, checkpoint_of_gguf, read_f32
from camelid.model.rope_specs import Factors
from camelid.model.spec_reader import FACTOR_TENSORS, read_spec
from camelid.model.tensors import match_tensors


def read_model(source: Gguf | Checkpoint) -> Generator[tuple[int, int], bytes, Model]:
    """A model from a parsed GGUF or a checkpoint.

    The generator yields the (offset, n_bytes) of each tensor of RoPE factors and receives its bytes; other
    weights are not read. Raises UnsupportedModelError for an architecture without a row, TensorShapeError
    for a missing, misshapen or unused tensor, ModelFormatError for impossible metadata.
    """
    checkpoint = checkpoint_of_gguf(source) if isinstance(source, Gguf) else source
    arch_name = checkpoint.header.get("general.architecture", str)
    arch = _row(arch_name)
    factors: Factors = {}
    for name in FACTOR_TENSORS:
        weight = checkpoint.tensors.get(f"{name}.weight")
        if weight is not None:
            factors[name] = yield from read_f32(weight)
    spec = read_spec(checkpoint, arch_name, arch, factors)
    return Model(spec, match_tensors(checkpoint, spec, arch))


def _row(name: str) -> Arch:
    arch = ARCHS.get(name)
    if arch is None:
        known = ", ".join(sorted(ARCHS))
        raise UnsupportedModelError(
            f"architecture {shown(name)} is not supported; supported: {nearest(name, ARCHS)}",
            kind="architecture",
            name=name,
            known=known,
        )
    return arch
