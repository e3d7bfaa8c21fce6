"""Codebooks of weight types: the grids of the IQ types, and the values of 4-bit codes.

Grids are constants of ggml-common.h in data/iq_grids.bin, which tests/tools/make_iq_grids.py writes. The file
is read when a codec needs the first grid.
"""

from __future__ import annotations

import functools
import struct
from importlib.resources import files
from itertools import accumulate

# Name -> (entries, values per entry), in the order of the file; one signed byte per value.
GRIDS: dict[str, tuple[int, int]] = {
    "iq2_xxs": (256, 8),
    "iq2_xs": (512, 8),
    "iq2_s": (1024, 8),
    "iq3_xxs": (256, 4),
    "iq3_s": (512, 4),
    "iq1": (2048, 8),
}
# Values of 4-bit codes: of iq4_nl and iq4_xs, and of E2M1 in the OCP microscaling formats 1.0, doubled to be
# whole.
VALUES: dict[str, tuple[int, ...]] = {
    "iq4": (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    "e2m1": (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12),
}


@functools.cache
def grid_bytes(name: str) -> bytes:
    """The entries of a grid, one signed byte per value."""
    data = files("camelid").joinpath("data/iq_grids.bin").read_bytes()
    starts = dict(zip(GRIDS, accumulate((n * width for n, width in GRIDS.values()), initial=0), strict=False))
    n_entries, width = GRIDS[name]
    return data[starts[name] :][: n_entries * width]


def pair_bytes(name: str) -> bytes:
    """The values of both codes of each byte, the low nibble's first, as pairs of f16."""
    values = VALUES[name]
    return b"".join(struct.pack("<2e", values[byte % 16], values[byte // 16]) for byte in range(256))


def book_bytes(name: str) -> bytes:
    """A codebook as the shaders read it: a grid, or pairs of values."""
    return pair_bytes(name) if name in VALUES else grid_bytes(name)
