"""The grids of the IQ types: constants of ggml-common.h in data/iq_grids.bin.

tests/tools/make_iq_grids.py writes the file. It is read when a codec needs the first grid.
"""

from __future__ import annotations

import functools
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


@functools.cache
def grid_bytes(name: str) -> bytes:
    """The entries of a grid, one signed byte per value."""
    data = files("camelid").joinpath("data/iq_grids.bin").read_bytes()
    starts = dict(zip(GRIDS, accumulate((n * width for n, width in GRIDS.values()), initial=0), strict=False))
    n_entries, width = GRIDS[name]
    return data[starts[name] :][: n_entries * width]
