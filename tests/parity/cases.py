"""Every op with every weight type it has a kernel for, on edge shapes. One list for all backends."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from camelid.backends.codecs import CODECS
from camelid.backends.single import OpCase, Quantized
from camelid.model.rope import rope_tables
from camelid.model.spec import RopeSpec
from camelid.plan.step import StepSampling

TYPES = ("f32", "f16", "q8_0", "q4_0")
EPS = {"eps": 1e-5}
ALL = frozenset({"all_logits"})


def array(seed: int, *shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def weight(type_: str, seed: int, *shape: int) -> Quantized:
    codec = CODECS[type_]
    values = array(seed, *shape, scale=shape[-1] ** -0.5)
    return Quantized(type_, shape, codec.encode(values.reshape(-1, codec.quant.block)).tobytes())


def vector(seed: int, n: int) -> Quantized:
    return Quantized("f32", (n,), array(seed, n).tobytes())


def empty(rows: int, cols: int) -> Any:
    return np.zeros((rows, cols), np.float32)


def embed_cases() -> Iterator[OpCase]:
    for type_ in TYPES:
        yield OpCase(
            op="embed",
            views={"y": empty(5, 256)},
            weights={"weight": weight(type_, 1, 40, 256)},
            token_ids=[0, 39, 7, 7, 21],
        )


def norm_cases() -> Iterator[OpCase]:
    for rows, cols in ((1, 8), (3, 256), (2, 1000)):
        views = {"y": empty(rows, cols), "x": array(2, rows, cols), "r": array(3, rows, cols)}
        gain = {"gain": vector(4, cols)}
        yield OpCase(op="norm", views={r: views[r] for r in "yx"}, weights=gain, attrs=EPS)
        yield OpCase(op="add_norm", views=views, weights=gain, attrs=EPS)
        yield OpCase(op="add", views={"x": views["x"], "r": views["r"]})
    zeros = {"y": empty(2, 64), "x": empty(2, 64)}
    yield OpCase(op="norm", views=zeros, weights={"gain": vector(4, 64)}, attrs=EPS)


def linear_cases() -> Iterator[OpCase]:
    shapes = ((1, 256, 256), (9, 64, 6), (17, 768, 130), (1, 2048, 3))  # rows, in, out
    for type_ in TYPES:
        for rows, n_in, n_out in shapes:
            views = {"y": empty(rows, n_out), "x": array(5, rows, n_in)}
            yield OpCase(op="linear", views=views, weights={"weight": weight(type_, 6, n_out, n_in)})
            pair = {"weight": weight(type_, 7, 2 * n_out, n_in)}
            yield OpCase(op="linear_glu", views=views, weights=pair, attrs={"act": "silu"})


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


def _table(table: Any) -> Quantized:
    return Quantized("f32", table.shape, base64.b64decode(table.parts[0].data))


def state_cases() -> Iterator[OpCase]:
    yield OpCase(
        op="kv_write",
        views={"k": array(9, 3, 128), "v": array(10, 3, 128)},
        positions=[15, 16, 17],
        keys=array(11, 20, 128),
        values=array(12, 20, 128),
    )
    yield OpCase(
        op="copy",
        views={},
        keys=array(11, 60, 128),
        values=array(12, 60, 128),
        copies=[(0, 2, 16), (1, 3, 5)],
    )


def attention_cases() -> Iterator[OpCase]:
    heads = ((4, 2, 64), (3, 1, 128), (2, 2, 32), (8, 2, 256))
    for (n_heads, n_kv_heads, head_dim), positions in zip(
        heads, ([0], [63, 64, 65], [200, 5], [130]), strict=True
    ):
        n = max(positions) + 1
        sizes: Mapping[str, int] = {"n_heads": n_heads, "n_kv_heads": n_kv_heads}
        q = array(13, len(positions), n_heads * head_dim)
        yield OpCase(
            op="attention",
            views={"y": np.zeros_like(q), "q": q},
            positions=positions,
            keys=array(14, n, n_kv_heads * head_dim),
            values=array(15, n, n_kv_heads * head_dim),
            attrs={**sizes, "scale": head_dim**-0.5, "mask": "causal"},
        )


def other_cases() -> Iterator[OpCase]:
    views = {"y": empty(3, 100), "gate": array(16, 3, 100, scale=4.0), "up": array(17, 3, 100)}
    yield OpCase(op="glu", views=views, attrs={"act": "silu"})
    yield OpCase(op="gather_rows", views={"y": empty(3, 70), "x": array(18, 5, 70)}, output_rows=[4, 0, 4])


def sample_cases() -> Iterator[OpCase]:
    tied = array(19, 3, 1000)
    tied[:, [3, 77, 999]] = 9.0  # the lowest id wins
    yield OpCase(op="sample", views={"logits": tied})
    yield OpCase(op="sample", views={"logits": array(20, 2, 37)}, features=ALL)
    for seed in (1, 2**63 + 12345):
        how = StepSampling(temperature=0.7, seed=seed, choice=3)
        yield OpCase(op="sample", views={"logits": array(21, 4, 1024, scale=2.0)}, sampling=how)
    tail = array(23, 1, 1024)
    tail[0, 561] = -30.0  # with seed 332 its u is 1 - 2^-25, which float32 rounds to 1
    yield OpCase(op="sample", views={"logits": tail}, sampling=StepSampling(temperature=1.0, seed=332))
    broken = array(22, 2, 64)
    broken[1, 40] = np.nan
    yield OpCase(op="sample", views={"logits": broken})
    yield OpCase(op="sample", views={"logits": empty(1, 64)})


def make_cases() -> Sequence[OpCase]:
    makers = (
        embed_cases,
        norm_cases,
        linear_cases,
        rope_cases,
        state_cases,
        attention_cases,
        other_cases,
        sample_cases,
    )
    return [case for maker in makers for case in maker()]


OP_CASES = make_cases()


def case_id(case: OpCase) -> str:
    type_ = next((w.type for w in case.weights.values()), "")
    shapes = "_".join("x".join(map(str, a.shape)) for a in case.views.values())
    return "-".join(filter(None, (case.op, type_, shapes)))
