"""NumPy codecs against the gguf package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from camelid.backends.codecs import CODECS, codec, decode, encode
from camelid.errors import ModelFormatError, UnsupportedModelError

# float16: zeros, smallest and largest subnormal, smallest normal, 1, largest, infinities, NaNs.
ODD_HALVES = (0x0000, 0x8000, 0x0001, 0x83FF, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01)
NAMES = sorted(CODECS)


def oracle_type(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name.upper()]


def assert_same_bits(got: NDArray[np.float32], want: NDArray[np.float32]) -> None:
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


def oracle_decode(name: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return dequantize(raw, oracle_type(name)).reshape(-1)


@pytest.mark.parametrize("name", NAMES)
def test_decode_of_random_bytes(name: str) -> None:
    quant = CODECS[name].quant
    raw = np.random.default_rng(1).integers(0, 256, (4096, quant.block_bytes), dtype=np.uint8)
    got = decode(name, raw.tobytes(), raw.shape[0] * quant.block)
    assert got.dtype == np.float32
    assert np.isnan(got).any()  # random bytes hit every class of scale
    assert_same_bits(got, oracle_decode(name, raw.reshape(-1)))


@pytest.mark.parametrize("name", ["q4_0", "q8_0"])
@pytest.mark.parametrize("half", ODD_HALVES, ids=hex)
def test_decode_with_odd_scales(name: str, half: int) -> None:
    quant = CODECS[name].quant
    raw = np.random.default_rng(half).integers(0, 256, (8, quant.block_bytes), dtype=np.uint8)
    raw[:, :2] = np.array([half], dtype="<u2").view(np.uint8)
    assert_same_bits(decode(name, raw, 8 * quant.block), oracle_decode(name, raw.reshape(-1)))


def test_decode_of_every_half() -> None:
    raw = np.arange(1 << 16, dtype="<u2").view(np.uint8)
    assert_same_bits(decode("f16", raw, 1 << 16), oracle_decode("f16", raw))


def test_q4_0_puts_low_nibbles_first() -> None:
    raw = np.array([0x00, 0x3C, *range(16)], dtype=np.uint8)  # scale 1; byte i holds i in its low nibble
    assert decode("q4_0", raw, 32).tolist() == [*range(-8, 8), *[-8] * 16]


def sample_rows(seed: int) -> NDArray[np.float32]:
    """Rows of many magnitudes, with zero blocks, constant blocks and ties in magnitude."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (64, 128)) * 10.0 ** rng.integers(-6, 5, (64, 1))
    rows[0] = 0
    rows[1] = 3.5
    rows[2, ::2], rows[2, 1::2] = -2.0, 2.0
    rows[3] = np.arange(128) - 63.5
    return rows.astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_encode_matches(name: str, seed: int) -> None:
    rows = sample_rows(seed)
    want = quantize(rows, oracle_type(name)).view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(encode(name, rows), want)


@pytest.mark.parametrize(("name", "top", "others"), [("q8_0", 127, 4), ("q4_0", -8, 0.5)])
def test_encode_rounds_ties_as_the_oracle_does(name: str, top: float, others: float) -> None:
    """Blocks whose step is a whole number d and whose values lie half-way: here x / d is not x * (1 / d)."""
    pattern = np.array([top, *(np.arange(31) * others - 15 * others - 0.5)])  # [32]
    rows = (np.arange(1, 200)[:, None] * pattern).astype(np.float32)  # [199, 32]
    want = quantize(rows, oracle_type(name)).reshape(-1)
    np.testing.assert_array_equal(encode(name, rows), want)


@pytest.mark.parametrize("name", NAMES)
def test_decode_inverts_encode_within_a_step(name: str) -> None:
    rows = sample_rows(7)[4:].clip(-1000, 1000)
    got = decode(name, encode(name, rows), rows.size).reshape(rows.shape)
    # Of the block's largest value: half a step (q4_0: a step, +8 does not exist), and the rounded scale.
    share = {"f32": 0.0, "f16": 2**-11, "q8_0": 1 / 254 + 2**-11, "q4_0": 1 / 8 + 2**-11}[name]
    largest = np.abs(rows).reshape(len(rows), -1, 32).max(axis=2).repeat(32, axis=1)
    assert (np.abs(got - rows) <= share * largest + 127 * 2**-25).all()  # 2^-25: a subnormal scale, rounded


def test_sizes_are_checked() -> None:
    with pytest.raises(ModelFormatError, match=r"64 q8_0 values take 68 bytes, got 34"):
        decode("q8_0", bytes(34), 64)
    with pytest.raises(ModelFormatError, match=r"row of 16 values cannot be q4_0"):
        decode("q4_0", bytes(18), 16)
    with pytest.raises(ModelFormatError, match=r"row of 16 values cannot be q8_0"):  # no block spans two rows
        encode("q8_0", np.zeros((2, 16), dtype=np.float32))


def test_types_without_a_codec_are_named() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"no codec for tensor type 'q4_k'; .*f32, f16, q8_0, q4_0"
    ):
        codec("q4_k")
