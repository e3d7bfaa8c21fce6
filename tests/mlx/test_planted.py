"""Planted errors: a kernel with one wrong piece of text fails a parity case of its op."""

from __future__ import annotations

import asyncio
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from tests.support.parity.cases import OP_CASES
from tests.support.parity.compare import reference_result

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult, run_case
from camelid.backends.proof.cases import all_cases
from camelid.backends.proof.compare import allowed, worst
from camelid_native.mlx.backend import MlxBackend, open_backend

pytestmark = [pytest.mark.parity, pytest.mark.slow]


class Planted(NamedTuple):
    """The op that fails, the module with its text, a piece of the text, and what stands there instead."""

    op: str
    module: str
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.op}: {self.text}"


PLANTED = [
    Planted("embed", "ops_basic", "== FROM_RING", "!= FROM_RING"),
    Planted("copy", "ops_basic", "rows < n_copied", "rows <= n_copied"),
    Planted("kv_write", "ops_basic", "+ index + 1, 0", "+ index, 0"),
    Planted("norm", "ops_basic", 'op.integer("size") or op', "op"),
    Planted("norm", "ops_basic", "(x * x).sum(axis=-1", "(x * x).mean(axis=-1"),
    Planted("rope", "ops_basic", "pairs * cos + swapped", "pairs * cos - swapped"),
    Planted("rope", "ops_basic", "positions // n)", "positions % n)"),
    Planted("rope", "ops_basic", "heads[..., start:end]", "heads[..., :dim]"),
    Planted("mul", "ops_basic", "x.reshape(*r.shape, -1)", "x.reshape(len(r), r.shape[1], -1)[::-1]"),
    Planted("glu", "ops_basic", "(up + 1.0)", "up"),
    Planted("glu", "ops_basic", "0.044715", "0.0457"),
    Planted("gather_rows", "ops_basic", 'OUTPUT.index("row")', 'OUTPUT.index("sequence")'),
    Planted("add_norm", "ops_basic", "x\")), gain, op", 'r")), gain, op'),
    Planted("linear_glu", "ops_matrix", "gate, up = mx.split", "up, gate = mx.split"),
    Planted("linear", "ops_matrix", 'weight("bias")) if', 'weight("bias")) * 0.0 if'),
    Planted("linear_heads", "ops_matrix", "whole.swapaxes(0, 1)", "whole"),
    Planted("router", "ops_experts", "ranks = biased if", "ranks = probs if"),
    Planted("router", "ops_experts", "[..., -2:]", "[..., -1:]"),
    Planted("linear_experts", "ops_experts", 'weight("bias"))[ids]', 'weight("bias"))[0]'),
    Planted("combine", "ops_experts", "probs[:, None]", "probs[:, None, ::-1]"),
    Planted("low_rank", "ops_adapters", '"O" else f.of_rows', '"O" else f.sequences[:1]'),
    Planted("low_rank", "ops_adapters", "is_used[:, None, :, None], part", "True, part"),
    Planted("low_rank", "ops_adapters", "a_at + n_experts * most * n_in", "a_at + n_experts * most"),
    Planted("low_rank", "ops_adapters", "keepdims=True) / n + eps", "keepdims=True) + eps"),
    Planted("low_rank_experts", "ops_adapters", "at + ids * most * n", "at + ids * most"),
    Planted("mix", "ops_streams", "coefs @ x", "coefs[:, ::-1] @ x"),
    Planted("cutoff", "ops_streams", "(centred * centred).mean", "(x * x).mean"),
    Planted("length", "ops_streams", "(groups * groups).sum", "(groups * groups).mean"),
    Planted("attention", "ops_state", "keys <= row", "keys < row"),
    Planted("attention", "ops_state", '"window") > row', '"window") >= row'),
    Planted("attention", "ops_state", "_is_stored(op, f) | (keys >= first)", "(keys >= 0)"),
    Planted("attention", "ops_state", "border // BATCH * BATCH", "border"),
    Planted("attention", "ops_state", "mx.concatenate([scores, sinks]", "mx.concatenate([scores, -sinks]"),
    Planted("attention", "ops_state", "len(table) - 1)", "len(table) - 2)"),
    Planted("attention", "ops_state", "is_seen[:, None, :, None], v, 0.0", "True, v, 0.0"),
    Planted("kv_write", "kv_rows", "2.0 * (size - whole)", "1.9 * (size - whole)"),
    Planted("kv_write", "kv_rows", "+ 8.5", "+ 8.4"),
    Planted("attention", "kv_rows", "- 8.0) * scale", "- 7.0) * scale"),
    Planted("conv1d", "ops_recurrent", "place < n_before", "place <= n_before"),
    Planted("conv1d", "ops_recurrent", "held > 0", "held >= 0"),
    Planted("scan_mamba2", "ops_recurrent", "mx.where(is_first[t], before, state)", "state"),
    Planted("scan_mamba2", "ops_recurrent", "place == n_own - 1", "place == 0"),
    Planted("scan_delta", "ops_recurrent", "state = decay[t] * state", "state = state"),
    Planted("token_shift", "ops_recurrent", "first + n_own - 1", "first + n_own - 2"),
    Planted("token_shift", "ops_recurrent", "[held[:, :start], value", "[value, held[:, :start]"),
    Planted("scan_rwkv6", "ops_recurrent", "(state if has_u else after)", "after"),
    Planted("scan_rwkv6", "ops_recurrent", "-mx.expm1(-rate) * k", "k"),
    Planted("scan_rwkv6", "ops_recurrent", "v[t] * bonus[t]", "bonus[t]"),
    Planted("scan_rwkv7", "ops_recurrent", "correction = a * u", "correction = u"),
    Planted("scan_rwkv7", "ops_recurrent", "decay[t][:, None] - removed", "decay[t][:, None]"),
    Planted("bonus_rwkv7", "ops_recurrent", "x + bonus.reshape", "bonus.reshape"),
    Planted("attend_rows", "ops_encoder", '<= op.integer("window") // 2', '< op.integer("window") // 2'),
    Planted("attend_rows", "ops_encoder", "+ reach].transpose", "].transpose"),
    Planted("pool", "ops_encoder", "x.sum(axis=1) / n_rows", "x.mean(axis=1)"),
    Planted("emit", "ops_encoder", "mx.isnan(x)", "mx.isinf(x)"),
    Planted("sample", "ops_sampling", "scores > 0.0, scores / repeat", "scores > 0.0, scores * repeat"),
    Planted("sample", "ops_sampling", "number < first + ", "number <= first + "),
    Planted("sample", "ops_sampling", "_last_position(f) + 1 - n)", "_last_position(f) + 2 - n)"),
    Planted("sample", "ops_sampling", "n_kept.astype(I32) - 1", "n_kept.astype(I32)"),
    Planted("sample", "ops_sampling", ".sum(axis=1, keepdims=True) + 1", ".sum(axis=1, keepdims=True)"),
    Planted("sample", "ops_sampling", "~(scores < limit)", "~(scores <= limit + 0.5)"),
    Planted("sample", "ops_sampling", "number[None] > number[:, None]", "number[None] >= number[:, None]"),
    Planted("sample", "philox", "ROUNDS = 10", "ROUNDS = 9"),
    Planted("sample", "philox", "d < 0.01", "d < 0.0"),
    Planted("sample", "order", "x + 0.0)", "-x)"),
    Planted("sample", "ops_sampling", "centred * centred) / n", "centred * centred) / (n - 1)"),
]  # fmt: skip
USERS = {"kv_rows": "ops_state", "philox": "ops_sampling", "order": "ops_sampling"}  # module -> its kernels'


@cache
def cases() -> list[OpCase]:
    """The parity cases, and those of the gate."""
    return [*OP_CASES, *(planned.made().case for planned in all_cases(("f32", "q8_0")))]


@cache
def wanted(i: int) -> OpResult:
    return reference_result(cases()[i])


def altered(module: str, text: str, instead: str, folder: Path) -> ModuleType:
    """The module with another text."""
    name = f"camelid_native.mlx.{module}"
    whole = Path(str(import_module(name).__file__)).read_text()
    assert text in whole, f"{module} has no {text!r}"
    file = folder / f"{module}.py"
    file.write_text(whole.replace(text, instead))
    spec = spec_from_file_location(name, file)
    assert spec and spec.loader
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_a_planted_error_is_found(planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from camelid_native.mlx.kernels import KERNELS

    made = altered(planted.module, planted.text, planted.instead, tmp_path)
    user = import_module(f"camelid_native.mlx.{USERS.get(planted.module, planted.module)}")
    for name, value in vars(made).items():
        if name.startswith("op_") and value.__module__ == made.__name__:
            monkeypatch.setitem(KERNELS, name.removeprefix("op_"), value)
        elif planted.module in USERS and name in vars(user) and not name.startswith("__"):
            monkeypatch.setattr(user, name, value)
    assert asyncio.run(excess(open_backend(), planted.op)) > 1.0


async def excess(backend: MlxBackend, op: str) -> float:
    """The largest error among the cases of an op over what is allowed, up to the first that fails."""
    await backend.open(OpenSpec())
    found, can = 0.0, backend.capabilities()
    for i, case in enumerate(cases()):
        if case.op == op and set(case.dtypes.values()) <= can.dtypes and found <= 1.0:
            result = await run_case(backend, case)
            found = max(found, worst(result, await asyncio.to_thread(wanted, i)) / allowed(case, can))
    await backend.close()
    return found
