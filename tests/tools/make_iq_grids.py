"""Writes core/camelid/data/iq_grids.bin: the grid points of the IQ tensor types, one signed byte each.

The oracle is the gguf package, which contains the published tables. Run: python tests/tools/make_iq_grids.py
"""

from __future__ import annotations

from pathlib import Path

import gguf.quants
import numpy as np

FILE = Path(__file__).parents[2] / "core" / "camelid" / "data" / "iq_grids.bin"
OWNERS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")  # in the order of codecs/grids.py


def points(owner: str) -> bytes:
    table = getattr(gguf.quants, owner)
    table.init_grid()
    values = table.grid.reshape(-1)
    assert np.array_equal(values, values.astype(np.int8)), owner
    return values.astype(np.int8).tobytes()


def data() -> bytes:
    return b"".join(points(owner) for owner in OWNERS)


if __name__ == "__main__":
    FILE.write_bytes(data())
    print(f"{FILE.name}: {FILE.stat().st_size} bytes")
