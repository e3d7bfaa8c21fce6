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
    """The values of both codes of a byte, the low nibble's first, as pairs of f16, then in 16 bits each."""
    values = [(VALUES[name][byte % 16], VALUES[name][byte // 16]) for byte in range(256)]
    halves = b"".join(struct.pack("<2e", *pair) for pair in values)
    return halves + b"".join(struct.pack("<2H", *(value & 0xFF for value in pair)) for pair in values)


@functools.cache
def book_bytes(name: str) -> bytes:
    """A codebook as the shaders read it: pairs, 8 * (value + 1) of iq1, 127 - value of other grids."""
    if name in VALUES:
        return pair_bytes(name)
    if name == "iq1":
        return grid_bytes(name).translate(bytes(8 * (value + 1 & 3) for value in range(256)))
    return bytes(127 - value for value in grid_bytes(name))
