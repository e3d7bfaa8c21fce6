"""Ops without a webgpu kernel are a clear error with their name before any weight is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from struct import unpack_from
from typing import Any

import pytest
from tests.support.parity.case_tools import array, empty, f32, weight
from tests.support.parity.cases_sampling import sample_cases
from tests.support.parity.cases_state import attention_case
from tests.support.parity.sections import PaperHost

from camelid.backends.base import OpenSpec, PoolSize, check_plan, reason_against
from camelid.backends.common.op_runner import OpCase, Quantized, run_case
from camelid.backends.webgpu.backend import WebGpuBackend
from camelid.backends.webgpu.kernels import KERNELS, plan_refusal
from camelid.errors import BackendError, DeviceLostError
from camelid.plan.ops import OPS, make_op
from camelid.plan.plan import Buffer, Op, Plan, Stage, StateRef, StateSpec, View
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.weights import LoadOp, Part, Weight

KV = StateSpec("kv", "paged", (0,), (("k", 64), ("v", 64)), 16)
TAIL = StateSpec("kv_tail", "window", (0,), KV.tensors, 16, "f16", 320)


def plan_of(op: Op, state: StateSpec = KV, tail: StateSpec = TAIL) -> Plan:
    key = ProgramKey(entry="decode", capacity=Capacity(rows=1, sequences=1, outputs=1, updates=1))
    return Plan(key=key, stages=(Stage("main", (op,)),), states=(state, tail))


def view(name: str, cols: int, offset: int = 0, of: str = "", width: int = 0) -> View:
    return View(Buffer(of or name, "T", width or cols + offset), cols, offset)


def blank(name: str, *shape: int, type_: str = "f32") -> Weight:
    made = Weight(name=name, type=type_, shape=shape, parts=())
    return replace(made, parts=(Part("model", 0, made.n_bytes),))


def run_on_paper(case: OpCase) -> None:
    async def run() -> None:
        backend = WebGpuBackend(PaperHost())
        await backend.open(OpenSpec())
        await run_case(backend, case)

    asyncio.run(run())


@pytest.mark.parametrize("name", sorted(set(OPS) - set(KERNELS)))
def test_an_op_without_a_kernel_is_named(name: str) -> None:
    plan = plan_of(Op(name, ()))
    assert repr(name) in plan_refusal(plan)
    with pytest.raises(BackendError, match=name):
        check_plan(plan, WebGpuBackend(PaperHost()).capabilities())


def attention(heads: tuple[int, int] = (2, 32), **attrs: Any) -> Op:
    n_heads, dim = heads
    views = {"y": view("y", n_heads * dim), "q": view("q", n_heads * dim), "state": StateRef("kv")}
    return make_op("attention", views, {"n_heads": n_heads, "n_kv_heads": 2, "scale": 1.0, **attrs})


def matrix(x: View, *shape: int, type_: str = "f32") -> Op:
    return make_op("linear", {"y": view("y", 8), "x": x, "weight": blank("w", *shape, type_=type_)}, {})


def router(n_experts: int, n_used: int, **attrs: Any) -> Op:
    views = {"ids": view("ids", n_used), "probs": view("probs", n_used), "logits": view("l", n_experts)}
    return make_op("router", views, {"gate": "softmax", **attrs})


def unary(act: str) -> Op:
    return make_op("unary", {"x": view("x", 8)}, {"act": act})


def with_bias(op: Op) -> Op:
    return replace(op, operands=(*op.operands, ("bias", blank("b", 8, 2))))


def with_sinks(op: Op) -> Op:
    return replace(op, operands=(*op.operands, ("sinks", blank("s", 2))))


def with_tail(op: Op) -> Op:
    return replace(op, operands=(*op.operands, ("tail", StateRef("kv_tail"))))


def norm(kind: str, gain: str = "f32") -> Op:
    operands = {"y": view("y", 8), "x": view("x", 8), "gain": blank("g", 8, type_=gain)}
    return make_op("norm", operands, {"eps": 1e-5, "kind": kind})


REFUSED: Mapping[str, tuple[Op, str]] = {
    "unknown operand": (with_bias(unary("tanh")), "operand bias"),
    "wide heads": (attention((2, 2048)), "2048 floats"),
    "heads of odd size": (attention((2, 30)), "30 floats"),
    "sinks and a bias": (with_bias(with_sinks(attention())), "both sinks and a bias"),
    "too many experts": (router(2048, 2), "2048 experts"),
    "too many used": (router(512, 65), "65 of 512"),
    "unknown gate": (router(8, 2, gate="sparsemax"), "sparsemax"),
    "unknown act": (unary("softplus"), "softplus"),
    "gate as act": (unary("swiglu_oai"), "swiglu_oai"),
    "unknown norm": (norm("group"), "group"),
    "gain of 16 bits": (norm("rms", "f16"), "g of type f16"),
    "rows of odd length": (matrix(view("x", 36), 8, 36), "rows of 36"),
    "x off its place": (matrix(view("x", 32, offset=2, width=40), 8, 32), "multiples of 4"),
    "two views of one buffer": (
        make_op("add", {"x": view("x", 4, of="b", width=8), "r": view("r", 4, 4, "b", 8)}, {}),
        "two views",
    ),
    "three views of one buffer": (
        make_op(
            "concat", {r: view(r, n, at, "b", 16) for r, n, at in (("y", 8, 8), ("a", 4, 0), ("b", 4, 4))}, {}
        ),
        "two views",
    ),
    "b in the buffer of y": (
        make_op(
            "concat",
            {"y": view("y", 8, of="s", width=16), "a": view("a", 4), "b": view("b", 4, 8, "s", 16)},
            {},
        ),
        "two views",
    ),
    "unknown codec": (matrix(view("x", 256), 8, 256, type_="q8_k"), "q8_k"),
    "rows of i8 within 16 bytes": (matrix(view("x", 24), 8, 24, type_="i8"), "a multiple of 16"),
    "channel": (
        make_op("embed_position", {"x": view("x", 8), "weight": blank("w", 4, 8)}, {"channel": 2}),
        "channel 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_arguments_of_a_kernel_are_named(name: str) -> None:
    op, reason = REFUSED[name]
    capabilities = WebGpuBackend(PaperHost()).capabilities()
    assert reason in reason_against(plan_of(op), capabilities)
    with pytest.raises(BackendError, match="webgpu"):
        check_plan(plan_of(op), capabilities)


def test_the_same_ops_with_supported_arguments_are_accepted() -> None:
    fine = (
        attention(),
        with_tail(with_sinks(attention())),
        router(8, 2),
        unary("tanh"),
        norm("l2"),
        matrix(view("x", 8), 8, 8),
    )
    assert [plan_refusal(plan_of(op)) for op in fine] == [""] * len(fine)


@pytest.mark.parametrize(
    ("tensors", "kv_type"),
    [((("scan", 64),), "f32"), (KV.tensors, "q6_k"), ((("k", 64), ("v", 30)), "f16")],
)
def test_state_of_another_form_is_refused(tensors: Any, kv_type: str) -> None:
    assert "state 'kv'" in plan_refusal(plan_of(attention(), replace(KV, tensors=tensors, kv_type=kv_type)))


SLOTS = StateSpec("kv", "recurrent", (0,), (("conv", 24), ("scan", 2 * 4 * 2048)), 1)


def scan(cols: int) -> Op:
    views = {"y": view("y", 8), "x": view("x", 8), "b": view("b", cols), "c": view("c", cols)}
    more = {"dt": view("dt", 2), "a": blank("a", 2), "state": StateRef("kv")}
    return make_op("scan_mamba2", views | more, {"n_groups": 1})


def test_wide_rows_and_slots_of_another_form_are_refused() -> None:
    assert plan_refusal(plan_of(scan(1024), SLOTS)) == ""
    assert "rows of 2048 floats; at most 1024" in plan_refusal(plan_of(scan(2048), SLOTS))
    for change in ({"kind": "static"}, {"kv_type": "f16"}, {"tensors": (("conv", 24),)}):
        assert "recurrent slots of type f32" in plan_refusal(plan_of(scan(64), replace(SLOTS, **change)))


@pytest.mark.parametrize(
    "change", [{"kv_type": "f32"}, {"tensors": (("k", 64), ("v", 32))}, {"unit_rows": 8}]
)
def test_a_tail_of_another_form_is_refused(change: dict[str, Any]) -> None:
    plan = plan_of(with_tail(attention()), tail=replace(TAIL, **change))
    assert "a tail 'kv_tail'" in plan_refusal(plan)


def test_unsupported_weights_are_refused_before_loading() -> None:
    op = matrix(view("x", 64), 8, 64, type_="q8_0")
    turned = op.weight("weight").then("permute_rows", 2, 4)
    op = replace(op, operands=(*op.operands[:2], ("weight", turned)))
    assert "permute_rows" in plan_refusal(plan_of(op))


def test_rows_scaled_twice_are_refused() -> None:
    op = matrix(view("x", 64), 8, 64)
    scaled = op.weight("weight").then("scale_rows", 8, 2.0).then("scale_rows", 8, 3.0)
    op = replace(op, operands=(*op.operands[:2], ("weight", scaled)))
    assert "'scale_rows' after 'scale_rows'" in plan_refusal(plan_of(op))


def test_state_of_another_kind_is_refused() -> None:
    backend = WebGpuBackend(PaperHost())
    with pytest.raises(BackendError, match="shared"):
        asyncio.run(backend.allocate([replace(KV, kind="shared")], {}))
    with pytest.raises(BackendError, match="q6_k"):
        asyncio.run(backend.allocate([replace(KV, kv_type="q6_k")], {}))


class LostHost(PaperHost):
    """A device that is lost after state was allocated."""

    async def read_state(self, buffer: str, offset: int, n_bytes: int) -> bytes:
        raise RuntimeError("the Device is lost")

    async def write_state(self, buffer: str, offset: int, data: bytes) -> None:
        raise RuntimeError("the Device is lost")


async def with_state(host: PaperHost) -> WebGpuBackend:
    backend = WebGpuBackend(host)
    await backend.allocate([replace(KV, kv_type="q8_0")], {KV.name: PoolSize(3, 1, 1)})
    return backend


@pytest.mark.parametrize("n_more", [-1, 1, -2 * 34])
def test_a_unit_of_another_size_is_refused(n_more: int) -> None:
    backend = asyncio.run(with_state(PaperHost()))
    data = asyncio.run(backend.read_state(KV.name, 1))
    asyncio.run(backend.write_state(KV.name, 1, data))
    with pytest.raises(BackendError, match=f"{len(data) + n_more:,} bytes, expected {len(data):,}"):
        asyncio.run(backend.write_state(KV.name, 1, (data + b"\0")[: len(data) + n_more]))


def test_a_device_lost_between_steps_is_named() -> None:
    backend = asyncio.run(with_state(LostHost()))
    with pytest.raises(DeviceLostError, match="load the model again"):
        asyncio.run(backend.read_state(KV.name, 1))
    with pytest.raises(DeviceLostError, match="load the model again"):
        asyncio.run(backend.write_state(KV.name, 1, bytes(replace(KV, kv_type="q8_0").unit_bytes)))


def test_a_refused_op_does_not_compile() -> None:
    """The backend itself refuses the op, also without an earlier query."""
    case = attention_case([3], 2, 1, 2048, 32, {}, {}, 0)
    with pytest.raises(BackendError, match="2048 floats"):
        run_on_paper(case)


def loading(weight: Quantized) -> OpCase:
    cols = weight.shape[-1]
    views = {"y": empty(1, weight.shape[0]), "x": array(1, 1, cols)}
    return OpCase(op="linear", views=views, weights={"weight": weight})


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (replace(weight("q8_0", 1, 8, 64), load_ops=(LoadOp("permute_rows", (2, 4)),)), "permute_rows"),
        (replace(weight("f16", 1, 8, 64), load_ops=(LoadOp("add", (1.0,)),)), "from f16 to f16"),
        (replace(weight("q8_0", 1, 8, 64), type="f32", load_ops=(LoadOp("cast", ("q8_0",)),)), "q8_0 to f32"),
        (replace(f32(array(1, 8, 64)), load_ops=(LoadOp("rows", (4, 8, 8)),)), "does not fit 512"),
        (replace(f32(array(1, 8, 64)), load_ops=(LoadOp("rows", (4, 2, 8)),)), "do not make"),
        (replace(f32(array(1, 8, 64)), load_ops=(LoadOp("reverse"),)), "reverse"),
        (replace(f32(array(1, 8, 64)), load_ops=(LoadOp("add", (1.0,)), LoadOp("neg_exp"))), "of one weight"),
        (
            replace(f32(array(1, 8, 64)), load_ops=(LoadOp("add", (1.0,)), LoadOp("scale_rows", (8, 2.0)))),
            "of one weight",
        ),
        (replace(f32(array(1, 8, 64)), load_ops=(LoadOp("scale_rows", (7, 2.0)),)), "7 rows, expected 8"),
        (
            replace(f32(array(1, 1024, 8)), load_ops=(LoadOp("scale_rows", (2, 2.0) * 512),)),
            "512 runs of rows",
        ),
        (
            replace(f32(array(1, 1024, 8)), load_ops=(LoadOp("pick", (1024, *range(1024))),)),
            "1024 picked rows",
        ),
        (replace(f32(array(1, 8, 64)), load_ops=(LoadOp("pick", (8, *range(1, 9))),)), "does not fit"),
        (replace(f32(array(1, 8, 64)), load_ops=(LoadOp("pick", (7, *range(7))),)), "does not fit"),
        (
            replace(f32(array(1, 8, 64)), load_ops=(LoadOp("pick", (8, *range(8))), LoadOp("pick", (8, 1)))),
            "'pick' after 'pick'",
        ),
        (
            replace(
                f32(array(1, 8, 64)),
                load_ops=(LoadOp("scale_rows", (8, 2.0)), LoadOp("transpose", (64, 8))),
            ),
            "'transpose' after",
        ),
    ],
)
def test_load_ops_without_a_kernel_are_named(made: Quantized, match: str) -> None:
    with pytest.raises(BackendError, match=match):
        run_on_paper(loading(made))


def test_a_bias_is_read_as_f32() -> None:
    case = OpCase(
        op="linear",
        views={"y": empty(1, 8), "x": array(1, 1, 8)},
        weights={"weight": weight("f32", 1, 8, 8), "bias": weight("f16", 1, 8)},
    )
    with pytest.raises(BackendError, match="bias of type f16"):
        run_on_paper(case)


class OnceHost(PaperHost):
    """A host that refuses a second read of a ticket, as real hosts may."""

    def __init__(self) -> None:
        super().__init__()
        self._read: set[int] = set()
        self._tickets = count()
        self._n_outputs = 0

    def run(self, program: int, step: bytes) -> int:
        self._n_outputs = unpack_from("<3I", step)[2]
        return next(self._tickets)

    async def read(self, ticket: int) -> bytes:
        assert ticket not in self._read, "a ticket was read twice"
        self._read.add(ticket)
        return bytes(16 * self._n_outputs)


def test_a_host_reads_a_ticket_once() -> None:
    """`run_case` reads the step of `run_buffers` again."""

    async def run() -> WebGpuBackend:
        backend = WebGpuBackend(OnceHost())
        await backend.open(OpenSpec())
        found = await run_case(backend, next(iter(sample_cases())))
        assert {row.token_id for row in found.rows} == {0}
        return backend

    counters = asyncio.run(run()).memory().counters
    assert (counters["in_flight"], counters["bytes_read_back"] % 16) == (0, 0)
    assert counters["dispatches"] >= counters["runs"] == 1
