"""The WASM modules: their imports and exports, their thread pool, and the limits of their arithmetic."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.quant_oracle import oracle_decode
from tests.perf.shapes import HALVES
from tests.support.exhaustive import share_of
from tests.support.node_host import WASM_TARGETS, need_modules, need_node, wasm_backend

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, Quantized, run_case
from camelid.formats.quants import QUANTS
from camelid.plan.ops import TRAINING_OPS
from camelid_native.cpu.api import FUNCTIONS, Library
from camelid_native.cpu.records import RECORDS
from camelid_native.wasm.backend import WasmBackend

pytestmark = pytest.mark.parity

HERE = Path(__file__).parent
NATIVE = {"cam_quantize"}  # pages do not quantize
OWN = {"cam_abi", "cam_decode", "cam_encode", "cam_unpack_row", "cam_work", "cam_done_at"}
RUNS = 12  # of wasm_pool.mjs
SHARED = "env.memory memory"  # the only import of a module for threads; other modules have none
VARIANTS = {"wasm-simd": "wasm", "wasm-relaxed": "wasm_relaxed"}


@cache
def said_by(script: str, *arguments: str) -> dict[str, Any]:
    """Output of a script in this folder."""
    need_modules()
    command = (need_node(), "--no-warnings", str(HERE / script), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=WASM_TARGETS)
def folder(request: Any) -> str:
    return request.param


@pytest.mark.parametrize(
    ("file", "imports", "exports"),
    [
        ("camelid_cpu.wasm", [], {"memory", "__stack_pointer", "__heap_base"}),
        ("camelid_cpu_threads.wasm", [SHARED], {"__stack_pointer", "__heap_base"}),
    ],
)
def test_module_imports_memory_alone(folder: str, file: str, imports: list[str], exports: set[str]) -> None:
    said = said_by("wasm_describe.mjs", f"{folder}/{file}")
    assert said["imports"] == imports
    assert {*said["exports"]} == {*FUNCTIONS} - NATIVE | OWN | exports
    assert (said["variants"], said["runs"]) == ([VARIANTS[folder]], 1)


def test_names_and_records_equal_the_native_ones(folder: str) -> None:
    """All but the ops of training: pages do not train."""
    said, native = said_by("wasm_describe.mjs", f"{folder}/camelid_cpu.wasm"), Library()
    assert said["records"] == [ctypes.sizeof(record) for record in RECORDS]
    ops = [name for name in native.kinds if name not in TRAINING_OPS]
    assert (said["ops"], said["words"]) == (ops, [*native.words])


def test_every_float16(folder: str) -> None:
    """All bits of all values; for NaN, only that it is NaN."""
    said = said_by("wasm_describe.mjs", f"{folder}/camelid_cpu.wasm")["halves"]
    ours = np.frombuffer(base64.b64decode(said), "<f4")
    wanted = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(ours[numbers].view(np.uint32), wanted[numbers].view(np.uint32))
    assert np.isnan(ours[~numbers]).all()


@pytest.mark.parametrize("threads", share_of([2, 4, 1, 3], 2))
def test_pool(folder: str, threads: int) -> None:
    """Threads see each other's writes, wake from sleep, report every end to the host, and stop on request."""
    said = said_by("wasm_pool.mjs", folder, str(threads))
    assert (said["told"], said["ended"], said["done"]) == (True, True, RUNS)
    assert len({*said["hashes"]}) == RUNS and "not finite" not in said["hashes"]
    assert said["hashes"] == said_by("wasm_pool.mjs", "wasm-simd", "1")["hashes"]


@pytest.mark.parametrize(
    ("how", "begun", "reason"),
    [
        ("refused", 0, "forbidden by the page's policy"),
        ("faulty", 2, "LinkError: no memory"),
        ("broken", 2, "SyntaxError: no modules"),
        ("missing", 2, "the browser gave no reason"),
        ("silent", 2, "no reply for 10 s"),
        ("half", 2, "no reply for 10 s"),
    ],
)
def test_without_workers_one_thread_computes(how: str, begun: int, reason: str) -> None:
    """The reason is reported, no error reaches the page, no worker stays running, and a hanging worker is not
    awaited further.
    """
    said = said_by("wasm_start.mjs", how)
    why = f"compute workers do not start: {reason}, so one thread"
    assert said["several"] == said["one"] | {"why": why}
    assert (said["one"]["threads"], said["one"]["shared"], said["one"]["why"]) == (1, False, "")
    assert (said["begun"], said["ended"], said["timers"], said["errors"]) == (begun, begun, 0, 0)
    assert said["waitedMs"] == (10_000 if begun else 0)


TYPES = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"),
    *("iq4_nl", "iq4_xs", "iq2_xs", "iq3_xxs", "tq2_0"),
)
COLS = 256
ONE = b"\x00\x3c"  # as float16
FILLS = (0x00, 0x7F, 0x80, 0xFF, 0x0F, 0xF0)  # bytes of a row


def extreme_weight(type_name: str) -> Quantized:
    """Rows of the smallest and the largest codes, and of random ones; scales of 1."""
    row, rng = QUANTS[type_name], np.random.default_rng(5)
    n_blocks = COLS // row.block
    drawn = rng.integers(0, 256, (10, n_blocks, row.block_bytes), np.uint8)
    filled = np.broadcast_to(np.array(FILLS, np.uint8)[:, None, None], (len(FILLS), *drawn.shape[1:]))
    blocks = np.concatenate([filled, drawn])
    for at in HALVES[type_name]:
        blocks[..., at : at + 2] = np.frombuffer(ONE, np.uint8)
    return Quantized(type_name, (len(blocks), COLS), blocks.tobytes())


def opened(variant: str) -> Iterator[WasmBackend]:
    backend = wasm_backend()
    asyncio.run(backend.open(OpenSpec(adapter=variant, threads=1)))
    yield backend
    asyncio.run(backend.close())


@pytest.fixture(scope="module")
def plain() -> Iterator[WasmBackend]:
    yield from opened("wasm")


@pytest.fixture(scope="module")
def relaxed() -> Iterator[WasmBackend]:
    yield from opened("wasm_relaxed")


@pytest.mark.parametrize("type_name", TYPES)
def test_no_product_overflows(type_name: str, plain: WasmBackend, relaxed: WasmBackend) -> None:
    """Activations of 127 and -127, with a value of 1 up to rounding, meet the largest codes."""
    weight = extreme_weight(type_name)
    blocks = np.frombuffer(weight.raw, np.uint8).reshape(-1, QUANTS[type_name].block_bytes)
    values = oracle_decode(type_name, blocks).reshape(weight.shape).astype(np.float64)
    x = np.ones((3, COLS), np.float32)
    x[1] = -1
    x[2] = np.random.default_rng(6).choice([-1.0, 1.0], COLS)
    case = OpCase(
        op="linear",
        views={"y": np.zeros((3, weight.shape[0]), np.float32), "x": x},
        weights={"weight": weight},
    )
    found, other = (asyncio.run(run_case(backend, case)).views["y"] for backend in (plain, relaxed))
    np.testing.assert_array_equal(found, other)
    wanted = x.astype(np.float64) @ values.T
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-5 * np.abs(values).sum(axis=1).max())
