"""Adapters on cpu: float16 in slots, results of any number of threads, weights in memory once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.native.kernels import VARIANTS, run_op
from tests.support.parity.cases_adapters import adapter_cases
from tests.support.random_adapters import random_adapter

import camelid
from camelid.backends.base import Backend
from camelid.backends.common.halves import halve
from camelid.backends.common.op_runner import OpCase
from camelid.backends.proof.compare import with_slots
from camelid.plan.op_rows_adapters import LOW_RANK

CASES = [case for case in adapter_cases() if case.op in LOW_RANK and not case.of_outputs]
IDS = [5, 9, 200, 31, 7]
SLOT_TYPES = ("f32", "f16")


def halved(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """What a slot holds of some float32 values, in float64."""
    bits, power = halve(memoryview(np.asarray(values, np.float32).tobytes()).cast("f"))
    assert np.frexp(power)[0] == 0.5, "the power is one of two"
    return np.frombuffer(bits, np.float16).astype(np.float64) * power


def test_all_values_of_float16_are_exact() -> None:
    """Up to half of the largest, subnormals included, together and alone."""
    values = np.arange(0x7800, dtype=np.uint16).view(np.float16).astype(np.float64)
    assert np.array_equal(halved(np.concatenate([values, -values])), np.concatenate([values, -values]))
    for value in (values[1], values[1023], values[-1], 0.0):
        assert halved([value]) == [value]


@pytest.mark.parametrize("size", [1e-37, 1e-9, 0.02, 7e4, 3e38])
def test_values_outside_of_float16_keep_eleven_bits(size: float) -> None:
    values = np.random.default_rng(3).uniform(0.01, 1.0, 999).astype(np.float32) * np.float32(size)
    assert np.abs(halved(values) / values.astype(np.float64) - 1.0).max() <= 2.0**-11


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("slot_type", SLOT_TYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op} {case.views['y'].shape}")
def test_bits_depend_on_no_number_of_threads(case: OpCase, slot_type: str, variant: str) -> None:
    """A few threads compute whole terms, more threads parts of each."""
    tested = with_slots(case, slot_type)
    one, *others = (run_op(tested, variant, n)["y"].tobytes() for n in (1, 2, 3, 16))
    assert others == [one] * 3


def test_a_model_has_the_same_bits_on_one_thread() -> None:
    """Where no barrier separates ops."""
    logits = set[bytes]()
    for threads in (1, 2):
        with camelid.load("cria", backend="cpu", threads=threads, context=64) as llm:
            name = llm.load_adapter(random_adapter(llm, 1))
            logits.add(bytes(llm.logits(IDS, adapter=name)))
    assert len(logits) == 1


def test_weights_are_in_memory_once() -> None:
    with camelid.load("cria", backend="cpu", context=64) as llm:
        backend: Backend = llm._running.backend  # pyright: ignore[reportPrivateUsage]
        llm.generate("a", max_tokens=2)
        before = backend.memory().weight_bytes
        name = llm.load_adapter(random_adapter(llm, 1))
        llm.generate("a", adapter=name, max_tokens=2)
        assert backend.memory().weight_bytes == before
