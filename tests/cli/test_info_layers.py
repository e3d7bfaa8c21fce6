"""`info --memory -ngl K` and `explain -ngl K`: each device's forecast equals its real memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gguf import GGUFReader
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.parity.adapters import need_driver

import camelid
from camelid.backends.registry import open_backend
from camelid.backends.webgpu.layouts import LAYOUTS
from camelid.cli.info_memory import memory_facts, notes
from camelid.cli.main import main
from camelid.loading.deployment import Deployment
from camelid.loading.estimate import estimate_memory
from camelid.loading.forecast import forecaster_of
from camelid.loading.model_file import find_source
from camelid.loading.options import LoadOptions
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model

N_CRIA = 4  # layers
STORED = "as stored"
WORDS = ("-c", "48", "--parallel", "3")
HOW: dict[str, Any] = {"context": 48, "parallel": 3}
PAD = 16  # bytes: webgpu pads each buffer to a multiple of them
Use = dict[str, int]


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def memory(model: str, *words: str) -> dict[str, Any]:
    done = call("info", model, "--memory", "--json", *words)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["memory"]


def uses(model: str, *words: str) -> list[Use]:
    """Bytes by use, for each device."""
    return [device["at"][STORED] for device in memory(model, *words)["devices"]]


def states(use: Use) -> Use:
    return {name: n for name, n in use.items() if name.startswith("state_")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models with blocks and odd sizes, and with windows beside full attention. Both tie the head."""
    made = tmp_path_factory.mktemp("models")
    write_tiny_llama(made / "q4", seed=1, n_layers=3, type="q4_0", hidden=96, head_dim=16, ffn=160, vocab=300)
    write_hf(made / "gemma3", load_case("gemma3"), dtype="f32")
    return made


def path_of(folder: Path, name: str) -> str:
    return name if name == "cria" else str(folder / name)


# Real memory.


@pytest.mark.parity
@pytest.mark.parametrize(("name", "layers"), share_of([("gemma3", 2), ("q4", 1), ("cria", 2), ("q4", 3)], 2))
def test_each_device_uses_the_predicted_bytes(name: str, layers: int, folder: Path) -> None:
    """Exactly on cpu; on webgpu plus the padding of its state's buffers."""
    model, adapter = path_of(folder, name), need_driver("llvmpipe")
    want_cpu, want_gpu = uses(model, "-ngl", str(layers), *WORDS)
    with camelid.load(model, gpu_layers=layers, adapter=adapter, **HOW) as llm:
        backend: Any = llm._running.backend
        cpu, gpu = (one.memory() for one in backend.backends)
    tables = -(-want_gpu["page_tables"] // PAD) * PAD
    scratch = want_gpu["scratch_decode"] + want_gpu["scratch_mixed"] + want_gpu["steps"]
    assert cpu.weight_bytes == want_cpu["weights"]
    assert cpu.state_bytes == sum(states(want_cpu).values()) + want_cpu["page_tables"]
    assert cpu.arena_bytes == want_cpu["scratch_decode"] + want_cpu["scratch_mixed"]
    assert want_gpu["steps"] - want_cpu["steps"] == 2 * HOW["parallel"] * 16, "webgpu counts results as steps"
    assert gpu.weight_bytes == want_gpu["weights"]
    assert gpu.state_bytes == sum(states(want_gpu).values()) + tables
    assert scratch <= gpu.arena_bytes < scratch + 4 * PAD, "not two steps, two results"


@pytest.mark.parametrize("layers", range(1, N_CRIA + 1))
def test_shares_equal_the_files(layers: int) -> None:
    """The oracle: a GPU has its layers' tensors, the last norm, the output and rotation tables."""
    cpu, gpu = uses("cria", "-ngl", str(layers), "-c", "512")
    (whole,) = uses("cria", "-ngl", "all", "-c", "512")
    cut = N_CRIA + 1 - layers
    mine = [f"blk.{i}." for i in range(cut, N_CRIA)] + ["output_norm", "token_embd"]
    tensors = GGUFReader(find_source("cria").handle).tensors
    tables = 4 * 64 * (256 + 512 // 256) if layers > 1 else 0
    assert gpu["weights"] == tables + sum(int(t.n_bytes) for t in tensors if t.name.startswith(tuple(mine)))
    assert cpu["state_kv"] * N_CRIA == cut * whole["state_kv"]
    assert cpu["state_kv"] + gpu["state_kv"] == whole["state_kv"]
    for name in ("state_tokens", "page_tables"):
        assert cpu[name] == gpu[name] == whole[name], "rings and tables are not on every device"
    assert cpu["process"] == whole["process"] and gpu["process"] == 0


# The report.


@pytest.mark.parametrize("layers", ["1", "3"])
def test_totals_are_sums(layers: str) -> None:
    found = memory("cria", "-ngl", layers)
    each = uses("cria", "-ngl", layers)
    whole = found["at"][STORED]
    assert {name: sum(use[name] for use in each) for name in whole} == whole
    for use in (*each, whole):
        assert use["total"] == sum(n for name, n in use.items() if name != "total")
    assert found["backend"] == "cpu+webgpu"
    assert [(d["backend"], d["layers"]) for d in found["devices"]] == [
        ("cpu", N_CRIA + 1 - int(layers)), ("webgpu", int(layers) - 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "backend"),
    [("0", "cpu"), ("all", "webgpu"), ("-1", "webgpu"), ("99", "webgpu"), ("5", "webgpu")],
)
def test_none_and_all_are_one_device(layers: str, backend: str) -> None:
    alone, found = memory("cria", "--backend", backend), memory("cria", "-ngl", layers)
    (device,) = found.pop("devices")
    assert found == alone and set(alone) == {"context", "parallel", "no_kernel", "at", "backend"}
    assert (device["backend"], device["part"], device["at"]) == (backend, "all 4 layers", alone["at"])
    texts = [call("info", "--memory", *words).stdout for words in (("--backend", backend), ("-ngl", layers))]
    assert texts[0] == texts[1]


def test_one_step_at_a_time_needs_less_of_a_window(folder: Path) -> None:
    """Two devices run one step at a time, each alone two."""
    words = ("-c", "128", "--parallel", "2")
    found = memory(path_of(folder, "gemma3"), "-ngl", "2", *words)["at"][STORED]
    (alone,) = uses(path_of(folder, "gemma3"), "-ngl", "all", *words)
    assert found["state_kv"] == alone["state_kv"] and found["state_window"] < alone["state_window"]


def test_as_text_each_device_has_its_table() -> None:
    done = call("info", "cria", "--memory", "-ngl", "2")
    lines = done.stdout[done.stdout.index("\nmemory") + 1 :].splitlines()
    heads = [text for text in lines if not text.startswith("  ")]
    assert heads[0].endswith("  cpu+webgpu, context 1,024, parallel 4; weights as stored")
    assert [text.split(maxsplit=2)[:2] for text in heads[1:]] == [
        ["on", "cpu"],
        ["on", "webgpu"],
        ["in", "all"],
    ]
    assert heads[1].endswith(" 3 of 4 layers") and heads[2].endswith(" 1 of 4 layers and the head")
    found = memory("cria", "-ngl", "2")
    want = [*(device["at"][STORED] for device in found["devices"]), found["at"][STORED]]
    totals = [text for text in lines if text.startswith("  total")]
    assert len(lines) == 1 + 3 * (1 + len(want[0])) and len(totals) == 3
    assert all(f" {use['total']:,} bytes" in text for use, text in zip(want, totals, strict=True))


def test_presets_need_no_file() -> None:
    found = memory("8b", "-ngl", "10", "-c", "8192", "--parallel", "1")
    cpu, gpu = found["devices"]
    assert (cpu["part"], gpu["part"]) == ("23 of 32 layers", "9 of 32 layers and the head")
    for use in gpu["at"].values():
        assert use["state_kv"] == (8192 // 16 + 1) * 16 * 2 * 4 * 9 * 8 * 128
    rows, matrices = 4096, 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096
    n = 9 * (2 * 4 * rows + 2 * matrices) + 4 * rows + 2 * 128256 * 4096
    assert gpu["at"]["f16"]["weights"] == n + 4 * 128 * (256 + 8192 // 256)


@pytest.mark.parametrize(("layers", "missing"), [(10, []), (32, ["q4_0"]), (-1, ["q4_0"]), (0, [])])
def test_a_missing_kernel_is_reported_for_its_device(
    layers: int, missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two layers are q4_0; webgpu has no kernel for q4_0 in the test."""
    monkeypatch.delitem(LAYOUTS, "q4_0")
    small, model = (bare_model(PRESETS["8b"], name).weights for name in ("q4_0", "f16"))
    weights = {name: small[name] if name.startswith(("blk.0.", "blk.1.")) else w for name, w in model.items()}
    mixed = {STORED: replace(bare_model(PRESETS["8b"], "f16"), weights=weights)}
    found = memory_facts(mixed, LoadOptions(backend="webgpu", gpu_layers=layers, context=64))
    assert found["no_kernel"] == missing
    assert list(notes(found)) == [f"note: webgpu has no kernel for {name}" for name in missing]


def test_cpus_forecast_is_independent_of_webgpus_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    want = memory("cria", "-ngl", "1")
    monkeypatch.delitem(LAYOUTS, "q8_0")
    found = memory("cria", "-ngl", "1")
    assert [device["no_kernel"] for device in found["devices"]] == [[], ["q8_0"]]
    assert found["at"] == want["at"]
    done = call("info", "--memory", "-ngl", "1")
    assert done.stderr == "camelid: note: webgpu has no kernel for q8_0\n"


def test_devices_without_the_type_are_not_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights then stay as stored."""
    backend: Any = open_backend("cpu")
    knows = backend.capabilities()
    monkeypatch.setattr(backend, "capabilities", lambda: replace(knows, weight_types=frozenset({"f32"})))
    deployment = Deployment.of(bare_model(PRESETS["8b"], "q4_0"), LoadOptions(), backend.capabilities())
    assert estimate_memory(deployment, [forecaster_of(backend)]) == estimate_memory(deployment)
    monkeypatch.undo()
    assert estimate_memory(deployment, [forecaster_of(backend)]) != estimate_memory(deployment)


# Refusals.


@pytest.mark.parametrize("command", [("info", "cria", "--memory"), ("explain", "cria")])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-ngl", "2", "--backend", "reference"), "backend 'reference' is no GPU; leave the backend out"),
        (("-ngl", "2", "--backend", "cpu"), "backend 'cpu' is no GPU"),
        (("-ngl", "-2"), "'-2' is not a number of layers; expected 0 or more, -1 or all"),
    ],
)
def test_what_run_refuses(command: tuple[str, ...], words: tuple[str, ...], said: str) -> None:
    done = call(*command, *words)
    assert done.exit_code == 2 and said in done.stderr and not done.stdout


def test_layers_that_share_keys_are_not_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last layer shares the first one's keys and values."""
    spec = PRESETS["8b"]
    layers = (*spec.layers[:-1], replace(spec.layers[-1], kv_layer=0))
    monkeypatch.setitem(PRESETS, "8b", replace(spec, layers=layers))
    done = call("info", "8b", "--memory", "-ngl", "2")
    assert done.exit_code == 2 and "layers that share keys and values must be on one device" in done.stderr
    assert len(memory("8b", "-ngl", "1")["devices"]) == 2


@pytest.mark.parametrize("option", ["-ngl", "--gpu-layers", "--n-gpu-layers"])
def test_layers_need_the_forecast(option: str) -> None:
    done = call("info", option, "2")
    assert done.exit_code == 2 and "--gpu-layers needs --memory" in done.stderr


# The plan.


def explain(*words: str) -> dict[str, Any]:
    done = call("explain", "cria", "--json", *words)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parity
@pytest.mark.parametrize("entry", ["decode", "mixed"])
def test_the_plan_has_one_stage_per_device(entry: str) -> None:
    words = ("--entry", entry, "-ngl", "2", "--adapter", need_driver("llvmpipe"))
    found = explain(*words)
    cpu, gpu = found["devices"]
    assert found["backend"] == "cpu+webgpu" and (cpu["backend"], gpu["backend"]) == ("cpu", "webgpu")
    assert (cpu["part"], gpu["part"]) == ("3 of 4 layers", "1 of 4 layers and the head")
    sums = [name for name in cpu if name.endswith(("_bytes", "_flops")) or name == "ops"]
    assert len(sums) == 7 and all(found[name] == cpu[name] + gpu[name] for name in sums)
    stages = found["plan"].split("\nstage ")[1:]
    assert [text.split()[0] for text in stages][1:] == ["blk.3"] and "takes x[T,256]" in stages[1]
    assert [len(text.splitlines()) - 1 for text in stages] == [cpu["ops"], gpu["ops"]]
    with camelid.load("cria", gpu_layers=2, adapter=words[-1]) as llm:
        plan = llm.plan(entry).text()
    assert stages == plan.split("\nstage ")[1:]
    shown = call("explain", "cria", *words).stdout
    tail = shown[shown.index("\n\nbackend") :]
    assert tail.count("weight bytes") == 2 and f"{gpu['weight_bytes']:,}" in tail


def test_the_plan_of_one_device() -> None:
    found = explain("-ngl", "0")
    (device,) = found.pop("devices")
    assert found == explain("--backend", "cpu")
    assert (device.pop("backend"), device.pop("part")) == ("cpu", "all 4 layers")
    assert found.items() >= device.items()
    assert call("explain", "-ngl", "0").stdout == call("explain", "--backend", "cpu").stdout


def test_a_missing_device_is_refused() -> None:
    done = call("explain", "cria", "-ngl", "2", "--adapter", "no such device")
    assert done.exit_code in (1, 2) and "'no such device'" in done.stderr
