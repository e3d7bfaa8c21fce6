"""Dtypes of activations: the number formats in which ops store the views that they write."""

from __future__ import annotations

from collections.abc import Mapping

from camelid.errors import PlanError

F32 = "f32"
# Dtype -> bytes of an element. Ops compute in float32 and round each stored element to nearest, ties to even.
DTYPES: Mapping[str, int] = {F32: 4, "f16": 2, "bf16": 2}


def element_bytes(dtype: str) -> int:
    """Bytes of one element. Raises PlanError for an unknown dtype."""
    n_bytes = DTYPES.get(dtype)
    if n_bytes is None:
        raise PlanError(f"unknown dtype {dtype!r} of an activation; known: {', '.join(DTYPES)}", op="")
    return n_bytes
