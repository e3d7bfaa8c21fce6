"""Writes native/camelid_native/cpu/c/iq_grids.h: the grids of iq_grids.bin, two or three bits a coordinate.

Coordinate i of a point is the number of its level, in the bits from 2 * i (for four coordinates, 3 * i) on;
levels ascend. Run: python tests/tools/make_iq_codes.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from camelid.backends.common.codecs.grids import GRIDS, grid

FILE = Path(__file__).parents[2] / "native" / "camelid_native" / "cpu" / "c" / "iq_grids.h"
BITS = {8: 2, 4: 3}  # coordinates of a point: bits of each
PER_LINE = 13
HEAD = """\
/* Grids of the IQ types: a point has 8 coordinates of 2 bits or 4 of 3 bits, the lowest bits first.
 *
 * Published constants (ggml-common.h of llama.cpp), written by tests/tools/make_iq_codes.py. */
#pragma once
#include <stdint.h>
"""


def codes(name: str) -> list[int]:
    """One integer for each point of a grid."""
    points = grid(name)
    levels, numbers = np.unique(points, return_inverse=True)
    bits = BITS[points.shape[1]]
    assert len(levels) <= 1 << bits, name
    return (numbers.reshape(points.shape) << bits * np.arange(points.shape[1])).sum(axis=1).tolist()


def table(name: str) -> Iterator[str]:
    words = [f"0x{code:04x}," for code in codes(name)]
    yield f"\nstatic const uint16_t grid_{name}[{len(words)}] = {{"
    for at in range(0, len(words), PER_LINE):
        yield "    " + " ".join(words[at : at + PER_LINE])
    yield "};"


def header() -> str:
    return HEAD + "\n".join(line for name in GRIDS for line in table(name)) + "\n"


if __name__ == "__main__":
    FILE.write_text(header())
    print(f"{FILE.name}: {FILE.stat().st_size} bytes")
