"""Agreement of two backends on an op: the error measure, its limits, and rounding of activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Candidates, Capabilities, OutputRow
from camelid.backends.common.codecs import activations, decode, encode
from camelid.backends.common.op_runner import F32, OpCase, OpResult
from camelid.plan.op_rows_adapters import HEADER_FLOATS
from camelid.plan.ops import OPS

Flags = npt.NDArray[np.bool_]
Choose = Callable[[F32, F32, Flags], F32]
FLOAT32, ROUNDED = 1e-10, 1e-6  # largest NMSE of float32 paths, and of paths with a rounding to fewer bits
# Largest NMSE of views by dtype. Two float32 values on either side of a tie are stored one unit in the last
# place apart: at most 2^-10 of the value in f16, 2^-7 in bf16. The limit of f16 allows this for every element
# (2^-20), the limit of bf16 for one element in eight (2^-17); for every element it would be 2^-14, too close
# to the 1e-4 of a relative error of 1 %.
STORED = {"f32": FLOAT32, "f16": ROUNDED, "bf16": 8e-6}
BLOCK, MOST = 32, 127  # activations "q8": columns per scale, and the largest code
NEAR_TIE = 1e-3
BY_BF16 = ("bf16", "mxfp8")  # weights that "q8" multiplies with activations of bf16
PRODUCTS = ("linear", "norm_linear", "qkv", "norm_qkv")  # first words of ops with a matrix product


def nmse(got: Any, want: Any) -> float:
    """Sum of squared errors over sum of squares; infinite if shapes or places of finite values differ."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape or not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return np.inf
    fine = np.isfinite(want)
    return float(((got[fine] - want[fine]) ** 2).sum() / max((want[fine] ** 2).sum(), 1e-30))


def worst(got: OpResult, want: OpResult) -> float:
    """The largest NMSE of written views, state and rows; infinite if ids or the status of a row differ."""
    return max(_errors(got, want), default=0.0)


def _errors(got: OpResult, want: OpResult) -> Iterator[float]:
    yield from (nmse(got.views[role], view) for role, view in want.views.items())
    yield from (nmse(got.state[name], rows) for name, rows in want.state.items())
    yield 0.0 if len(got.rows) == len(want.rows) else np.inf
    for a, b in zip(got.rows, want.rows, strict=False):
        yield from _row_errors(a, b)
    if all(row.status != "nan" for row in want.rows):
        yield 0.0 if list(map(list, got.rings)) == list(map(list, want.rings)) else np.inf


def _row_errors(got: OutputRow, want: OutputRow) -> Iterator[float]:
    if want.status == "nan":  # engines refuse such a row, so its numbers do not matter
        yield 0.0 if got.status == "nan" else np.inf
        return
    is_same = (got.token_id, got.status) == (want.token_id, want.status)
    yield nmse([got.logit, got.log_sum_exp], [want.logit, want.log_sum_exp]) if is_same else np.inf
    if want.logits is not None:
        yield np.inf if got.logits is None else nmse(got.logits, want.logits)
    if want.candidates is not None:
        yield _candidate_error(got.candidates, want.candidates)


def _candidate_error(got: Candidates | None, want: Candidates) -> float:
    """Error of candidates. Ids and logits must be equal: the logits are copies, not sums."""
    if got is None or list(got.ids) != list(want.ids) or list(got.logits) != list(want.logits):
        return np.inf
    return nmse([got.mean, got.variance], [want.mean, want.variance])


def allowed(case: OpCase, can: Capabilities) -> float:
    """The largest NMSE that passes the gate."""
    is_rounded = case.kv_type != "f32" or case.has_tail or rounds_activations(case, can)
    written = (case.dtypes.get(role, "f32") for role in (*OPS[case.op].writes, *OPS[case.op].updates))
    return max([ROUNDED if is_rounded else FLOAT32, *(STORED[dtype] for dtype in written)])


def rounds_activations(case: OpCase, can: Capabilities) -> bool:
    """True if the backend rounds the activations that the case multiplies with a matrix."""
    weight = case.weights.get("weight")
    return case.op.startswith(PRODUCTS) and weight is not None and can.rounding(weight.type) == "q8"


def as_stored(case: OpCase) -> OpCase:
    """The case with its views rounded to their dtypes."""
    views = {role: activations.rounded(a, case.dtypes.get(role, "f32")) for role, a in case.views.items()}
    return replace(case, views=views)


def with_slots(case: OpCase, slot_type: str) -> OpCase:
    """The case with its adapters, if it has any, in slots of this type (plan/op_rows_adapters.py)."""
    if case.adapters is None or slot_type == "f32":
        return case
    n = int(case.attrs["rank"]) + HEADER_FLOATS
    header = np.ascontiguousarray(case.adapters[:, :n], np.float32).view(np.uint16)
    values = case.adapters[:, n:].astype(np.float16).view(np.uint16)
    slots = np.hstack([header, values])
    return replace(case, adapters=np.pad(slots, ((0, 0), (0, -slots.shape[1] % (2 * HEADER_FLOATS)))))


def settled(case: OpCase) -> OpCase:
    """The case with each activation near a tie of two codes moved to one of them. The last bit of a backend's
    division then does not decide the code."""
    return _with_activations(case, lambda x, to, is_tie: np.where(is_tie, to, x))


def rounded(case: OpCase) -> OpCase:
    """The case with its activations rounded as by a backend with activations "q8"."""
    return _with_activations(case, lambda x, to, is_tie: to)


def _with_activations(case: OpCase, choose: Choose) -> OpCase:
    """The case with the columns of `x` that each head multiplies with its matrix replaced by `choose`."""
    weight, x = case.weights["weight"], case.views["x"].copy()
    shape, to_type = weight.shape, _as_bf16 if weight.type in BY_BF16 else _as_int8
    n_heads = shape[0] if case.op == "linear_heads" else x.shape[1] // shape[-1]
    met = x.reshape(len(x), n_heads, -1)[..., : shape[-1]]
    met[...] = choose(met, *to_type(met))
    return replace(case, views={**case.views, "x": x})


def _as_int8(x: F32) -> tuple[F32, Flags]:  # [..., K]
    """Rounds each block of columns to codes times a scale. Also returns flags of the codes near a tie."""
    blocks = x.reshape(-1, BLOCK)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(MOST)
    exact = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0)
    rounded = (np.rint(exact) * scales).astype(np.float32)
    ties = np.abs(np.abs(exact - np.trunc(exact)) - 0.5) < NEAR_TIE
    return rounded.reshape(x.shape), ties.reshape(x.shape)


def _as_bf16(x: F32) -> tuple[F32, Flags]:  # [..., K]
    """Rounds to bf16. No flags are set: without a division, all backends agree on ties."""
    return decode("bf16", encode("bf16", x), x.size).reshape(x.shape), np.zeros(x.shape, np.bool_)
