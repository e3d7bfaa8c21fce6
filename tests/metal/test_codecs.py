"""Each codec decodes the golden blocks of its type bit for bit."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from tests.metal.on_rig import decoded
from tests.metal.rig import Rig

from camelid.backends.common.codecs import CODECS
from camelid_native.mlx import kernels

pytestmark = pytest.mark.conformance

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "quant_blocks.json").read_text())


def test_every_type_has_a_codec() -> None:
    assert {*kernels.TYPES} == {*CODECS}


@pytest.mark.parametrize("weight_type", CODECS)
def test_blocks_become_the_golden_values(weight_type: str) -> None:
    blocks, values = (base64.b64decode(GOLDEN[weight_type][name]) for name in ("blocks", "values"))
    want = np.frombuffer(values, np.float32)
    got = decoded(Rig(is_traced=True), weight_type, blocks, want.size)
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
