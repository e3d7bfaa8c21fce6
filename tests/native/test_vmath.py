"""vmath.h against NumPy in float64, over bit patterns of all float32s, in a separate library."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.exhaustive import share_of
from tests.support.native.kernels import VARIANTS

from camelid.backends.reference.basic import ACTS, GATES
from camelid_native.build.library import find_compiler
from camelid_native.build.targets import FLAGS, SOURCES, this_target
from camelid_native.build.targets import VARIANTS as VARIANT_FLAGS

F32, F64 = NDArray[np.float32], NDArray[np.float64]
SHIM = """
#include "vmath.h"
#define EXPORT __attribute__((visibility("default")))
#define EACH(_) _(exp) _(log) _(tanh) _(erf) _(sigmoid) _(softplus) _(silu) _(gelu) _(gelu_erf) _(relu) \\
    _(exp_weight)
#define APPLY(name) EXPORT void apply_##name(const float *x, float *y, long n) { \\
    for (long i = 0; i < n; i += LANES) vf_store(y + i, vf_##name(vf_load(x + i))); }
EACH(APPLY)
EXPORT void act(uint32_t word, const float *x, float *y, long n) {
    for (long i = 0; i < n; i += LANES) vf_store(y + i, vf_act(word, vf_load(x + i)));
}
EXPORT void gate(uint32_t word, const float *g, const float *up, float *y, long n) {
    for (long i = 0; i < n; i += LANES) vf_store(y + i, vf_gate(word, vf_load(g + i), vf_load(up + i)));
}
#define NAME(name) #name,
EXPORT const char *words[64] = {CAM_WORDS(NAME)};
EXPORT float scalar_exp(float x) { return f_exp(x); }
"""
SPECIAL = np.array(
    [
        *(0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5),
        *(1e-45, -1e-45, 1e-38, -1e-38, 3.4e38, -3.4e38, 88.7, -104.0),
    ],
    np.float32,
)  # the lanes of the widest vector


def below_one(x: F64) -> F64:
    """exp(-|x|), without overflow and without loss of small values."""
    return np.exp(-np.abs(x))


ORACLES: dict[str, Callable[[F64], F64]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "sigmoid": lambda x: np.where(x < 0, below_one(x), 1.0) / (1.0 + below_one(x)),
    "softplus": lambda x: np.maximum(x, 0.0) + np.log1p(below_one(x)),
}
MOST_ULPS = {"exp": 2.0, "log": 2.0, "softplus": 2.0, "sigmoid": 3.0}
MOST_RELATIVE = {"tanh": 1e-6, "erf": 1e-6}


@pytest.fixture(scope="module", params=VARIANTS)
def vmath(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The shim, compiled like this variant of the kernels."""
    folder, variant = tmp_path_factory.mktemp("vmath"), str(request.param)
    library, target = folder / "vmath.so", this_target()
    (folder / "vmath.c").write_text(SHIM)
    flags = (*FLAGS, *target.system.flags, *VARIANT_FLAGS[target.arch][variant], f"-I{SOURCES}")
    given = (*flags, f"-DCAM_ISA_{variant.upper()}", "-shared", str(folder / "vmath.c"), "-o", str(library))
    subprocess.run([*find_compiler(target).command, *given], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module", params=share_of([4999, 997]))
def inputs(request: pytest.FixtureRequest) -> F32:
    """Every 4,999th or 997th bit pattern, and the special ones."""
    bits = np.arange(0, 2**32, request.param).astype(np.uint32)
    return np.concatenate([bits[: len(bits) // 16 * 16].view(np.float32), SPECIAL])


def pointer(array: F32) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def applied(vmath: ctypes.CDLL, name: str, x: F32) -> F32:
    y = np.empty_like(x)
    getattr(vmath, f"apply_{name}")(pointer(x), pointer(y), ctypes.c_long(len(x)))
    return y


def same_kind(got: F32, want: F32) -> bool:
    """True if NaNs and signed infinities agree."""
    infinite = np.isinf(got) | np.isinf(want)
    return np.array_equal(np.isnan(got), np.isnan(want)) and np.array_equal(got[infinite], want[infinite])


def widened(x: F32) -> F64:
    with np.errstate(invalid="ignore"):  # bit patterns include a signalling NaN
        return x.astype(np.float64)


@pytest.mark.parametrize("name", ORACLES)
def test_errors_over_all_of_float32(vmath: ctypes.CDLL, inputs: F32, name: str) -> None:
    with np.errstate(all="ignore"):
        exact = ORACLES[name](widened(inputs))
        want = exact.astype(np.float32)
    got = applied(vmath, name, inputs)
    assert same_kind(got, want)
    fine = np.isfinite(want)
    off = np.abs(got[fine] - exact[fine])
    if name in MOST_ULPS:
        assert (off / np.spacing(np.abs(want[fine])).astype(np.float64)).max() <= MOST_ULPS[name]
    else:
        least = np.spacing(np.float32(0.0)).astype(np.float64)  # subnormals have no more digits
        assert (off <= MOST_RELATIVE[name] * np.abs(exact[fine]) + least).all()


@pytest.mark.parametrize("name", ORACLES)
def test_functions_are_monotone_at_their_ends(vmath: ctypes.CDLL, name: str) -> None:
    """Functions stay monotone at underflow, overflow and saturation."""
    low = 0.0 if name == "log" else -120.0
    for ends in ((low, 120.0), (1e4, 3e38), (0.0, 1e-37), *([(-3e38, -1e4)] if name != "log" else [])):
        x = np.linspace(*ends, 4096, dtype=np.float64).astype(np.float32)
        assert (applied(vmath, name, x)[:-1] <= applied(vmath, name, x)[1:]).all()


def test_weights_are_exponentials_and_zero_far_below_the_largest(vmath: ctypes.CDLL) -> None:
    """No weight is subnormal: such products cost some machines a hundred cycles each."""
    x = np.concatenate([np.linspace(-200.0, 0.0, 2**16 - 16).astype(np.float32), SPECIAL])
    x = np.where(x > 0, -x, x)
    got, exact = applied(vmath, "exp_weight", x), np.exp(widened(x))
    assert np.array_equal(np.isnan(got), np.isnan(x))
    large, small = exact > 2.0**-63.9, exact < 2.0**-64.1
    assert (np.abs(got - exact)[large] / np.spacing(exact[large].astype(np.float32))).max() <= 2.0
    assert not got[small].any() and large.sum() > 10_000 and small.sum() > 10_000


def test_a_float_has_equal_bits_in_every_lane_and_alone(vmath: ctypes.CDLL) -> None:
    x = np.linspace(-20.0, 20.0, 64, dtype=np.float64).astype(np.float32)
    for name in ORACLES:
        turned = np.roll(applied(vmath, name, np.roll(x, 5)), -5)
        assert np.array_equal(turned, applied(vmath, name, x), equal_nan=True)
    vmath.scalar_exp.restype, vmath.scalar_exp.argtypes = ctypes.c_float, [ctypes.c_float]
    assert [vmath.scalar_exp(value) for value in x.tolist()] == applied(vmath, "exp", x).tolist()


def word(vmath: ctypes.CDLL, name: str) -> ctypes.c_uint32:
    words = (ctypes.c_char_p * 64).in_dll(vmath, "words")
    return ctypes.c_uint32(next(i for i in range(64) if words[i] == name.encode()))


def nmse(got: F32, want: F64) -> float:
    return float(((got - want) ** 2).sum() / (want**2).sum())


ARGUMENTS = np.random.default_rng(1).normal(size=4096, scale=4.0).astype(np.float32)
FACTORS = np.random.default_rng(2).normal(size=4096, scale=8.0).astype(np.float32)


@pytest.mark.parametrize("name", [*ACTS, *GATES])
def test_gates_and_activations(vmath: ctypes.CDLL, name: str) -> None:
    number, n, y = word(vmath, name), ctypes.c_long(len(ARGUMENTS)), np.empty_like(ARGUMENTS)
    x, up = ARGUMENTS.astype(np.float64), FACTORS.astype(np.float64)
    vmath.gate(number, pointer(ARGUMENTS), pointer(FACTORS), pointer(y), n)
    assert nmse(y, GATES[name](x, up) if name in GATES else ACTS[name](x) * up) < 1e-13
    if name in ACTS:
        vmath.act(number, pointer(ARGUMENTS), pointer(y), n)
        assert nmse(y, ACTS[name](x)) < 1e-13


def test_no_activation_leaves_floats_unchanged(vmath: ctypes.CDLL) -> None:
    y = np.empty_like(ARGUMENTS)
    vmath.act(word(vmath, "none"), pointer(ARGUMENTS), pointer(y), ctypes.c_long(len(y)))
    assert np.array_equal(y, ARGUMENTS)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_erf", "relu"])
def test_activations_of_overflowing_values(vmath: ctypes.CDLL, name: str) -> None:
    """Large negative inputs give 0, large positive inputs stay, NaN stays NaN."""
    x = np.array([-3e38, -1e15, -200.0, 200.0, 1e15, 3e38, np.nan, np.inf] * 2, np.float32)
    y = applied(vmath, name, x)
    assert np.abs(y[:3]).max() < 1e-30
    assert np.array_equal(y[3:8], x[3:8], equal_nan=True)
