"""Constants defined in both WGSL and Python: they must be equal."""

from __future__ import annotations

import re

import pytest

from camelid.backends.webgpu import (
    kernel,
    kernels_basic,
    kernels_encoder,
    kernels_matrix,
    kernels_recurrent,
    kernels_state,
    shaders,
)
from camelid.plan import step

WORDS = ("rows", "outputs", "updates", "copies", *step.PLACES)
HEADER = {name.upper(): step.StepLayout.header_word(name) for name in WORDS} | {"ROWS_AT": len(step.HEADER)}
ROUTER_GATES = {name.upper(): number for name, number in kernels_matrix.ROUTER_GATES.items()}
NUMBERS = {
    "prelude": HEADER,
    "embed": {"FROM_ID": step.FROM_ID, "FROM_RING": step.FROM_RING},
    "sample": {"MOST_TOP_K": step.MOST_TOP_K, "SAMPLING_WORDS": len(step.SAMPLING)},
    "adjust": {"BIASES": step.MOST_BIASES, "HISTORY": step.MOST_LAST_N},
    "candidates": {"MOST": step.CANDIDATES, "WORDS": step.CANDIDATE_WORDS},
    "product": {"TILES_X": kernels_matrix.TILES_X},
    "matmul_tile": {"TILE_QUADS": kernels_matrix.TILE_QUADS},
    "matvec": {"SOFTWARE_LANES": kernel.SOFTWARE_LANES},
    "partial": {"GROUP_LANES": kernel.LANES, "MAX_TOKENS": kernel.TOKENS},
    "router": {"MAX_EXPERTS": kernels_matrix.MAX_EXPERTS, **ROUTER_GATES},
    "norm": {"LAYER": kernels_basic.NORM_KINDS["layer"], "L2": kernels_basic.NORM_KINDS["l2"]},
    "scan": {"LANES": kernel.LANES, "MOST": kernels_recurrent.MOST_COLS},
    "visible": {name.upper(): kernels_state.MASKS[name] for name in ("held", "chunked")},
    "attend": {"LANES": kernels_state.SIDE // kernels_state.VECTOR},
    "attend_rows": {name.upper(): kernels_encoder.ROW_MASKS[name] for name in ("causal", "symmetric")},
    "pool": {name.upper(): kernels_encoder.POOLINGS[name] for name in ("cls", "last")},
}


@pytest.mark.parametrize("name", NUMBERS)
def test_shader_constants_equal_pythons(name: str) -> None:
    found = dict(re.findall(r"^const (\w+): u32 = (\d+)u;", shaders.text(name), re.MULTILINE))
    assert {key: int(found[key]) for key in NUMBERS[name]} == NUMBERS[name]
