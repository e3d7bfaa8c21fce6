"""Products of many rows by matrix instructions have the bits of those of few rows."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import pytest
from tests.cuda.rig import open_rig
from tests.parity.test_batch import MATRICES
from tests.support.exhaustive import every, share_of
from tests.support.parity.case_tools import array, empty, vector, weight
from tests.support.parity.cases import qkv_cases
from tests.support.parity.compare import run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.formats.quants import quant
from camelid.plan.op_rows_fused import deferred_cols
from camelid_native.cuda import backend
from camelid_native.cuda.compiler import file_text
from camelid_native.cuda.matrix_units import MFMA, WMMA
from camelid_native.cuda.types import EXACT_TYPES, WEIGHT_TYPES

pytestmark = pytest.mark.parity

AMD = ("gfx90a", "gfx942", "gfx1100", "gfx1201")  # one of each layout
ROUNDED = sorted(WEIGHT_TYPES - EXACT_TYPES)
ROWS, N_OUT = 70, 38  # a block of 64 or two of 32 rows and a part of one; two blocks of outputs and a part


def case_of(op: str, kind: str, rows: int = ROWS) -> OpCase:
    n_out, per, attrs = MATRICES[op]
    n_in = (
        288 if quant(kind).block <= 32 else 768
    )  # not a whole number of turns, of eight blocks, for small blocks
    x = array(70, rows, n_in)
    x = np.hstack([x, array(72, rows, n_in // 4) ** 2]) if "norm_linear" in op else x
    weights = {"weight": weight(kind, 71, per * n_out, n_in)}
    views = {"y": array(73, rows, n_out), "x": x}
    if op == "linear_add_norm":
        views["z"], weights["gain"] = empty(rows, deferred_cols(n_out)), vector(74, n_out)
    return OpCase(op=op, views=views, weights=weights, attrs=attrs)


def results(cases: list[OpCase], *, many: bool) -> list[OpResult]:
    """The results of the cases, with matrix instructions or without."""

    class Opened(backend.Opened):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            assert self.has_matrix
            self.has_matrix = many

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "Opened", Opened)
        return asyncio.run(run_on(open_rig(), OpenSpec(), cases))


def open_arch(arch: str, patch: pytest.MonkeyPatch) -> None:
    """Makes the rig a device of the architecture, with its width of a wave."""
    patch.setenv("EMU_ARCH", arch)
    patch.setenv("EMU_WAVE", "64" if arch in MFMA else "32")


def check(cases: list[OpCase]) -> None:
    pairs = zip(results(cases, many=True), results(cases, many=False), strict=True)
    for case, (got, want) in zip(cases, pairs, strict=True):
        same = [np.array_equal(got.views[role], want.views[role]) for role in want.views]
        same += [np.array_equal(got.state[name], want.state[name]) for name in want.state]
        assert same and all(same), (case.op, case.weights["weight"].type)
        assert all(np.isfinite(view).all() and view.any() for view in got.views.values())


@pytest.mark.parametrize("kind", every(8, ROUNDED))
def test_every_type(kind: str) -> None:
    check([case_of("linear", kind)])


@pytest.mark.parametrize("op", MATRICES)
def test_every_product(op: str) -> None:
    check([case_of(op, kind, rows) for kind in ("q4_0", "q6_k") for rows in (9, ROWS)])


@pytest.mark.parametrize("op", share_of(MATRICES))
@pytest.mark.parametrize("arch", AMD)
def test_instructions_of_amd(arch: str, op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a layout of its own: types with one and with two scales per block, and with zeros."""
    open_arch(arch, monkeypatch)
    check([case_of(op, kind, rows) for kind in ("q4_1", "q6_k") for rows in (9, ROWS)])


def test_kernels_know_the_architectures_that_the_backend_chooses() -> None:
    found: dict[str, set[str]] = {}
    for names, instruction in re.findall(r"((?:.*defined.*\n)+)#define (\w+)", file_text("arch.h")):
        found.setdefault(instruction, set()).update(re.findall(r"__(\w+)__", names))
    assert found == {"MFMA": MFMA, "WMMA": WMMA}


def test_queries_keys_and_values() -> None:
    cases = [case for case in qkv_cases() if len(case.views["y"]) > 8]
    assert {case.op for case in cases} == {"qkv", "norm_qkv"}
    check([case for case in cases if not {w.type for w in case.weights.values()} & {"f16", "bf16"}])
