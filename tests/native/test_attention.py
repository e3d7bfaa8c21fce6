"""Attention of the CPU backend: its definition in float64, and equal bits for any batch and chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import in_turn
from tests.support.native.attention_oracle import F32, Shape, definition, normal, run
from tests.support.native.kernels import VARIANTS

from camelid.backends.common import op_runner as single
from camelid.backends.common.codecs import CODECS
from camelid.backends.common.op_runner import OpCase, Quantized

MAX_NMSE = 1e-11
SHAPES = (
    *(Shape(heads=(group * 2, 2), dims=(32, 32)) for group in (1, 2, 3, 5, 9)),
    *(
        Shape(kv_type=kv_type, dims=dims)
        for kv_type in ("f16", "q8_0", "q4_0")
        for dims in ((64, 64), (48, 80))
    ),
    Shape(heads=(8, 8), dims=(128, 128), kv_type="f16"),
    Shape(heads=(2, 2), dims=(40, 24)),  # heads end within a vector
    Shape(heads=(2, 2), dims=(48, 16), kv_type="q8_0"),  # and within a block
    *(
        Shape(heads=(8, 8), dims=dims, kv_type=kv_type)  # and within only keys, or only values
        for kv_type in ("f16", "q8_0", "q4_0")
        for dims in ((24, 16), (16, 24), (20, 16), (40, 32))
    ),
    Shape(heads=(16, 16), dims=(16, 18), kv_type="q8_0"),
    Shape(heads=(5, 1), dims=(576, 512), kv_type="q8_0", has_values=False),
    Shape(heads=(3, 3), dims=(32, 64), kv_type="q8_0", has_tail=True, sinks=True),
    Shape(heads=(3, 1), dims=(64, 64), kv_type="q4_0", has_tail=True, first_kept=100),
    Shape(kv_type="q8_0", has_tail=True, tail_kept=208),  # the tail freed rows past the border
    Shape(attrs={"window": 70}, sinks=True, first_kept=33),
    Shape(attrs={"mask": "held"}, first_kept=64),
    Shape(attrs={"softcap": 2.0, "scale": 3.0}, sinks=True),
    Shape(bias=20, attrs={"window": 90}),
    Shape(kv_type="f16", attrs={"scale": 40.0}),  # most weights vanish beside the largest
)
DEPTH = 420  # rows of a prompt: full and partial chunks of keys, the border of two tiers in several chunks


def nmse(got: F32, want: Any) -> float:
    return float(((got - want) ** 2).sum() / (want**2).sum())


def bits(values: F32) -> bytes:
    return np.ascontiguousarray(values).tobytes()


@pytest.mark.parametrize(("shape", "variant"), in_turn(SHAPES, VARIANTS), ids=str)
def test_definition(shape: Shape, variant: str) -> None:
    for positions in (range(DEPTH - 1, DEPTH), range(DEPTH - 70, DEPTH)):
        got = run(shape.case(positions, DEPTH), variant, threads=2).views["y"]
        error = nmse(got, definition(shape, positions, DEPTH))
        assert error <= MAX_NMSE, f"{len(positions)} rows: {error:.1e}"


ALONE = [shape for shape in SHAPES if shape.attrs.get("mask") != "held"]


@pytest.mark.parametrize(("shape", "variant"), in_turn(ALONE, VARIANTS), ids=str)
def test_a_rows_bits_depend_on_itself_alone(shape: Shape, variant: str) -> None:
    """Promises A and B: for any chunk, batch and number of threads."""
    positions, q = range(DEPTH - 70, DEPTH), shape.queries(70)
    whole = run(shape.case(positions, DEPTH, q), variant).views["y"]
    for threads in (2, 3, 4):
        assert bits(run(shape.case(positions, DEPTH, q), variant, threads).views["y"]) == bits(whole)
    for first, end, threads in ((0, 1, 1), (0, 1, 4), (69, 70, 3), (13, 15, 2), (20, 41, 1)):
        case = shape.case(positions[first:end], DEPTH, q[first:end])
        assert bits(run(case, variant, threads).views["y"]) == bits(whole[first:end])


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("shape", [Shape(kv_type="f16"), Shape(kv_type="q8_0", has_tail=True)], ids=str)
def test_a_batch_changes_no_bit(shape: Shape, threads: int) -> None:
    """Rows of four sequences in one step at distant positions: one prompt in progress, three decoding."""
    positions, lengths = [399, 7, 100, 101, 102, 419], (1, 1, 3, 1)
    q = shape.queries(len(positions))
    together = run(shape.case(positions, DEPTH, q, lengths=lengths), VARIANTS[-1], threads).views["y"]
    for row, position in enumerate(positions):
        alone = run(shape.case([position], DEPTH, q[row : row + 1]), VARIANTS[-1]).views["y"]
        assert bits(alone) == bits(together[row : row + 1])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_unseen_keys_do_not_leak(
    bad: float, kv_type: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys before a window or after a row may hold any bits without changing the row's bits."""
    monkeypatch.setattr(single, "encode", raw_bytes)
    shape = Shape(kv_type=kv_type, attrs={"window": 40})
    clean = shape.case(range(150, 170), 176)
    assert clean.keys is not None and clean.values is not None
    spoiled = [array.copy() for array in (clean.keys, clean.values)]
    for array in spoiled:
        array[:115] = array[160:] = bad  # rows 154 to 159 attend to none of these
    got = run(replace(clean, keys=spoiled[0], values=spoiled[1]), variant, threads=2).views["y"]
    want = run(clean, variant, threads=2).views["y"]
    assert bits(got[4:10]) == bits(want[4:10])
    assert not np.isfinite(got[:4]).any() and not np.isfinite(got[10:]).any()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("n", [1, 12])
def test_rows_without_keys_are_zeros(n: int, sinks: bool, variant: str) -> None:
    """Rows with the mask `held` of a sequence without stored rows."""
    shape = Shape(dims=(64, 40), attrs={"mask": "held"}, sinks=sinks)
    for threads in (1, 3):
        got = run(shape.case(range(n), n), variant, threads).views["y"]
        np.testing.assert_array_equal(got, np.zeros((n, 4 * 40), np.float32))


def raw_bytes(kv_type: str, values: F32) -> Any:
    """The bytes of rows, including values that no writer stores."""
    codec = CODECS[kv_type]
    return codec.encode(values.reshape(-1, codec.quant.block))


ROWS = (9, 1, 40, 100)  # of the sequences in a step
WAYS: tuple[dict[str, Any], ...] = ({}, {"mask": "causal"}, {"mask": "symmetric", "window": 12}, {"bias": 6})


def rows_case(lengths: Sequence[int], views: Mapping[str, F32], bias: int = 0, **attrs: Any) -> OpCase:
    """An attend_rows case of 6 heads, 2 key-value heads, keys of 32 and values of 24."""
    table = normal(8, 2 * bias + 1, 6)
    weights = {"bias": Quantized("f32", table.shape, table.tobytes())} if bias else {}
    sizes = {"n_heads": 6, "n_kv_heads": 2, "scale": 0.2}
    n = sum(lengths)
    y = np.zeros((n, 6 * 24), np.float32)
    facts: dict[str, Any] = {"lengths": lengths, "positions": range(n), "attrs": {**sizes, **attrs}}
    return OpCase(op="attend_rows", views={"y": y, **views}, weights=weights, **facts)


def rows_definition(views: Mapping[str, F32], bias: int = 0, mask: str = "full", window: int = 0) -> Any:
    """The definition for one sequence's rows."""
    q, k, v = (views[role].astype(np.float64).reshape(-1, n, width) for role, n, width in PARTS)
    table, n = normal(8, 2 * bias + 1, 6), len(q)
    away = np.arange(n)[None] - np.arange(n)[:, None]  # [row, key]
    hidden = {"full": away > n, "causal": away > 0, "symmetric": abs(away) > window // 2}[mask]
    out = np.empty((n, 6, 24))
    for h in range(6):
        scores = q[:, h] @ k[:, h // 3].T * 0.2 + (table[away.clip(-bias, bias) + bias, h] if bias else 0.0)
        e = np.exp(np.where(hidden, -np.inf, scores - scores.max(axis=1, keepdims=True)))
        out[:, h] = e / e.sum(axis=1, keepdims=True) @ v[:, h // 3]
    return out.reshape(n, -1)


PARTS = (("q", 6, 32), ("k", 2, 32), ("v", 2, 24))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_rows_of_the_step(way: Mapping[str, Any], variant: str) -> None:
    """Each sequence attends to itself alone, at any place in the step and for any number of threads."""
    views = {role: normal(5, sum(ROWS), n * width) for role, n, width in PARTS}
    got = run(rows_case(ROWS, views, **way), variant, threads=3).views["y"]
    start = 0
    for n in ROWS:
        own = {role: rows[start : start + n] for role, rows in views.items()}
        assert nmse(got[start : start + n], rows_definition(own, **way)) <= MAX_NMSE
        assert bits(run(rows_case([n], own, **way), variant).views["y"]) == bits(got[start : start + n])
        start += n
