"""NumPy codecs against the gguf package, or against exact arithmetic for types that it lacks: bit for bit."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest
from gguf.quants import quantize
from numpy.typing import NDArray
from tests.golden.quant_oracle import FILE, FINITE, NOT_STORED, oracle_decode, oracle_type, random_blocks
from tests.tools import make_iq_grids

from camelid.backends.common.codecs import CODECS, codec, decode, encode
from camelid.backends.common.codecs.grids import grid
from camelid.backends.common.grid_tables import GRIDS
from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.quants import QUANTS

# float16: zeros, smallest and largest subnormal, smallest normal, 1, largest, infinities, NaNs.
ODD_HALVES = (0x0000, 0x8000, 0x0001, 0x83FF, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01)
NAMES = sorted(CODECS)
ENCODED = ("bf16", "f16", "f32", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
# Types with NaN or infinite scales: all except integers and types with 8-bit scales.
WITH_NAN = sorted({*NAMES} - {"i8", "i16", "i32", "i64", "mxfp4", "nvfp4"})
# Types -> the first byte of each float16 scale; iq1_m scatters its scale over four bytes.
HALVES = {
    name: [byte - 1 for byte, _, _ in FINITE[name]]
    for name in WITH_NAN
    if name.startswith(("q", "iq", "tq")) and name != "iq1_m"
}


def assert_same_bits(got: NDArray[np.float32], want: NDArray[np.float32]) -> None:
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


@pytest.mark.parametrize("name", NAMES)
def test_decode_of_random_bytes(name: str) -> None:
    raw = random_blocks(name, 1, n=4096, finite=False)
    got = decode(name, raw.tobytes(), raw.shape[0] * QUANTS[name].block)
    assert got.dtype == np.float32
    assert np.isnan(got).any() == (name in WITH_NAN)  # random bytes reach every class of scale
    assert_same_bits(got, oracle_decode(name, raw))


@pytest.mark.parametrize("name", NAMES)
def test_decode_of_finite_blocks(name: str) -> None:
    raw = random_blocks(name, 2, n=1000, finite=True)
    got = decode(name, raw, 1000 * QUANTS[name].block)
    assert np.isfinite(got).all() and len(np.unique(got)) > 100
    assert_same_bits(got, oracle_decode(name, raw))


@pytest.mark.parametrize("name", HALVES)
def test_decode_with_odd_scales(name: str) -> None:
    raw = random_blocks(name, 3, n=len(ODD_HALVES) ** 2, finite=True)
    pairs = np.stack(np.meshgrid(ODD_HALVES, ODD_HALVES), axis=-1).astype("<u2").reshape(-1, 2)
    for byte, half in zip(HALVES[name], pairs.T, strict=False):
        raw[:, byte : byte + 2] = half[:, None].copy().view(np.uint8)
    assert_same_bits(decode(name, raw, len(raw) * QUANTS[name].block), oracle_decode(name, raw))


@pytest.mark.parametrize("name", ["f16", "bf16", "i16"])
def test_decode_of_every_pair_of_bytes(name: str) -> None:
    raw = np.arange(1 << 16, dtype="<u2").view(np.uint8)
    assert_same_bits(decode(name, raw, 1 << 16), oracle_decode(name, raw.reshape(-1, 2)))


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_decode_of_every_scale_byte(name: str) -> None:
    raw = random_blocks(name, 4, n=256, finite=False)
    raw[:, 0] = np.arange(256)
    assert_same_bits(decode(name, raw, 256 * QUANTS[name].block), oracle_decode(name, raw))


def test_decode_matches_the_golden_blocks() -> None:
    golden = json.loads(FILE.read_text())
    assert {*golden} == {*CODECS} == {*QUANTS} - {*NOT_STORED}
    for name, row in golden.items():
        raw, want = (base64.b64decode(row[key]) for key in ("blocks", "values"))
        got = decode(name, raw, len(want) // 4)
        assert got.astype("<f4").tobytes() == want, name


@pytest.mark.parametrize("n", [1, 2047, 2048, 2049, 5000])
def test_a_block_decodes_independently_of_others(n: int) -> None:
    raw = random_blocks("q4_0", 5, n=n, finite=True)
    alone = np.concatenate([decode("q4_0", block, 32) for block in raw])
    assert_same_bits(decode("q4_0", raw, n * 32), alone)


ONE, TWO = [0x00, 0x3C], [0x00, 0x40]  # float16 1 and 2
BY_HAND: dict[str, tuple[list[int], list[float]]] = {
    "q4_0": ([*ONE, *range(16)], [*range(-8, 8), *[-8] * 16]),  # byte i holds i in its low nibble
    "q1_0": ([*TWO, 0b101, *[0] * 15], [2, -2, 2, *[-2] * 125]),
    "q2_0": ([*TWO, 0b11100100, *[0b01010101] * 15], [-2, 0, 2, 4, *[0] * 60]),
    "mxfp4": ([128, 0x71, *[0] * 15], [1, *[0] * 15, 12, *[0] * 15]),  # 2 * E2M1 of 1 and 7: 0.5 and 6
    "nvfp4": ([0x38, 0x40, 0x7F, 0, *[0x71] * 32], [*[0.5] * 8, *[6] * 8, *[1] * 8, *[12] * 8, *[0] * 32]),
    "bf16": ([0x80, 0xBF], [-1]),
    "i64": ([*(2**60 + 2**36 + 1).to_bytes(8, "little")], [2**60 + 2**37]),  # by way of a double: 2**60
}


@pytest.mark.parametrize("name", BY_HAND)
def test_decode_by_hand(name: str) -> None:
    raw, want = BY_HAND[name]
    assert decode(name, bytes(raw), len(want)).tolist() == want


def test_grids_equal_the_oracles() -> None:
    assert files("camelid").joinpath("data/iq_grids.bin").read_bytes() == make_iq_grids.data()
    assert [grid(name).shape for name in GRIDS] == [*GRIDS.values()]


def test_grids_are_read_once_on_first_use() -> None:
    script = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from camelid.backends.common.codecs import decode
assert not any("iq_grids" in path for path in opened)
decode("iq2_xs", bytes(74), 256)
assert sum("iq_grids" in path for path in opened) == 1
decode("iq2_xs", bytes(74), 256)
assert sum("iq_grids" in path for path in opened) == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def sample_rows(seed: int) -> NDArray[np.float32]:
    """Rows of many magnitudes, with zero blocks, constant blocks and ties in magnitude."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (64, 128)) * 10.0 ** rng.integers(-6, 5, (64, 1))
    rows[0] = 0
    rows[1] = 3.5
    rows[2, ::2], rows[2, 1::2] = -2.0, 2.0
    rows[3] = np.arange(128) - 63.5
    return rows.astype(np.float32)


def extreme_rows(seed: int) -> NDArray[np.float32]:
    """Finite rows whose scales vanish or overflow in float16 or float32, with zeros of both signs."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (160, 128)) * 10.0 ** np.linspace(-45, 37, 160)[:, None]
    rows[::7, ::5] = 0.0
    rows[::3, ::11] = -0.0
    rows[-1] = np.float32(3.4e38) * np.sign(rows[-1])
    return rows.astype(np.float32)


def assert_same_bytes(name: str, rows: NDArray[np.float32]) -> None:
    with np.errstate(all="ignore"):
        want = quantize(rows, oracle_type(name)).view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(encode(name, rows), want)


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("seed", range(4))
def test_encode_matches(name: str, seed: int) -> None:
    assert_same_bytes(name, sample_rows(seed))
    assert_same_bytes(name, extreme_rows(seed))


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize(("top", "others"), [(127, 4), (-8, 0.5), (-16, 1)])
def test_encode_rounds_ties_as_the_oracle_does(name: str, top: float, others: float) -> None:
    """Blocks with an integer step d and values half-way: here x / d differs from x * (1 / d)."""
    pattern = np.array([top, *(np.arange(31) * others - 15 * others - 0.5)])  # [32]
    assert_same_bytes(name, (np.arange(1, 200)[:, None] * pattern).astype(np.float32))


def test_encode_of_bf16_rounds_to_even() -> None:
    bits = np.arange(0x3F800000, 0x3F840000, 0x1000, dtype=np.uint32)  # sixteenths of a step, with ties
    rows = np.stack([bits, bits - 1, bits + 1]).view(np.float32)
    assert_same_bytes("bf16", rows)
    assert_same_bytes("bf16", -rows)


@pytest.mark.parametrize("name", ENCODED)
def test_decode_inverts_encode_within_a_step(name: str) -> None:
    rows = sample_rows(7)[4:].clip(-1000, 1000)
    got = decode(name, encode(name, rows), rows.size).reshape(rows.shape)
    # Share of the block's largest value: half a step (q4_0, q5_0: a step, as +8 and +16 do not exist) and the
    # rounding of the scale, and of the minimum where it exists.
    steps = {"f32": 0.0, "f16": 0.0, "bf16": 2**-8, "q8_0": 1 / 254, "q4_0": 1 / 8, "q5_0": 1 / 16}
    share = {**steps, "q4_1": 1 / 15, "q5_1": 1 / 31}[name] + (3 * 2**-11 if name != "f32" else 0)
    largest = np.abs(rows).reshape(len(rows), -1, 32).max(axis=2).repeat(32, axis=1)
    assert (np.abs(got - rows) <= share * largest + 127 * 2**-25).all()  # 2^-25: a subnormal scale's rounding


def test_types_with_an_encoder() -> None:
    assert tuple(name for name in NAMES if CODECS[name].encodes) == ENCODED
    message = r"no encoder for tensor type 'q4_k', only a decoder; .*f32, f16, bf16, q4_0, .*q8_0$"
    with pytest.raises(UnsupportedModelError, match=message):
        encode("q4_k", np.zeros(256))


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_encode_refuses_values_that_are_not_finite(name: str, value: float) -> None:
    values = np.zeros((2, 64), np.float32)
    values[1, 3] = value
    with pytest.raises(ModelFormatError, match=rf"value 67 is {value}: only finite values .* as {name}"):
        encode(name, values)


def test_sizes_are_checked() -> None:
    with pytest.raises(ModelFormatError, match=r"64 q8_0 values need 68 bytes, got 34"):
        decode("q8_0", bytes(34), 64)
    with pytest.raises(ModelFormatError, match=r"row of 16 values cannot be q4_0"):
        decode("q4_0", bytes(18), 16)
    with pytest.raises(ModelFormatError, match=r"row of 16 values cannot be q8_0"):  # no block spans two rows
        encode("q8_0", np.zeros((2, 16), dtype=np.float32))


@pytest.mark.parametrize("name", NOT_STORED)
def test_types_of_activations_are_refused(name: str) -> None:
    known = "f32, f16, .*q2_0, affine2, .*mxfp8"
    message = rf"no codec for tensor type '{name}' \(it is for.*\); types with a codec: {known}$"
    with pytest.raises(UnsupportedModelError, match=message):
        codec(name)
