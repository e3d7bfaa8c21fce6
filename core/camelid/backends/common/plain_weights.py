"""Weights that MLX quantized, for backends that upload bytes of sources: rows as a source of their own.

`joined_source.py` makes that source in NumPy; it joins planes and applies load ops as it is read.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.plan.weights import Part, Weight


def plain_weight(weight: Weight) -> Weight:
    """The weight with its rows as one part, if its parts are planes; else the weight itself."""
    if not weight.has_planes:
        return weight
    return replace(weight, parts=(Part(rows_source(weight), 0, weight.n_bytes),), load_ops=())


def rows_source(weight: Weight) -> str:
    """The name of the source of a weight's rows."""
    return f"rows/{weight.name}"
