"""The records of cpu/abi.h, and plans that they cannot represent."""

from __future__ import annotations

import asyncio
import ctypes
import platform
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from camelid.backends.base import OpenSpec, reason_against
from camelid.backends.common.op_runner import OpCase, case_plan
from camelid.backends.proof.cases import all_rows
from camelid.errors import BackendError
from camelid.plan.op_rows_fused import FUSED
from camelid.plan.ops import OPS
from camelid.plan.plan import Plan
from camelid_native.build.targets import SOURCES
from camelid_native.cpu.api import Library
from camelid_native.cpu.backend import open_backend
from camelid_native.cpu.records import (
    KERNEL_WORDS,
    MOST_RUNS,
    RECORDS,
    OpRecord,
    ProgramRecord,
    StateRecord,
    ViewRecord,
    WeightRecord,
    refusal,
)

X = np.ones((2, 32), np.float32)
K = np.ones((2, 256), np.float32)
WORDS = Library().words
C_NAMES = {
    ViewRecord: "cam_view",
    WeightRecord: "cam_weight",
    StateRecord: "cam_state",
    OpRecord: "cam_op",
    ProgramRecord: "cam_program",
}


def unary(act: str) -> Plan:
    return case_plan(OpCase(op="unary", views={"x": X}, attrs={"act": act}))[0]


def norm(kind: str) -> Plan:
    return case_plan(OpCase(op="norm", views={"x": X, "y": X}, attrs={"eps": 1e-5, "kind": kind}))[0]


def kv_write(kv_type: str) -> Plan:
    return case_plan(OpCase(op="kv_write", views={"k": K, "v": K}, kv_type=kv_type))[0]


REFUSED = {
    "the op unary with act = 'mish'": unary("mish"),
    "the op unary with act = 'rms'": unary("rms"),  # a word of another op
    "the op norm with kind = 'neox'": norm("neox"),
    "the op norm with kind = 'mean'": norm("mean"),
    "state 'other' of type q6_k; supported: f32, f16, q8_0, q4_0": kv_write("q6_k"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_ops_without_a_kernel_are_not_compiled(reason: str) -> None:
    """It must not be skipped as a no-op."""
    with pytest.raises(BackendError, match=re.escape(reason)) as caught:
        asyncio.run(compiled(REFUSED[reason]))
    assert caught.value.backend == "cpu"


@pytest.mark.parametrize("reason", REFUSED)
def test_ops_without_a_kernel_are_known_before_compilation(reason: str) -> None:
    """`auto` then selects another backend."""
    assert reason in reason_against(REFUSED[reason], open_backend().capabilities())


async def compiled(plan: Plan) -> None:
    backend = open_backend()
    await backend.open(OpenSpec(threads=1))
    try:
        await backend.compile(plan)
    finally:
        await backend.close()


@pytest.mark.parametrize("act", ["silu", "gelu", "relu2", "tanh"])
def test_known_words_are_accepted(act: str) -> None:
    assert refusal(unary(act), WORDS) == ""


def test_every_word_of_an_op_is_listed() -> None:
    """And no word without a code in the library."""
    facts = [(row.op, *fact) for row, _ in all_rows(["q4_0"]) for fact in row.facts.items()]
    words = [(op, name) for op, name, value in facts if isinstance(value, str) and name in OPS[op].attr_names]
    asked = {(op, name) for op, name in words if op not in FUSED}
    assert asked and asked <= KERNEL_WORDS.keys()
    assert {word for words in KERNEL_WORDS.values() for word in words} == {*WORDS}


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
def test_known_kv_types_are_accepted(kv_type: str) -> None:
    assert refusal(kv_write(kv_type), WORDS) == ""


def fields(record: type[ctypes.Structure]) -> list[str]:
    return [str(field[0]) for field in record._fields_]


@pytest.mark.skipif(platform.system() == "Windows", reason="not on this platform: gcc reads the header")
def test_each_field_has_the_headers_offset(tmp_path: Path) -> None:
    """Sizes alone do not show two swapped fields."""
    lines = [
        f'printf("%zu %zu\\n", offsetof({name}, {field}), sizeof(({name} *)0)->{field});'
        for name, field in ((C_NAMES[record], field) for record in RECORDS for field in fields(record))
    ]
    source = tmp_path / "fields.c"
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "abi.h"\nint main(void) {{ {" ".join(lines)} }}\n'
    )
    subprocess.run(["gcc", "-I", str(SOURCES), str(source), "-o", str(tmp_path / "fields")], check=True)
    told = subprocess.run([str(tmp_path / "fields")], check=True, capture_output=True, text=True).stdout
    own = [getattr(record, field) for record in RECORDS for field in fields(record)]
    assert told.splitlines() == [f"{field.offset} {field.size}" for field in own]


def test_the_pool_has_the_hosts_number_of_slots() -> None:
    header = (SOURCES / "abi.h").read_text()
    assert f"#define CAM_MOST_RUNS {MOST_RUNS} " in header
