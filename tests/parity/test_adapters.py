"""Whole models with adapters: rows without an adapter keep the bits of the program without adapters, also in
the company of rows with one, and rows with an adapter have the reference's logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.exhaustive import exhaustive, share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, nmse, write_hf
from tests.support.model.file_runs import Loaded, load_gguf, load_hf
from tests.support.model.parallel_runs import parallel
from tests.support.node_host import wasm_backend
from tests.support.parity.adapter_runs import Runs, bits, run
from tests.support.parity.adapters import need_driver

from camelid.backends.base import Backend
from camelid.backends.reference.backend import ReferenceBackend, open_parallel
from camelid.backends.webgpu import shaders
from camelid.backends.webgpu.backend import open_backend as open_webgpu
from camelid.backends.webgpu.kernel import GPU_LANES
from camelid.cli.main import main
from camelid_native.cpu.backend import open_backend as open_cpu

pytestmark = pytest.mark.parity

MAX_NMSE = 1e-10
IDS = [3, 9, 27, 1, 40, 41, 5, 6, 8, 2, 11, 30, 7, 7, 2, 19, 33, 4, 21, 12, 1, 8, 8, 9, 31, 2, 50, 44]
PROMPTS = (IDS[:12], IDS[12:19], IDS[19:])
STEPS = ((4, 3, 3), (5, 0, 4), (1, 1, 1), (1, 1, 0), (1, 1, 1), (0, 1, 0))  # parts of prompts, then decode
MIXED, NONE = (1, 0, 2), (0, 0, 0)  # slots of the prompts
# With biases, norms of heads, norms behind the branches, experts, a parallel block, recurrent layers.
ARCHS = ("llama31", "qwen3", "gemma3", "qwen3_moe")
JOINED = "qwen3"  # dispatches of one, two and three sites
OF_HEADS = "qwen3 qwen3_moe gemma3 llama31 qwen2 phi3_short gemma2 cohere granitemoe gpt_oss"
DIVIDED = [(arch, "f32") for arch in OF_HEADS.split()]  # among two devices
MORE_ARCHS = ("qwen2", "phi3_short", "gemma2", "olmoe", "cohere", "mamba2", "qwen3_next", "granitemoe")


def open_lavapipe() -> Backend:
    need_driver("llvmpipe")
    return open_webgpu("Vulkan")


BACKENDS: Mapping[str, tuple[Callable[[], Backend], str]] = {
    "reference": (ReferenceBackend, ""),
    "cpu": (open_cpu, ""),
    "wasm": (wasm_backend, "wasm_relaxed"),
    "webgpu": (open_lavapipe, "llvmpipe"),
    "webgpu, lanes of a GPU": (open_lavapipe, "llvmpipe"),
}


def run_on(name: str, loaded: Loaded, kv_type: str = "f32", slot_type: str = "f32") -> Runs:
    make, adapter = BACKENDS[name]
    how: dict[str, Any] = {"adapter": adapter, "kv_type": kv_type, "slot_type": slot_type}
    with pytest.MonkeyPatch.context() as patch:
        if "lanes" in name:
            patch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", GPU_LANES)
        return run(make(), loaded, PROMPTS, STEPS, (NONE, MIXED), **how)


def check_bits(runs: Runs) -> None:
    """Asserts that rows without an adapter have the bits of the program without adapters, and others not."""
    none, mixed = map(bits, runs.adapted)
    plain = bits(runs.plain)
    assert none == plain
    assert [got == want for got, want in zip(mixed, plain, strict=True)] == [slot == 0 for slot in MIXED]


@cache
def reference(arch: str, folder: Path) -> Runs:
    return run_on("reference", load_hf(folder / arch))


def made(arch: str, folder: Path) -> Path:
    """The folder, with the model of an architecture in it."""
    if not (folder / arch).exists():
        write_hf(folder / arch, load_case(arch), dtype="f16")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def cases() -> Iterator[object]:
    """Each backend with ARCHS, webgpu with one of them; exhaustive runs have all, and the lanes of a GPU."""
    for name in BACKENDS:
        for arch in (*ARCHS, *MORE_ARCHS):
            is_ordinary = arch == JOINED if name == "webgpu" else arch in ARCHS and "lanes" not in name
            yield (name, arch) if is_ordinary else exhaustive((name, arch))


@pytest.mark.parametrize(("name", "arch"), [*cases()])
def test_logits_of_mixed_steps(name: str, arch: str, folder: Path) -> None:
    want = reference(arch, made(arch, folder))
    runs = want if name == "reference" else run_on(name, load_hf(folder / arch))
    check_bits(runs)
    for got, right in zip(runs.adapted, want.adapted, strict=True):
        error = nmse(got, right)
        assert error <= MAX_NMSE
    assert nmse(want.adapted[1], want.adapted[0]) > 0.01, "the adapters are too small to show"


@pytest.mark.parametrize(("arch", "slot_type"), [("llama31", "f16"), *share_of(DIVIDED, 3)])
def test_devices_have_shares_of_the_slots(arch: str, slot_type: str, folder: Path) -> None:
    """Two devices: the reference's logits, and slots that read as they were written."""
    loaded = load_hf(made(arch, folder) / arch)
    want = run_on("reference", loaded, slot_type=slot_type)
    backend = parallel(open_parallel, loaded.model, 2, max(map(len, PROMPTS)))
    runs = run(backend, loaded, PROMPTS, STEPS, (NONE, MIXED), slot_type=slot_type)
    check_bits(runs)
    for got, right in zip(runs.adapted, want.adapted, strict=True):
        assert nmse(got, right) <= MAX_NMSE


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["cpu", "wasm"])
def test_slots_of_float16(name: str, arch: str, folder: Path) -> None:
    """The reference's logits with slots of the same type, and nearly those with slots of float32."""
    made(arch, folder)
    want, exact = run_on("reference", load_hf(folder / arch), slot_type="f16"), reference(arch, folder)
    runs = run_on(name, load_hf(folder / arch), slot_type="f16")
    check_bits(runs)
    for got, right in zip(runs.adapted, want.adapted, strict=True):
        assert nmse(got, right) <= MAX_NMSE
    assert MAX_NMSE < nmse(want.adapted[1], exact.adapted[1]) <= 1e-6


# Errors in parts that no single op has: the sites that share a dispatch, the norm behind a term.
PLANTED = (
    ("low_rank", "{ return slots_1[i]; }", "{ return slots[i]; }"),
    ("low_rank", "Y_2_OFFSET, SLOT_FLOATS_2", "Y_1_OFFSET, SLOT_FLOATS_2"),
    ("low_rank", "values[r] = fma(SCALE, sums[r], values[r]);", "y[place] = fma(SCALE, sums[r], y[place]);"),
)


@pytest.mark.parametrize(("name", "old", "new"), PLANTED)
def test_a_planted_error_of_joined_terms_is_detected(
    name: str, old: str, new: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, want = shaders.text, reference(JOINED, made(JOINED, folder))
    assert original(name).count(old) == 1
    monkeypatch.setattr(shaders, "text", lambda f: original(f).replace(old, new if f == name else old))
    got = run_on("webgpu", load_hf(folder / JOINED))
    assert not nmse(got.adapted[1], want.adapted[1]) <= MAX_NMSE


@pytest.mark.parametrize("kv_type", ["f16", exhaustive("q8_0")])
@pytest.mark.parametrize(
    "name", [exhaustive(name) if "webgpu" in name else name for name in BACKENDS if name != "reference"]
)
def test_bits_of_a_mixed_file(name: str, kv_type: str, tmp_path: Path) -> None:
    """Q4_K_M has values of another type than queries and keys in some layers."""
    source, path = tmp_path / "m.gguf", tmp_path / "q.gguf"
    write_tiny_llama(source, seed=2, type="f32", n_layers=3, tied=False)
    assert CliRunner().invoke(main, ["quantize", str(source), str(path), "Q4_K_M"]).exit_code == 0
    check_bits(run_on(name, load_gguf(path), kv_type))
