"""Each codec decodes the golden blocks of its type bit for bit."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.metal.on_rig import decoded
from tests.metal.planted import planted
from tests.metal.rig import Rig
from tests.support.exhaustive import share_of

from camelid.backends.common.codecs import CODECS
from camelid_native.mlx.metal import products
from camelid_native.mlx.metal.launch import metal

pytestmark = pytest.mark.conformance

Bits = npt.NDArray[np.uint32]
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "quant_blocks.json").read_text())


def pair(weight_type: str) -> tuple[Bits, Bits]:
    """The bits of decoded and of golden values."""
    blocks, values = (base64.b64decode(GOLDEN[weight_type][name]) for name in ("blocks", "values"))
    want = np.frombuffer(values, np.float32)
    got = decoded(Rig(is_traced=True), weight_type, blocks, want.size)
    return got.view(np.uint32), want.view(np.uint32)


def test_every_type_has_a_codec() -> None:
    assert {*products.TYPES} == {*CODECS}


@pytest.mark.parametrize("weight_type", CODECS)
def test_blocks_become_the_golden_values(weight_type: str) -> None:
    assert np.array_equal(*pair(weight_type))


@pytest.mark.parametrize("weight_type", share_of(CODECS, 3))
def test_golden_blocks_notice_an_error(weight_type: str) -> None:
    text = metal(f"codec_{weight_type}")
    line = next(line for line in text.splitlines() if "out[i] = " in line)
    with planted(f"codec_{weight_type}", line, line.replace("out[i] = ", "out[i ^ 1] = ")):
        assert not np.array_equal(*pair(weight_type))
