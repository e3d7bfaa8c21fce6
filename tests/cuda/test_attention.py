"""Attention on the emulator: latent attention, and the same bits whichever blocks compute a row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cuda.rig import open_rig
from tests.support.exhaustive import share_of
from tests.support.parity.case_tools import array, empty, vector
from tests.support.parity.cases_state import attention_case
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase
from camelid_native.cuda import kernels_attention
from camelid_native.cuda.device_driver import DriverDevice

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")


def latent_case(positions: list[int], n_heads: int, heads: tuple[int, int, int], **more: Any) -> OpCase:
    """A state of keys alone, whose first columns are values; `heads` are KV heads and widths of both."""
    n_kv_heads, dim, v_dim = heads
    return OpCase(
        op="attention",
        views={
            "y": empty(len(positions), n_heads * v_dim),
            "q": array(13, len(positions), n_heads * dim),
        },
        positions=positions,
        keys=array(14, max(positions) + 1, n_kv_heads * dim),
        attrs={"n_heads": n_heads, "n_kv_heads": n_kv_heads, "scale": dim**-0.5},
        **more,
    )


def split_cases() -> list[OpCase]:
    """Cases with several splits of keys, and query heads that share a KV head."""
    sinks = {"sinks": vector(37, 8)}
    cases = [attention_case([1100, 127, 128], 8, 2, 32, 32, {}, sinks, 0, 1101, kv_type=t) for t in KV_TYPES]
    window = {"window": 300, "softcap": 3.0}
    cases.append(attention_case([700, 300], 8, 1, 32, 64, window, {}, 0, 701, kv_type="f16"))
    cases.append(attention_case([700], 8, 8, 32, 32, {"mask": "held"}, {}, 140, 701))
    chunked = {"mask": "chunked", "window": 300}
    cases.append(attention_case([700, 599, 600], 8, 2, 32, 32, chunked, {}, 0, 701))
    cases.append(attention_case([400, 640], 6, 2, 36, 20, {}, {}, 0, 701, margins=(8, 4), spare=3))
    cases.append(attention_case([400, 640], 8, 2, 32, 32, {}, {}, 0, 701, kv_type="q8_0", has_tail=True))
    return cases


def run(cases: Sequence[OpCase]) -> list[Any]:
    return asyncio.run(run_on(open_rig(), OpenSpec(), list(cases)))


def values(cases: Sequence[OpCase]) -> list[bytes]:
    return [result.views["y"].tobytes() for result in run(cases)]


@pytest.mark.parametrize("kv_type", share_of(reversed(KV_TYPES), 2))
def test_latent_attention_agrees_with_the_reference(kv_type: str) -> None:
    wide = latent_case([300, 299], 16, (1, 576, 512), kv_type=kv_type)
    cases = [wide, latent_case([40, 20], 4, (2, 32, 16), kv_type=kv_type)]
    for case, result in zip(cases, run(cases), strict=True):
        assert max(errors(result, reference_result(case))) <= TOLERANCE


def test_many_splits_agree_with_the_reference() -> None:
    cases = split_cases()
    for case, result in zip(cases, run(cases), strict=True):
        assert max(errors(result, reference_result(case))) <= TOLERANCE


@pytest.mark.parametrize(
    ("name", "value"),
    share_of([("FEW_ROWS", 0), ("SPLIT_BLOCKS", 4), ("MOST_SHARED_HEADS", 2), ("MOST_SHARED_HEADS", 1)], 3),
)
def test_bits_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    cases = split_cases()
    expected = values(cases)
    monkeypatch.setattr(kernels_attention, name, value)
    assert values(cases) == expected


@pytest.mark.parametrize("few", [0, 32])
def test_bits_do_not_depend_on_old_memory(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Memory begins as NaN, and tables without pages: no row beyond the step and no masked key is read."""
    cases = [replace(case, margins=(0, 0), spare=2) for case in split_cases()]
    expected = values(cases)
    fill = DriverDevice.fill
    monkeypatch.setattr(DriverDevice, "fill", lambda device, at, _, n: fill(device, at, 0xFF, n))
    monkeypatch.setattr(kernels_attention, "FEW_ROWS", few)
    assert values(cases) == expected


def test_bits_of_a_row_do_not_depend_on_the_step() -> None:
    case = split_cases()[1]
    together = run([case])[0].views["y"]
    rows = [({name: a[i : i + 1] for name, a in case.views.items()}, p) for i, p in enumerate(case.positions)]
    alone = values([replace(case, views=views, positions=[p], spare=40) for views, p in rows])
    assert alone == [row.tobytes() for row in together]


def test_a_nan_stays_in_its_head() -> None:
    case = split_cases()[1]
    q = case.views["q"].copy()
    q[1, 40] = np.nan
    before, after = (r.views["y"] for r in run([case, replace(case, views={**case.views, "q": q})]))
    assert np.isnan(after[1, 32:64]).all() and np.isnan(after).sum() == 32
    fine = ~np.isnan(after)
    assert np.array_equal(before[fine], after[fine])


@pytest.mark.parametrize(
    ("heads", "reason"),
    [
        ((1, 33, 32), "heads of 33 floats"),
        ((1, 1032, 64), "heads of 1032 and 64 floats; at most 1024 and 1024"),
    ],
)
def test_refuses_head_widths(heads: tuple[int, int, int], reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        run([latent_case([3], 2, heads)])
