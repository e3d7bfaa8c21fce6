"""Attention of prompt rows in tiles on the emulator: the bits of the split kernel, whatever shares a tile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cuda.rig import open_rig
from tests.support.exhaustive import exhaustive, share_of
from tests.support.parity.case_tools import vector, weight
from tests.support.parity.cases_state import attention_case
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase
from camelid_native.cuda import kernels_attention

N = 330  # keys: three splits of 128
# A generated row, 20 rows of a prompt (pieces of 7, 8 and 5 rows with four heads), two rows, and one.
LENGTHS = (1, 20, 2, 1)
POSITIONS = [300, *range(241, 261), 64, 65, 329]
WAYS = {"ascending": ("0", "32"), "random, waves of 64": ("7", "64"), "descending": ("1", "32")}


def case(heads: tuple[int, int, int, int], way: Mapping[str, Any] | None = None, **more: Any) -> OpCase:
    """Rows of four sequences over the same keys; `heads` are query heads, KV heads and both widths."""
    weights = more.pop("weights", {})
    made = attention_case(POSITIONS, *heads, way or {}, weights, more.pop("first_kept", 0), N, **more)
    return replace(made, lengths=list(LENGTHS))


def latent() -> OpCase:
    """One tensor: values are the first columns of the keys. Rows of 4 by 8 heads."""
    made = case((8, 1, 96, 72), kv_type="f16")
    return replace(made, values=None)


CASES: Mapping[str, OpCase] = {
    "four heads": case((8, 2, 32, 32), first_kept=5),
    "window, softcap and sinks": case(
        (8, 2, 32, 48), {"window": 150, "softcap": 3.0}, weights={"sinks": vector(37, 8)}, kv_type="f16"
    ),
    "narrow window": case((8, 2, 32, 32), {"window": 3}, kv_type="q4_0"),
    "bias by distance": case((4, 1, 32, 32), weights={"bias": weight("f32", 58, 90, 4)}, kv_type="q8_0"),
    "held": case((8, 1, 32, 32), {"mask": "held"}, kv_type="f16"),
    "one head": case((2, 2, 64, 64), {"window": 140}, kv_type="q8_0"),
    "three heads of odd sizes": case((6, 2, 36, 18)),
    "two tiers": case((8, 2, 48, 32), kv_type="q4_0", has_tail=True),
    "two tiers, part of the tail freed": case((4, 1, 32, 32), kv_type="q8_0", has_tail=True, tail_kept=30),
    "wide": case((4, 1, 72, 264), kv_type="f16"),
    "latent": latent(),
    "wider than tiles": case((2, 1, 16, 520), kv_type="f16"),
}
FIRST = ("window, softcap and sinks", "two tiers", "three heads of odd sizes", "latent", "wide", "held")
NAMES = [name if name in FIRST else exhaustive(name) for name in CASES]


def run(cases: Sequence[OpCase], *, tiles: bool) -> list[Any]:
    """The values of the cases by tiles of rows, or by splits of keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_attention, "FEW_ROWS", 0 if tiles else 32)
        results = asyncio.run(run_on(open_rig(), OpenSpec(), list(cases)))
    return [result.views["y"] for result in results]


@pytest.mark.parametrize("way", share_of(WAYS))
@pytest.mark.parametrize("name", NAMES)
def test_tiles_have_the_bits_of_splits(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    order, wave = WAYS[way]
    monkeypatch.setenv("EMU_ORDER", order)
    monkeypatch.setenv("EMU_WAVE", wave)
    (by_tiles,), (by_splits,) = run([CASES[name]], tiles=True), run([CASES[name]], tiles=False)
    assert by_tiles.tobytes() == by_splits.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_tiles_agree_with_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_attention, "FEW_ROWS", 0)
    (result,) = asyncio.run(run_on(open_rig(), OpenSpec(), [CASES[name]]))
    assert max(errors(result, reference_result(CASES[name]))) <= TOLERANCE


def test_splits_of_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_attention, "SPLIT_KEYS", 256)
    cases = [CASES["window, softcap and sinks"], CASES["two tiers"]]
    by_tiles, by_splits = run(cases, tiles=True), run(cases, tiles=False)
    assert [y.tobytes() for y in by_tiles] == [y.tobytes() for y in by_splits]


def test_bits_of_a_row_do_not_depend_on_its_piece() -> None:
    """Rows alone and in pieces of all sizes have the same bits."""
    whole = CASES["window, softcap and sinks"]
    (together,) = run([whole], tiles=True)
    for lengths in ([1] * len(POSITIONS), [3, 18, 3], [0, 24]):
        (apart,) = run([replace(whole, lengths=lengths)], tiles=True)
        assert apart.tobytes() == together.tobytes(), lengths


def test_a_row_reads_no_later_key() -> None:
    """An infinity in a key and a value of later rows of a tile changes no bit of the rows before."""
    fine = case((8, 2, 32, 32), kv_type="f16")
    assert fine.keys is not None and fine.values is not None
    keys, values = fine.keys.copy(), fine.values.copy()
    keys[250], values[252] = 1e6, 1e6  # beyond halves
    before, after = run([fine, replace(fine, keys=keys, values=values)], tiles=True)
    later = np.array(POSITIONS) >= 250
    assert later[POSITIONS.index(250)] and not later[POSITIONS.index(249)]
    assert before[~later].tobytes() == after[~later].tobytes()
    assert (before[later] != after[later]).any(axis=1).all() and not np.isfinite(after).all()


def test_a_query_of_nan_stays_in_its_head() -> None:
    fine = CASES["four heads"]
    q = fine.views["q"].copy()
    row = POSITIONS.index(250)
    q[row, 40] = np.nan
    before, after = run([fine, replace(fine, views={**fine.views, "q": q})], tiles=True)
    assert np.isnan(after[row, 32:64]).all() and np.isnan(after).sum() == 32
    assert np.array_equal(before[~np.isnan(after)], after[~np.isnan(after)])


def test_a_prompt_of_one_sequence_in_a_larger_program() -> None:
    """Tiles and sequences that a step does not have are left out, and values of other rows stay."""
    made = attention_case(list(range(100, 140)), 8, 2, 32, 32, {}, {}, 0, N, spare=30, margins=(8, 4))
    result = asyncio.run(run_on(open_rig(), OpenSpec(), [made]))[0]
    assert max(errors(result, reference_result(made))) <= TOLERANCE
