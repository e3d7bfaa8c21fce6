"""The gate: complete, strict enough, fair to int8 kernels; its verdict is stored and obeyed."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.gate_device import Device, plan_of_nothing

from camelid.backends.proof import verdicts
from camelid.backends.proof.availability import availability
from camelid.backends.proof.cases import SHORT, PlannedCase, all_cases, all_rows, short_cases
from camelid.backends.proof.compare import allowed, as_stored, settled
from camelid.backends.proof.gate import FAILED, PASSED, REFUSED, Outcome, judge
from camelid.backends.proof.gate import inputs_of as gate_inputs
from camelid.backends.proof.inputs import FIELDS, GateCase
from camelid.backends.proof.rows_matrix import OPS as TYPED_OPS
from camelid.backends.proof.verdicts import verdict
from camelid.errors import BackendError, DeviceLostError
from camelid.formats.quants import QUANTS
from camelid.plan.dtypes import DTYPES
from camelid.plan.op_rows_fused import QKV
from camelid.plan.ops import OPS
from camelid.plan.plan import Plan

MOST = 2  # cases of each op that run here


def cases_of(op: str, weight_types: tuple[str, ...] = ("q4_0",)) -> list[GateCase]:
    return [planned.made() for planned in itertools.islice(all_cases(weight_types, op), MOST)]


def outcome(case: GateCase, **how: Any) -> Outcome:
    return asyncio.run(judge(Device(**how), case))


def test_every_op_has_cases() -> None:
    assert {row.op for row, _ in all_rows(["f32"])} == {*OPS}


def test_every_fact_of_a_row_is_used() -> None:
    for row, _ in all_rows(["q8_0"]):
        op = OPS[row.of or row.op]
        assert row.facts.keys() <= {*op.roles, *op.attr_names, *FIELDS}, row


def test_every_op_with_a_matrix_has_every_type() -> None:
    types = tuple(sorted({*QUANTS} - {"q8_1", "q8_k"}))
    found = {(row.op, weight_type) for row, weight_type in all_rows(types) if weight_type}
    assert found == set(itertools.product(TYPED_OPS, types))


@pytest.mark.parametrize("op", OPS)
def test_one_percent_of_error_fails_every_op(op: str) -> None:
    for case in cases_of(op):
        assert outcome(case).status == PASSED, case
        wrong = outcome(case, off=lambda numbers: np.float32(1.01) * numbers)
        assert wrong.status == FAILED and 1e-5 < wrong.nmse < 1e-3, wrong


def dtype_cases(op: str, weight_types: tuple[str, ...] = ("q4_0",)) -> list[PlannedCase]:
    """The cases of an op in the rounding dtypes."""
    return [planned for planned in all_cases(weight_types, op, DTYPES) if planned.dtype != "f32"]


@pytest.mark.parametrize("op", OPS)
def test_one_percent_of_error_fails_every_op_in_every_dtype(op: str) -> None:
    """A result that is no activation, such as state, has its own bound."""
    for planned in dtype_cases(op):
        case = planned.made()
        can: dict[str, Any] = {"dtypes": frozenset(DTYPES)}
        fine = outcome(case, **can)
        assert fine.status == PASSED and f" {planned.dtype} " in str(case), fine
        written = {*OPS[case.case.op].writes, *OPS[case.case.op].updates} - {*OPS[case.case.op].exact}
        bound = {"f16": 1e-6, "bf16": 8e-6}[planned.dtype] if written else 1e-10
        assert fine.allowed == max(bound, allowed(replace(case.case, dtypes={}), Device().capabilities()))
        wrong = outcome(case, off=lambda numbers: np.float32(1.01) * numbers, **can)
        assert wrong.status == FAILED and 1e-5 < wrong.nmse < 1e-3, wrong


def test_every_rounding_op_has_cases_in_every_dtype() -> None:
    found = {(p.row.op, p.dtype) for p in all_cases(["q4_0"], "", DTYPES)}
    rounded = {op for op, dtype in found if dtype == "f16"}
    assert rounded == {op for op, dtype in found if dtype == "bf16"}
    assert {*OPS} - rounded == {
        "copy",
        "sample",
        "candidates",
        "norm_rope",
        "norm_rope_write",
        "defer_norm",
        *QKV,
    }, "ops without such a view"


def test_a_backend_is_tested_in_its_own_dtypes() -> None:
    case = next(iter(dtype_cases("norm"))).made()
    device = Device()
    assert asyncio.run(judge(device, case)).status == REFUSED and not device.n_runs
    assert all(planned.dtype == "f32" for planned in all_cases(["q4_0"], "", Device().capabilities().dtypes))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_kernels_that_round_twice_must_match_both_roundings(dtype: str) -> None:
    """Activations of a dtype, quantized again beside a quantized matrix."""
    case = next(p for p in dtype_cases("linear") if (p.dtype, p.weight_type) == (dtype, "q4_0")).made()
    can: dict[str, Any] = {"dtypes": frozenset(DTYPES), "activations": "q8"}
    assert outcome(case, given=quantized, **can).status == PASSED
    assert outcome(case, **can).status == FAILED, "activations were not quantized"
    (given, meant), given_again = gate_inputs(case.case, Device(**can).capabilities()), as_stored(case.case)
    assert meant.dtypes["x"] == "f32" and meant.dtypes["y"] == given.dtypes["x"] == dtype
    assert np.array_equal(given.views["x"], as_stored(given).views["x"]), "values outside the dtype"
    assert np.mean(given.views["x"] == given_again.views["x"]) > 0.98, "the roundings agree except for ties"
    assert np.array_equal(quantized(given.views["x"]), meant.views["x"])


@pytest.mark.parametrize("op", ["norm", "linear", "attention", "emit", "kv_write"])
def test_nan_noise_and_errors_fail_the_gate(op: str) -> None:
    case = cases_of(op)[0]
    if op != "kv_write":  # no state type can be turned into NaN here
        assert outcome(case, off=lambda numbers: numbers * np.float32(np.nan)).status == FAILED
    assert outcome(case, off=lambda numbers: numbers + np.float32(0.01)).status == FAILED
    raised = outcome(case, error=RuntimeError("a kernel\n broke"))
    assert (raised.status, raised.reason) == (FAILED, "RuntimeError: a kernel broke")
    assert "a kernel broke" in str(raised)


def test_state_and_ids_are_compared() -> None:
    """Correct views alone do not pass."""

    class Forgets(Device):
        async def write_state(self, group: str, unit: int, data: bytes) -> None:
            await super().write_state(group, unit, bytes(len(data)) if group == "tokens" else data)

    class Keeps(Device):
        async def read_state(self, group: str, unit: int) -> bytes:
            return bytes(len(await super().read_state(group, unit)))

    case = next(p.made() for p in all_cases([], "sample") if p.row.facts.get("history"))
    assert outcome(case).status == PASSED
    assert asyncio.run(judge(Forgets(), case)).status == FAILED
    assert asyncio.run(judge(Keeps(), case)).status == FAILED


def quantized(x: Any) -> Any:
    """As kernels do: times 127 / largest, to nearest, ties to even."""
    made = x.reshape(-1, 32).copy()
    for block in made:
        top = np.abs(block).max()
        codes = np.rint(block * (np.float32(127.0) / top)) if top else 0.0 * block
        block[:] = codes * (top / np.float32(127.0))
    return made.reshape(x.shape)


def as_bf16(x: Any) -> Any:
    """To nearest, ties to even: adding and subtracting 2**16 times the number leaves 8 bits of it."""
    far = x.astype(np.float32) * np.float32(2**16)
    return ((x + far) - far).astype(np.float32)


@pytest.mark.parametrize(("type_name", "rounded"), [("q4_0", quantized), ("bf16", as_bf16)])
@pytest.mark.parametrize("op", ["linear", "linear_glu", "linear_experts", "linear_heads"])
def test_kernels_that_round_must_announce_it(op: str, type_name: str, rounded: Any) -> None:
    """Rounding passes where it is announced, and only there; without rounding the case then fails."""
    planned = (p for p in all_cases([type_name], op) if p.weight_type == type_name and not p.is_amid)
    case = next(planned).made()
    ids = case.case.views.get("ids")

    def given(x: Any) -> Any:
        return x if ids is not None and x.size == ids.size else rounded(x)

    rounds = {"activations": "q8"}
    fair = outcome(case, given=given, **rounds)
    assert fair.status == PASSED and fair.allowed == 1e-6, fair
    assert outcome(case, given=given).status == FAILED
    assert outcome(case, **rounds).status == FAILED
    assert outcome(case, given=given, off=lambda y: np.float32(1.002) * y, **rounds).status == FAILED


def test_no_activation_is_a_tie() -> None:
    """Kernels may round ties differently: 127 / largest and its inverse can differ in the last bit."""
    case = next(p.made() for p in all_cases(["q4_0"], "linear") if p.weight_type == "q4_0").case
    x = np.arange(-128, 128, dtype=np.float32)[None] / np.float32(2.0)  # halves of each code
    x[:, ::32] = 127.0
    halves = replace(case, views={**case.views, "x": x})
    codes = settled(halves).views["x"].astype(np.float64)
    assert np.abs(codes - np.floor(codes) - 0.5).min() > 0.4
    assert np.abs(codes - x).max() == 0.5 and np.abs(codes - x).min() == 0.0
    plain = settled(case).views["x"]
    assert np.mean(plain == case.views["x"]) > 0.99, "unambiguous values changed"


def test_float_matrices_are_never_rounded() -> None:
    case = next(p.made() for p in all_cases(["f16"], "linear") if p.weight_type == "f16")
    assert outcome(case, activations="q8").allowed == 1e-10
    assert outcome(case, activations="q8").status == PASSED
    assert outcome(case, activations="q8", given=quantized).status == FAILED


def test_refused_ops_do_not_run() -> None:
    case = next(p.made() for p in all_cases(["q6_k"], "linear") if p.weight_type)
    ways: tuple[tuple[dict[str, Any], str], ...] = (
        ({"weight_types": frozenset({"f32"})}, "no kernel for q6_k"),
        ({"ops": frozenset({"norm"})}, "no kernel for the op linear"),
        ({"refuses": plan_of_nothing}, "does not like op-linear"),
    )
    for says, words in ways:
        device = Device(**says)
        found = asyncio.run(judge(device, case))
        assert found.status == REFUSED and words in found.reason and not device.n_runs


def test_availability_lists_supported_ops() -> None:
    can = Device(
        weight_types=frozenset({"f32", "q4_0"}), ops=frozenset(OPS) - {"scan_delta", "embed"}
    ).capabilities()
    found = availability(can)
    assert {*found} == {*OPS} and all(found.values())
    assert [name for name, reason in found["linear"].items() if not reason] == ["f32", "q4_0"]
    assert "q6_k" in found["linear"]["q6_k"]
    assert all(found["embed"].values()) and found["scan_delta"][""] and not found["norm"][""]
    assert {"f32", "f16", "q8_0", "q4_0", "q4_0+tail"} <= found["attention"].keys()


def test_an_op_is_available_if_any_variant_is() -> None:
    def refuses(plan: Plan) -> str:
        return next((f"not {op.word('kind')}" for op in plan.ops if op.name == "norm"), "no")

    def but_rms(plan: Plan) -> str:
        return refuses(plan).removeprefix("not rms")

    assert availability(Device(refuses=refuses).capabilities())["norm"][""].startswith("not")
    assert availability(Device(refuses=but_rms).capabilities())["norm"][""] == ""


def test_the_short_gate_is_short() -> None:
    cases = [planned.made() for planned in short_cases(QUANTS)]
    assert {case.op for case in cases} == {*SHORT} and len(cases) <= 16
    assert {case.weight_type for case in cases if case.op == "linear"} > {"q4_0", "q4_k", "q6_k"}


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Device]]:
    """The devices on which a gate ran, with a cache of this test's."""
    monkeypatch.setenv("CAMELID_CACHE", str(tmp_path / "cache"))
    yield []


def ask(opened: list[Device], **how: Any) -> str:
    """The verdict for such a device."""

    async def another() -> Device:
        opened.append(Device(**how))
        return opened[-1]

    return asyncio.run(verdict(Device(**how), another))


def cache_files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_verdict_is_stored_and_obeyed(opened: list[Device], tmp_path: Path) -> None:
    assert ask(opened) == "" == ask(opened)
    assert len(opened) == 1 and opened[0].n_closed == 1 and opened[0].n_runs > 8
    assert len(cache_files(tmp_path)) == 1, "one file, and no temporary file"
    bad: dict[str, Any] = {"off": lambda numbers: -numbers, "device": "Bad 1.0"}
    first = ask(opened, **bad)
    assert "fails its gate" in first and "NMSE" in first and "camelid doctor" in first
    assert ask(opened, device="Bad 1.0") == first, "the stored verdict was not used"
    assert len(opened) == 2 and opened[1].n_closed == 1


@pytest.mark.parametrize("change", [{"device": "Test 1.1"}, {"build": "abc"}, {"name": "other"}])
def test_another_driver_or_build_runs_the_gate_again(opened: list[Device], change: dict[str, str]) -> None:
    ask(opened)
    ask(opened, **change)
    ask(opened, **change)
    assert len(opened) == 2


def test_another_version_runs_the_gate_again(opened: list[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    ask(opened)
    monkeypatch.setattr(verdicts, "__version__", "99.0")
    ask(opened)
    assert len(opened) == 2


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-9],
    "deep": lambda data: b"[" * 100_000,
    "key of another": lambda data: data.replace(b"Test 1.0", b"Test 9.9"),
    "empty": lambda data: b"",
    "no JSON": lambda data: b"\xff\x00" * 40,
    "a list": lambda data: b"[]",
    "no reason": lambda data: json.dumps({"key": json.loads(data)["key"]}).encode(),
    "reason of another kind": lambda data: json.dumps({**json.loads(data), "reason": 3}).encode(),
}


@pytest.mark.parametrize("damage", share_of(DAMAGES, 3))
def test_a_damaged_verdict_is_replaced(opened: list[Device], tmp_path: Path, damage: str) -> None:
    ask(opened)
    (path,) = cache_files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    assert ask(opened) == ""
    assert len(opened) == 2 and path.read_bytes() == whole


def test_a_read_only_cache_costs_only_time(opened: list[Device], tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"a file where a folder should be")
    assert ask(opened) == "" == ask(opened)
    assert len(opened) == 2


@pytest.mark.parametrize(
    ("error", "n_asked"), [(DeviceLostError("gone", backend="x"), 2), (ValueError("shape"), 1)]
)
def test_transient_failures_are_not_stored(opened: list[Device], error: Exception, n_asked: int) -> None:
    assert str(error) in ask(opened, error=error)
    assert str(error) in ask(opened, error=error)
    assert len(opened) == n_asked


def test_a_device_that_opens_only_once_is_rejected(opened: list[Device]) -> None:
    async def another() -> Device:
        raise BackendError("the device is busy", backend="x")

    assert asyncio.run(verdict(Device(), another)) == "its gate cannot run: the device is busy"


def test_no_gate_runs_in_a_browser(opened: list[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "emscripten")
    assert ask(opened, off=lambda numbers: -numbers) == "" and not opened
