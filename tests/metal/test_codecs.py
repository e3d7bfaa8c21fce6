"""Each codec decodes the golden blocks of its type bit for bit.

Where a device takes subnormal float32 as 0, this holds for all weights that are not subnormal themselves.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.metal.on_rig import decoded
from tests.metal.planted import planted
from tests.metal.rig import Rig, runtime
from tests.support.exhaustive import share_of

from camelid.backends.common.codecs import CODECS, decode
from camelid.formats.quants import quant
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


@contextmanager
def flushed() -> Iterator[None]:
    """Threads take subnormal float32 as 0 within this context."""
    runtime().metal_flush(1)
    try:
        yield
    finally:
        runtime().metal_flush(0)


def is_subnormal(bits: Bits) -> npt.NDArray[np.bool_]:
    return (bits & 0x7F800000 == 0) & (bits & 0x7FFFFFFF != 0)


def is_same(got: Bits, want: Bits) -> npt.NDArray[np.bool_]:
    return (got == want) | (np.isnan(got.view(np.float32)) & np.isnan(want.view(np.float32)))


def is_kept(got: Bits, want: Bits) -> npt.NDArray[np.bool_]:
    """True if each value equals the wanted one, or is 0 with its sign in place of a subnormal."""
    return is_same(got, want) | (is_subnormal(want) & (got == want & 0x80000000))


def every_block(weight_type: str) -> bytes:
    """Blocks with each scale of E8M0 and, for each, every byte of codes."""
    n_codes = quant(weight_type).block_bytes - 1
    codes = np.tile(np.arange(256, dtype=np.uint8).reshape(-1, n_codes), (256, 1))
    scales = np.repeat(np.arange(256, dtype=np.uint8), 256 // n_codes)
    return np.hstack([scales[:, None], codes]).tobytes()


def test_every_type_has_a_codec() -> None:
    assert {*products.TYPES} == {*CODECS}


@pytest.mark.parametrize("weight_type", CODECS)
def test_blocks_become_the_golden_values(weight_type: str) -> None:
    assert np.array_equal(*pair(weight_type))


@pytest.mark.parametrize("weight_type", CODECS)
def test_weights_are_kept_where_subnormals_are_not(weight_type: str) -> None:
    with flushed():
        got, want = pair(weight_type)
    assert is_kept(got, want).all()


@pytest.mark.parametrize("weight_type", ["mxfp4", "mxfp8"])
def test_every_scale_with_every_code(weight_type: str) -> None:
    """Scales of E8M0 are subnormal for the codes 0 and 1, and so are numbers of E4M3 as bits of float32."""
    blocks = every_block(weight_type)
    n = len(blocks) // quant(weight_type).block_bytes * quant(weight_type).block
    want = decode(weight_type, blocks, n).view(np.uint32)
    assert is_same(decoded(Rig(), weight_type, blocks, n).view(np.uint32), want).all()
    with flushed():
        got = decoded(Rig(), weight_type, blocks, n).view(np.uint32)
    assert is_kept(got, want).all()


@pytest.mark.parametrize("weight_type", share_of(CODECS, 3))
def test_golden_blocks_notice_an_error(weight_type: str) -> None:
    text = metal(f"codec_{weight_type}")
    line = next(line for line in text.splitlines() if "out[i] = " in line)
    with planted(f"codec_{weight_type}", line, line.replace("out[i] = ", "out[i ^ 1] = ")):
        assert not np.array_equal(*pair(weight_type))
