"""Codecs of the CPU library, in each variant for this machine, against the gguf package: bit for bit."""

from __future__ import annotations

import base64
import ctypes
import functools
import json
import platform
from ctypes import c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gguf.quants import quantize
from numpy.typing import NDArray
from tests.golden.quant_oracle import (
    FILE,
    FINITE,
    NOT_STORED,
    STORED,
    oracle_decode,
    oracle_type,
    random_blocks,
)
from tests.tools import make_iq_codes

from camelid.errors import BackendError
from camelid.formats.quants import QUANTS, RETIRED
from camelid_native.cpu import library as cpu_library

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
GUARD = 64  # values or bytes after a result that must stay unchanged
UNTOUCHED = 0xA5
ENCODED = ("bf16", "f16", "f32", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
BLOCKS_OF_32 = ENCODED[3:]
# float16: zeros, smallest and largest subnormal, smallest normal, 1, largest, infinities, NaNs.
ODD_HALVES = (0x0000, 0x8000, 0x0001, 0x83FF, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01)
# Types -> the first byte of each float16 scale; iq1_m scatters its scale over four bytes.
HALVES = {
    name: [byte - 1 for byte, _, _ in FINITE[name]]
    for name in STORED
    if name.startswith(("q", "iq", "tq")) and name != "iq1_m"
}
IS_X86 = platform.machine().lower() in {"x86_64", "amd64"}
RUN = 1 << 16  # values per call of a codec, see codecs.c


@dataclass(frozen=True)
class Kernels:
    """One variant of the library. Inputs begin at an odd byte, outputs have guards."""

    library: ctypes.CDLL
    variant: int

    def decode(self, type_id: int, raw: bytes, n: int) -> Floats:
        stored = np.frombuffer(b"\0" + raw, np.uint8)
        values = np.full(4 * (n + GUARD), UNTOUCHED, np.uint8)
        self._call("cam_decode", type_id, stored[1:], values, n)
        assert (values[4 * n :] == UNTOUCHED).all()
        return values.view(np.float32)[:n]

    def encode(self, type_id: int, values: Floats, n_bytes: int) -> Bytes:
        stored = np.full(1 + n_bytes + GUARD, UNTOUCHED, np.uint8)
        self._call("cam_encode", type_id, np.ascontiguousarray(values), stored[1:], values.size)
        assert stored[0] == UNTOUCHED and (stored[1 + n_bytes :] == UNTOUCHED).all()
        return stored[1 : 1 + n_bytes]

    def refuses(self, function: str, type_id: int) -> bool:
        return bool(self._function(function)(self.variant, type_id, None, None, 256))

    def _call(self, function: str, type_id: int, *arrays_and_n: Any) -> None:
        source, target, n = arrays_and_n
        assert self._function(function)(self.variant, type_id, source.ctypes.data, target.ctypes.data, n) == 0

    def _function(self, name: str) -> Any:
        function = getattr(self.library, name)
        function.argtypes = (c_uint32, c_uint32, c_void_p, c_void_p, c_uint64)
        return function


@functools.cache
def variants() -> dict[str, Kernels]:
    """Variants for this processor, by name."""
    library = cpu_library.load()
    library.cam_variant_name.restype = ctypes.c_char_p
    here = (i for i in range(library.cam_n_variants()) if library.cam_runs_here(i))
    return {library.cam_variant_name(i).decode(): Kernels(library, i) for i in here}


def variant_names() -> list[str]:
    """Names of the variants; without a library, one name whose tests report the reason."""
    try:
        return [*variants()]
    except BackendError:
        return ["portable"]


@pytest.fixture(params=variant_names())
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return variants()[request.param]


def decode(kernels: Kernels, name: str, raw: Bytes) -> Floats:  # [n, block_bytes] -> [n * block]
    return kernels.decode(QUANTS[name].id, raw.tobytes(), len(raw) * QUANTS[name].block)


def encode(kernels: Kernels, name: str, rows: Floats) -> Bytes:  # any shape -> [n, block_bytes]
    row = QUANTS[name]
    n_bytes = rows.size // row.block * row.block_bytes
    return kernels.encode(row.id, rows, n_bytes).reshape(-1, row.block_bytes)


def assert_same_bits(got: Floats, want: Floats) -> None:
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


def assert_encodes_as_oracle(kernels: Kernels, name: str, rows: Floats) -> None:
    with np.errstate(all="ignore"):
        want = quantize(np.ascontiguousarray(rows), oracle_type(name)).view(np.uint8)
    got = encode(kernels, name, rows)
    known = oracle_knows(name, rows)
    np.testing.assert_array_equal(one_zero(name, got)[known], one_zero(name, want.reshape(got.shape))[known])


def oracle_knows(name: str, rows: Floats) -> Bools:  # of each block
    """NumPy casts NaN and out-of-range values as the machine does. Kernels cast as x86 does: elsewhere only
    blocks are compared for which every step of the oracle is in range.
    """
    blocks = rows.reshape(-1, QUANTS[name].block)
    if blocks.shape[1] == 1 or IS_X86:
        return np.full(len(blocks), True)
    top = np.abs(blocks).max(axis=1)  # NaN if one is
    return (top == 0) | ((top > 1e-36) & (top < 1e38))


def one_zero(name: str, blocks: Bytes) -> Bytes:
    """Replaces -0 by 0: the choice of the minimum among zeros depends on the machine; both decode to the same
    bits.
    """
    halves = blocks[:, 2:4].copy().view("<u2")
    settled = np.where(halves == 0x8000, 0, halves).astype("<u2").view(np.uint8)
    return np.hstack([blocks[:, :2], settled, blocks[:, 4:]]) if name in {"q4_1", "q5_1"} else blocks


def test_golden_blocks(kernels: Kernels) -> None:
    golden = json.loads(FILE.read_text())
    assert {*golden} == {*STORED}
    for name, row in golden.items():
        raw, want = (base64.b64decode(row[key]) for key in ("blocks", "values"))
        assert kernels.decode(QUANTS[name].id, raw, len(want) // 4).astype("<f4").tobytes() == want, name


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("finite", [True, False])
def test_decode_of_random_bytes(kernels: Kernels, name: str, finite: bool) -> None:
    raw = random_blocks(name, 11 + finite, n=600, finite=finite)
    assert_same_bits(decode(kernels, name, raw), oracle_decode(name, raw))


@pytest.mark.parametrize("name", HALVES)
def test_decode_with_odd_scales(kernels: Kernels, name: str) -> None:
    raw = random_blocks(name, 3, n=len(ODD_HALVES) ** 2, finite=True)
    pairs = np.stack(np.meshgrid(ODD_HALVES, ODD_HALVES), axis=-1).astype("<u2").reshape(-1, 2)
    for byte, half in zip(HALVES[name], pairs.T, strict=False):
        raw[:, byte : byte + 2] = half[:, None].copy().view(np.uint8)
    assert_same_bits(decode(kernels, name, raw), oracle_decode(name, raw))


@pytest.mark.parametrize("name", ["f16", "bf16", "i16"])
def test_decode_of_every_pair_of_bytes(kernels: Kernels, name: str) -> None:
    raw = np.arange(1 << 16, dtype="<u2").view(np.uint8).reshape(-1, 2)
    assert_same_bits(decode(kernels, name, raw), oracle_decode(name, raw))


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_decode_of_every_scale_byte(kernels: Kernels, name: str) -> None:
    raw = random_blocks(name, 4, n=256, finite=False)
    raw[:, 0] = np.arange(256)
    assert_same_bits(decode(kernels, name, raw), oracle_decode(name, raw))


@pytest.mark.parametrize("name", ["i32", "i64", "f64"])
def test_decode_rounds_once(kernels: Kernels, name: str) -> None:
    """Values at and beside the middle between two floats: i64 through a double would round twice."""
    kind, bits = {"i32": ("<i4", 31), "i64": ("<i8", 63), "f64": ("<f8", 53)}[name]
    middles = [2**e + odd * 2 ** (e - 24) for e in range(25, bits) for odd in (1, 3)]
    numbers = [sign * (middle + beside) for sign in (1, -1) for middle in middles for beside in (-1, 0, 1)]
    raw = np.array(numbers, kind).view(np.uint8).reshape(len(numbers), -1)
    assert_same_bits(decode(kernels, name, raw), oracle_decode(name, raw))


def test_decode_of_doubles_out_of_range(kernels: Kernels) -> None:
    exponents = np.array([-1e300, 1e39, 3.4028235677973366e38, 3.4028235677973362e38, 1e-45, 7e-46, -1e-60])
    raw = exponents.astype("<f8").view(np.uint8).reshape(-1, 8)
    assert_same_bits(decode(kernels, "f64", raw), oracle_decode("f64", raw))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "i8", "i64"])
def test_rows_of_any_length(kernels: Kernels, name: str) -> None:
    raw = random_blocks(name, 8, n=70, finite=True)
    want = oracle_decode(name, raw)
    for n in range(len(raw) + 1):
        assert_same_bits(decode(kernels, name, raw[:n]), want[:n])
        if name in ENCODED:
            np.testing.assert_array_equal(encode(kernels, name, want[:n]), raw[:n])


@pytest.mark.parametrize("name", ["f16", "q4_0", "q8_0", "q6_k", "q1_0"])
def test_rows_longer_than_one_call(kernels: Kernels, name: str) -> None:
    block = QUANTS[name].block
    raw = random_blocks(name, 9, n=2 * RUN // block + 3, finite=True)
    got = decode(kernels, name, raw)
    assert_same_bits(got, oracle_decode(name, raw))
    if name in ENCODED:
        assert_encodes_as_oracle(kernels, name, got.reshape(1, -1))


def rows_of_all_sizes(seed: int) -> Floats:
    """Rows from the smallest to the largest float, with zeros of both signs, an infinity or a NaN in some."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (1200, 96)) * 10.0 ** np.linspace(-46, 38.6, 1200)[:, None]
    rows[::7, ::5], rows[::3, ::11] = 0.0, -0.0
    for at, value in enumerate([np.inf, -np.inf, np.nan, -np.nan]):
        rows[at::50, 13 * at + 1] = value
    rows[4::50, 3::30] = [np.inf, -np.inf, np.inf, -np.inf]
    rows[5::50, 3::30] = [np.inf, np.nan, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        return rows.astype(np.float32)


@pytest.mark.parametrize("name", ENCODED)
def test_encode_of_all_sizes(kernels: Kernels, name: str) -> None:
    for seed in range(3):
        assert_encodes_as_oracle(kernels, name, rows_of_all_sizes(seed))


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize(("top", "others"), [(127, 4), (-8, 0.5), (-16, 1), (15.5, 1)])
def test_encode_of_ties(kernels: Kernels, name: str, top: float, others: float) -> None:
    """Blocks with an integer step d and values half-way: here x / d differs from x * (1 / d)."""
    pattern = np.array([top, *(np.arange(31) * others - 15 * others - 0.5)])  # [32]
    rows = (np.arange(1, 200)[:, None] * pattern).astype(np.float32)
    for row in (rows, -rows, rows[:, ::-1]):
        assert_encodes_as_oracle(kernels, name, row)


@pytest.mark.parametrize("name", BLOCKS_OF_32)
def test_encode_uses_the_first_of_two_largest(kernels: Kernels, name: str) -> None:
    """At any index: +m before -m gives another scale than -m before +m."""
    at = np.array([(i, k) for i in range(32) for k in range(32) if i != k])
    rows = np.random.default_rng(4).uniform(-1, 1, (len(at), 32)).astype(np.float32)
    rows[np.arange(len(at)), at[:, 0]], rows[np.arange(len(at)), at[:, 1]] = 2.5, -2.5
    assert_encodes_as_oracle(kernels, name, rows)


def test_encode_of_f16_at_every_border(kernels: Kernels) -> None:
    """Each half, the middle to the next one, and the floats beside both; then every kind of NaN."""
    with np.errstate(over="ignore"):
        halves = np.arange(0x7C00, dtype="<u2").view(np.float16).astype(np.float32)
    borders = np.concatenate(
        [halves, (halves[:-1] + halves[1:]) / 2, np.array([65520, 1e6, np.inf], np.float32)]
    )
    bits = borders.view(np.uint32)
    nan = (0x7F800000 | 1 << np.arange(23)).astype(np.uint32)
    rows = np.concatenate([bits, bits[1:] - 1, bits[:-1] + 1, nan]).view(np.float32)
    for row in (rows, -rows):
        with np.errstate(over="ignore", invalid="ignore"):
            want = row.astype("<f2").view(np.uint8).reshape(-1, 2)
        got, known = (
            encode(kernels, "f16", row),
            IS_X86 | ~np.isnan(row),
        )  # each machine's NumPy has its own NaN
        np.testing.assert_array_equal(got[known], want[known])
        assert np.isnan(got.view(np.float16)[np.isnan(row)]).all()


def test_encode_of_bf16_at_borders(kernels: Kernels) -> None:
    bits = np.arange(0, 0x7F800000, 0x8000, dtype=np.uint32)  # each bf16, and the middle to the next one
    nan = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF], np.uint32)
    rows = np.concatenate([bits, bits[1:] - 1, bits + 1, nan]).view(np.float32)
    for row in (rows, -rows):
        assert_encodes_as_oracle(kernels, "bf16", row.reshape(1, -1))


@pytest.mark.parametrize("function", ["cam_decode", "cam_encode"])
def test_types_without_a_codec_are_refused(kernels: Kernels, function: str) -> None:
    holes = [*RETIRED, *(QUANTS[name].id for name in NOT_STORED), 43, 1000, 2**32 - 1]
    without = [QUANTS[name].id for name in STORED if name not in ENCODED] if function == "cam_encode" else []
    assert all(kernels.refuses(function, type_id) for type_id in [*holes, *without])


def test_grids_equal_the_references() -> None:
    assert make_iq_codes.FILE.read_text(encoding="utf-8") == make_iq_codes.header()
