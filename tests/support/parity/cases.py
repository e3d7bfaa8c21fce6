"""Every op with every weight type of its kernels, on edge shapes. All backends share this list."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.parity.case_tools import array, empty, loaded, vector, weight
from tests.support.parity.cases_adapters import adapter_cases
from tests.support.parity.cases_elementwise import act_cases, norm_cases, scaling_cases
from tests.support.parity.cases_encoder import encoder_cases
from tests.support.parity.cases_experts import expert_cases
from tests.support.parity.cases_recurrent import recurrent_cases
from tests.support.parity.cases_sampling import sample_cases
from tests.support.parity.cases_state import (
    attention_cases,
    latent_cases,
    state_cases,
    stored_cases,
    tail_cases,
)
from tests.support.parity.cases_streams import heads_cases, stream_cases

from camelid.backends.common.op_runner import OpCase, Quantized
from camelid.backends.webgpu.layouts import LAYOUTS
from camelid.model.rope import rope_tables
from camelid.model.spec import RopeSpec
from camelid.plan.ops import OPS

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0")
SAMPLE_TYPES = (
    "f32",
    "q8_0",
    "q4_0",
)  # in ordinary runs: 32, 8 and 4 bits


def embed_cases() -> Iterator[OpCase]:
    for type_ in TYPES:
        yield OpCase(
            op="embed",
            views={"y": empty(5, 256)},
            weights={"weight": weight(type_, 1, 40, 256)},
            token_ids=[0, 39, 7, 7, 21],
            attrs={"scale": 16.0} if type_ == "bf16" else {},
        )
        yield OpCase(
            op="embed_position",
            views={"x": array(33, 3, 256)},
            weights={"weight": weight(type_, 34, 20, 256)},
            positions=[4, 19, 0],
        )
    yield OpCase(
        op="embed_position",
        views={"x": array(33, 3, 256)},
        weights={"weight": weight("f32", 34, 20, 256)},
        positions=[4, 19, 9],
        channels=2,
        attrs={"channel": 1},
    )


def ring_cases() -> Iterator[OpCase]:
    """Ids read from and written to the ring, more rows than it holds, and ids restored by a session."""
    for n, ids in ((3, [3, 9, -1]), (1, [-1]), (300, [i % 40 for i in range(300)])):
        yield OpCase(
            op="embed",
            views={"y": empty(n, 32)},
            weights={"weight": weight("f32", 71, 40, 32)},
            token_ids=ids,
            positions=range(125, 125 + n),
            history=[i * 7 % 40 for i in range(130)],
        )


def linear_cases() -> Iterator[OpCase]:
    shapes = ((1, 256, 256), (9, 64, 6), (17, 768, 130), (1, 2048, 3))  # rows, in, out
    for type_ in TYPES:
        for rows, n_in, n_out in shapes:
            views = {"y": empty(rows, n_out), "x": array(5, rows, n_in)}
            yield OpCase(op="linear", views=views, weights={"weight": weight(type_, 6, n_out, n_in)})
            pair = {"weight": weight(type_, 7, 2 * n_out, n_in)}
            yield OpCase(op="linear_glu", views=views, weights=pair, attrs={"act": "silu"})
        bias = {"weight": weight(type_, 6, 130, 64), "bias": vector(35, 130)}
        yield OpCase(op="linear", views={"y": empty(9, 130), "x": array(5, 9, 64)}, weights=bias)
    pair = {"weight": weight("f32", 7, 12, 64)}
    for act in ("gelu", "swiglu_oai"):
        views = {"y": empty(2, 6), "x": array(36, 2, 64)}
        yield OpCase(op="linear_glu", views=views, weights=pair, attrs={"act": act})


def narrow_cases() -> Iterator[OpCase]:
    """Rows of few weights, which need not start at 16 bytes."""
    for type_ in ("f32", "f16", "bf16"):
        for rows, n_in, n_out in ((1, 3, 9), (9, 5, 130), (17, 4, 16)):
            views = {"y": empty(rows, n_out), "x": array(5, rows, n_in)}
            weights = {"weight": weight(type_, 6, n_out, n_in)}
            yield OpCase(op="linear", views=views, weights=weights)
            yield OpCase(op="linear", views=views, weights={**weights, "bias": vector(35, n_out)})


def deferred_cases() -> Iterator[OpCase]:
    """Sums into the residual stream, and norms that the op behind them divides by."""
    for type_, rows, n_in, n_out in (("f32", 1, 64, 64), ("q8_0", 9, 256, 144), ("q4_0", 17, 768, 272)):
        views = {"y": array(90, rows, n_out), "x": array(91, rows, n_in)}
        weights = {"weight": weight(type_, 92, n_out, n_in), "bias": vector(93, n_out)}
        yield OpCase(op="linear_add", views=views, weights=weights)
        z, gain = {"z": empty(rows, n_out * 5 // 4)}, {"gain": vector(94, n_out)}
        yield OpCase(op="linear_add_norm", views=views | z, weights=weights | gain, attrs={"scale": 0.22})
        deferred = {
            "y": empty(rows, n_out),
            "x": np.hstack([array(91, rows, n_in), array(95, rows, n_in // 4) ** 2]),
        }
        yield OpCase(op="norm_linear", views=deferred, weights=weights, attrs={"eps": 1e-5})
        pair = {"weight": weight(type_, 92, 2 * n_out, n_in)}
        how: dict[str, Any] = {"act": "silu", "eps": 0.1}
        yield OpCase(op="norm_linear_glu", views=deferred, weights=pair, attrs=how)


def codec_cases() -> Iterator[OpCase]:
    """The types without cases of their own above: a lookup, one row, several rows, experts in two parts."""
    for type_ in sorted(LAYOUTS.keys() - {*TYPES}):
        table = {"weight": weight(type_, 81, 10, 512)}
        yield OpCase(op="embed", views={"y": empty(4, 512)}, weights=table, token_ids=[0, 9, 3, 3])
        for rows in (1, 9):
            views = {"y": empty(rows, 10), "x": array(82, rows, 512)}
            yield OpCase(op="linear", views=views, weights=table)
        views = {"y": empty(2, 10), "x": array(83, 2, 512), "ids": array(84, 2, 1) * 0 + [[2], [1]]}
        yield OpCase(op="linear_experts", views=views, weights={"weight": weight(type_, 85, 3, 10, 512)})


def load_cases() -> Iterator[OpCase]:
    """Weights made by load ops, read through an op."""
    views = {"y": empty(3, 24), "x": array(53, 3, 16)}
    ways: tuple[tuple[tuple[Any, ...], ...], ...] = (
        (("transpose", 16, 24),),
        (("permute_rows", 3, 8),),
        (("rows", 5, 24, 40),),
        (("pick", 40, *(i * i % 40 for i in range(24))),),
        (("transpose", 16, 72), ("rows", 24, 24, 72)),
        (("concat", 0),),
    )
    for stored in ("f32", "f16", "bf16"):
        for to in dict.fromkeys((stored, "f32")):
            cast = (("cast", stored),) if to != stored else ()
            for ops in ways:
                n = {"rows": 40 * 16, "pick": 40 * 16, "transpose": 16 * ops[0][-1]}.get(ops[0][0], 0)
                made = loaded(to, (24, 16), stored, 54, *cast, *ops, n=n)
                yield OpCase(op="linear", views=views, weights={"weight": made})
        factors = ("scale_rows", 5, 0.3, 18, 1.0, 1, -2.5)
        scaled = loaded("f32", (24, 16), stored, 54, ("cast", stored), ("transpose", 16, 24), factors)
        yield OpCase(op="linear", views=views, weights={"weight": scaled})
        for n in (7, 64):
            change = ("add", 1.0) if n == 7 else ("neg_exp",)
            gain = loaded("f32", (n,), stored, 55, ("cast", stored), change)
            norm = {"y": empty(2, n), "x": array(56, 2, n)}
            yield OpCase(op="norm", views=norm, weights={"gain": gain}, attrs={"eps": 1e-6})


def rope_cases() -> Iterator[OpCase]:
    for style, dim, positions in (
        ("norm", 64, [0, 1, 255, 256]),
        ("neox", 64, [4095, 3]),
        ("norm", 32, [700]),
    ):
        fine, coarse = rope_tables(RopeSpec(theta=10000.0, dim=dim, style=style), 4096)
        tables = {"fine": _table(fine), "coarse": _table(coarse)}
        yield OpCase(
            op="rope",
            views={"x": array(8, len(positions), 192)},
            weights=tables,
            positions=positions,
            attrs={"head_dim": 64, "dim": dim, "style": style},
        )
        if dim == 32:
            how = {"head_dim": 64, "dim": 32, "style": "neox", "channel": 2}
            x = {"x": array(8, 2, 192)}
            yield OpCase(op="rope", views=x, weights=tables, positions=[3, 700], attrs=how, channels=3)
            for style in ("norm", "neox"):  # the last half, and floats 12 to 43, of each head
                for offset in (32, 12):
                    how = {"head_dim": 64, "dim": 32, "style": style, "offset": offset}
                    x = {"x": array(8, 2, 192)}
                    yield OpCase(op="rope", views=x, weights=tables, positions=[3, 700], attrs=how)


QkvWay = tuple[str, str, int, int, str, int, Sequence[int]]


def qkv_cases() -> Iterator[OpCase]:
    """Both orders of pairs, parts of a head, a bias, values narrower than keys, values with a map of their
    own, every type of state, norms of heads, a tail.
    """
    ways: tuple[QkvWay, ...] = (
        ("qkv", "norm", 32, 0, "f32", 64, [15]),
        ("norm_qkv", "neox", 32, 0, "f32", 64, [14, 15, 16, 17, 18, 19, 20, 21, 22]),
        ("norm_qkv", "neox", 16, 12, "f16", 32, [3, 30]),
        ("qkv", "norm", 16, 8, "f16", 64, list(range(20, 40))),
        ("norm_qkv", "norm", 32, 0, "q8_0", 64, [5]),
    )
    yield from (qkv_case(way, "q8_0") for way in ways)
    yield qkv_case(ways[1], "q8_0", "q4_0")
    yield qkv_case(ways[2], "q8_0", "f16")
    yield qkv_case(ways[4], "q8_0", "q4_0")
    yield qkv_case(ways[0], "q4_k", "q6_k", 256)
    for kind, way in (("", ways[1]), ("", ways[3]), ("f16", ways[2]), ("q4_0", ways[4])):
        case = qkv_case(way, "q8_0", kind)
        gains = {"q_gain": vector(91, 32), "k_gain": vector(92, 32)}
        attrs = {**case.attrs, "head_eps": 1e-3}
        has_tail = case.kv_type == "q8_0"
        yield replace(case, weights={**case.weights, **gains}, attrs=attrs, has_tail=has_tail)


def qkv_case(way: QkvWay, type_: str, v_type: str = "", n_in: int = 64) -> OpCase:
    """A way is an op, style, dim, offset, type of state, columns of values, positions; rotated parts of heads
    have a bias.
    """
    op, style, dim, offset, kv_type, v_cols, positions = way
    n, n_out, n_held = len(positions), 128 + 64 + v_cols, max(45, max(positions) + 6)
    fine, coarse = rope_tables(RopeSpec(theta=10000.0, dim=dim, style=style), 4096)
    x, squares = array(96, n, n_in), array(95, n, n_in // 4) ** 2
    is_deferred, n_own = op == "norm_qkv", v_cols if v_type else 0
    sizes = {"k_cols": 64, "v_cols": v_cols, "head_dim": 32, "dim": dim, "offset": offset, "style": style}
    return OpCase(
        op=op,
        views={"y": empty(n, n_out), "x": np.hstack([x, squares]) if is_deferred else x},
        weights={
            "weight": weight(type_, 97, n_out - n_own, n_in),
            **({"v_weight": weight(v_type, 99, v_cols, n_in)} if v_type else {}),
            **({"bias": vector(98, n_out - n_own)} if dim < 32 else {}),
            **({"v_bias": vector(94, v_cols)} if dim < 32 and v_type else {}),
            "fine": _table(fine),
            "coarse": _table(coarse),
        },
        positions=positions,
        keys=array(11, n_held, 64),
        values=array(12, n_held, v_cols),
        kv_type=kv_type,
        attrs={**sizes, "eps": 1e-5} if is_deferred else sizes,
    )


def norm_rope_cases() -> Iterator[OpCase]:
    """Both orders of pairs, parts of a head, heads below and above a workgroup, every type of state."""
    ways = (
        ("norm_rope", "norm", 32, 32, 0, "f32", 64, [700]),
        ("norm_rope", "neox", 160, 80, 40, "f32", 160, [3, 255]),
        ("norm_rope_write", "neox", 32, 32, 0, "f32", 32, [15]),
        ("norm_rope_write", "norm", 160, 160, 0, "f16", 320, [14, 15, 16, 17]),
        ("norm_rope_write", "neox", 32, 16, 12, "f16", 64, list(range(20, 40))),
        ("norm_rope_write", "norm", 32, 32, 0, "q8_0", 64, [5, 6]),
    )
    for op, style, head_dim, dim, offset, kv_type, v_cols, positions in ways:
        k_cols, n = 2 * head_dim, max(positions) + 5
        fine, coarse = rope_tables(RopeSpec(theta=10000.0, dim=dim, style=style), 4096)
        gains = {"q_gain": vector(91, head_dim), "k_gain": vector(92, head_dim)}
        stored = {"keys": array(11, n, k_cols), "values": array(12, n, v_cols), "kv_type": kv_type}
        yield OpCase(
            op=op,
            views={"x": array(93, len(positions), 2 * k_cols + v_cols)},
            weights={**gains, "fine": _table(fine), "coarse": _table(coarse)},
            positions=positions,
            attrs={"k_cols": k_cols, "v_cols": v_cols, "head_dim": head_dim, "dim": dim, "offset": offset,
                   "style": style, "eps": 1e-6},
            **(stored if op == "norm_rope_write" else {}),
        )  # fmt: skip


def _table(table: Any) -> Quantized:
    return Quantized("f32", table.shape, base64.b64decode(table.parts[0].data))


def other_cases() -> Iterator[OpCase]:
    yield OpCase(op="gather_rows", views={"y": empty(3, 70), "x": array(18, 5, 70)}, output_rows=[4, 0, 4])


def make_cases() -> Sequence[OpCase]:
    makers = (
        embed_cases,
        ring_cases,
        norm_cases,
        scaling_cases,
        act_cases,
        linear_cases,
        narrow_cases,
        deferred_cases,
        codec_cases,
        load_cases,
        expert_cases,
        rope_cases,
        qkv_cases,
        norm_rope_cases,
        state_cases,
        attention_cases,
        stored_cases,
        tail_cases,
        recurrent_cases,
        latent_cases,
        other_cases,
        encoder_cases,
        stream_cases,
        heads_cases,
        sample_cases,
        adapter_cases,
    )
    cases = [case for maker in makers for case in maker()]
    return [*cases, *placed_cases(cases)]


def placed_cases(cases: Sequence[OpCase]) -> Iterator[OpCase]:
    """The largest case of each op with its views amid other columns and spare rows; for row-wise ops also
    with output rows in excess of token rows.
    """
    for op in dict.fromkeys(case.op for case in cases):
        fullest = max((case for case in cases if case.op == op), key=_n_rows)
        if fullest.views:
            yield replace(fullest, margins=(8, 4), spare=3)
        if OPS[op].row_wise:
            yield replace(fullest, of_outputs=True)


def _n_rows(case: OpCase) -> int:
    return max(map(len, case.views.values()), default=0)


OP_CASES = make_cases()


def kind_of(case: OpCase) -> tuple[object, ...]:
    """Types of weights and their load ops, names, one row or more, rows of few weights, and use of a window,
    a tail, candidates, ring ids, output rows, views of one buffer.
    """
    types = tuple((role, w.type, *(op.name for op in w.load_ops)) for role, w in case.weights.items())
    names = tuple(value for value in case.attrs.values() if isinstance(value, str))
    shape = (_n_rows(case) > 1, is_narrow(case), bool(case.attrs.get("window")), case.has_tail)
    reads = (case.kv_type, case.features, bool(case.history), case.of_outputs, case.joined)
    return (case.op, *types, *names, *shape, *reads)


def shaders_of(case: OpCase) -> tuple[object, ...]:
    """A coarser kind for Chromium, where a case costs a quarter of a second: the facts that select shader
    files.
    """
    types = tuple((role, w.type) for role, w in case.weights.items())
    names = tuple(value for value in case.attrs.values() if isinstance(value, str))
    is_moved = any(op.name == "transpose" for w in case.weights.values() for op in w.load_ops)
    return (case.op, *types, *names, case.kv_type, case.features, is_moved, is_narrow(case), case.joined)


def is_narrow(case: OpCase) -> bool:
    return case.op == "linear" and case.weights["weight"].shape[-1] % 8 > 0


def sample_of_types(cases: Iterable[OpCase]) -> list[OpCase]:
    """Every case whose weights are all of SAMPLE_TYPES, and the first `linear` of each other type."""
    sample, seen = list[OpCase](), set[str]()
    for case in cases:
        others = {w.type for w in case.weights.values()}.difference(SAMPLE_TYPES)
        if not others or (case.op == "linear" and not others <= seen):
            sample.append(case)
            seen |= others
    return sample


def sample_of_kernels(cases: Iterable[OpCase]) -> list[OpCase]:
    """A case of one row and one of several rows for each kind by shaders, out of `sample_of_types`."""
    return one_of_each_kind(sample_of_types(cases), lambda case: (*shaders_of(case), _n_rows(case) > 1))


def sample_of_shaders(cases: Iterable[OpCase]) -> list[OpCase]:
    """A case for each kind by shaders, out of `sample_of_types`."""
    return one_of_each_kind(sample_of_types(cases), shaders_of)


def one_of_each_kind(cases: Sequence[OpCase], kind: Callable[[OpCase], object] = kind_of) -> list[OpCase]:
    """The case with the most rows of each kind."""
    return list({kind(case): case for case in sorted(cases, key=_n_rows)}.values())


def case_id(case: OpCase) -> str:
    type_ = next((w.type for w in case.weights.values()), "")
    shapes = "_".join("x".join(map(str, a.shape)) for a in case.views.values())
    return "-".join(filter(None, (case.op, type_, shapes, "outputs" if case.of_outputs else "")))
