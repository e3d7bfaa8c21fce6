"""Plans that compute the remaining ops for output rows only: the logits keep every bit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import every
from tests.support.hf_models import HfCase, decoders, write_hf
from tests.support.model import runs, stress_runs
from tests.support.model.file_runs import load_hf, run
from tests.support.model.stress import t5
from tests.support.model.stress.shapes import SHAPES
from tests.support.model.stress_encoder import decode

from camelid.backends.base import Backend
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.staged.backend import StagedBackend
from camelid.model.arch import Model
from camelid.model.cuts import can_cut
from camelid.model.spec import LayerSpec, ModelSpec
from camelid.plan.outputs import only_outputs
from camelid.plan.plan import Plan
from camelid_native.cpu.backend import open_backend

CHUNK = 13
# For each step, its output rows: none, the last, in any order, a repeated row.
STEPS: tuple[tuple[int, tuple[int, ...]], ...] = ((9, ()), (5, (4,)), (8, (7, 2, 7)), (1, ()), (1, (0,)))
MOST_ROWS, MOST_OUTPUTS = 9, 3


def as_for_few(plan: Plan) -> Plan:
    """The ops of a plan for at most one output row, with capacity for all rows."""
    few = replace(plan.key, capacity=replace(plan.key.capacity, outputs=1))
    return replace(only_outputs(replace(plan, key=few)), key=plan.key)


def gathers(plan: Plan) -> list[str]:
    """The buffers whose rows are gathered."""
    return [op.view("x").buffer.name for op in plan.ops if op.name == "gather_rows"]


def begun(name: str, n_layers: int) -> Model:
    """The first layers of a shape, so that another kind of layer is the last."""
    model = SHAPES[name].model()
    spec = replace(model.spec, n_layers=n_layers, layers=model.spec.layers[:n_layers])
    return replace(model, spec=spec)


MODELS: dict[str, Callable[[], Model]] = {
    **{name: shape.model for name, shape in SHAPES.items()},
    "mamba2, a scan at last": lambda: begun("mamba2", 3),
    "qwen3next, a scan at last": lambda: begun("qwen3next", 3),
    "gemma3n, keys of its own at last": lambda: begun("gemma3n", 5),
}
GATHERED = {
    "deepseek2": ["attn", "x"],
    "deepseek2_lite": ["attn", "x"],
    "gpt_oss": ["attn", "x"],
    "gemma3n": ["attn", "h", "streams", "x"],  # the layer's normed input, and per-layer inputs
    "mamba2": ["attn", "x"],
    "qwen3next": ["attn", "h", "x"],  # the input of attention's gate
    "mamba2, a scan at last": ["scan", "ssm", "x"],  # the scan's gate
    "qwen3next, a scan at last": ["h", "scan", "x"],
    "gemma3n, keys of its own at last": ["attn", "h", "streams", "x"],
}


def token_ids(name: str) -> list[int]:
    return SHAPES[name.split(",")[0]].token_ids


@pytest.mark.parametrize("name", MODELS)
def test_shapes_of_other_architectures(name: str) -> None:
    """Latent attention, experts, recurrent state; several streams and per-layer inputs."""
    model, ids = MODELS[name](), token_ids(name)
    steps = runs.cuts(CHUNK, len(ids))
    want, got = (stress_runs.run(model, [ids], steps, edit=edit)[0] for edit in (None, as_for_few))
    assert np.array_equal(want, got)


@pytest.mark.parametrize("name", MODELS)
def test_gathered_buffers(name: str) -> None:
    plan = runs.make_plan(MODELS[name](), MOST_ROWS, context=32, n_outputs=1)
    assert sorted(buffer.split(".")[0] for buffer in gathers(plan)) == GATHERED[name]
    first = [op.name for op in plan.ops].index("gather_rows")
    assert plan.ops[first - 1].name in ("attention", "scan_mamba2", "scan_delta")
    assert all(view.rows == "O" for op in plan.ops[first + len(GATHERED[name]) :] for _, view in op.views())


def test_a_decoder_that_reads_its_encoder() -> None:
    steps = [tuple(len(target) for _, target in t5.PAIRS)]
    want, got = (decode(t5.model(), t5.PAIRS, steps, edit=edit) for edit in (None, as_for_few))
    assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))


@pytest.mark.parametrize("case", every(5, decoders()), ids=str)
def test_every_architecture_on_cpu(case: HfCase, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype="bf16"))
    fused, plans = open_backend().capabilities().fused, list[Plan]()

    def logits(change: Callable[[Plan], Plan]) -> Any:
        def edit(plan: Plan) -> Plan:
            plans.append(change(plan))
            return plans[-1]

        return asyncio.run(run(open_backend(), loaded, case.token_ids[:1], CHUNK, fused=fused, edit=edit))[0]

    assert np.array_equal(logits(lambda plan: plan), logits(as_for_few))
    layers = loaded.model.spec.layers
    last = max(i for i, layer in enumerate(layers) if layer.mixer)  # nemotron_h has layers of an MLP alone
    names = {name.removeprefix(f"blk.{last}.") for name in loaded.model.weights}
    assert [len(gathers(plan)) for plan in plans] == [1, n_read(layers[last], names)]


def n_read(layer: LayerSpec, names: set[str]) -> int:
    """Values of the last layer that its later ops read: mixed values, the residual stream, and a gate of
    mixed values, a norm of both mixer and MLP, the layer's input or the token's embedding for the layer;
    altup reads its streams and inputs, the bonus of RWKV-7 its receptances, keys, values and rates.
    """
    if layer.mixer == "rwkv7" and not layer.mlp.startswith("channel_mix"):
        return 6 + ("time_mix_g1" in names)
    is_gated = bool({"attn_gate", "ssm_in", "shortconv.in_proj", "time_mix_gate"} & names)
    shares_norm = layer.residual == "parallel" and "ffn_norm" not in names
    reads_input = layer.residual in ("early_experts", "early_router") or "inp_gate" in names
    return 4 if layer.residual == "altup" else 2 + (is_gated or shares_norm or reads_input)


async def every_row(backend: Backend, model: Model, ids: Sequence[int]) -> Any:
    """Logits of all rows, in one step."""
    plan = runs.make_plan(model, len(ids), context=len(ids))
    state = runs.make_state(plan.states, context=len(ids), n_sequences=1)
    started = await runs.start(backend, [plan], state)
    return (await started.feed([started.open_stream(ids)], [(len(ids),)]))[0]


async def asked(backend: Backend, model: Model, ids: Sequence[int]) -> list[Any]:
    """Logits of the output rows in STEPS."""
    cuts = backend.capabilities().cuts
    plan = runs.make_plan(model, MOST_ROWS, context=len(ids), cuts=cuts, n_outputs=MOST_OUTPUTS)
    state = runs.make_state(plan.states, context=len(ids), n_sequences=1)
    started = await runs.start(backend, [plan], state)
    stream = started.open_stream(ids)
    return [np.array(row.logits) for n, wanted in STEPS for row in await started.ask(stream, n, wanted)]


def wanted_rows() -> list[int]:
    starts = np.cumsum([0, *(n for n, _ in STEPS)])
    return [int(start) + i for start, (_, wanted) in zip(starts, STEPS, strict=False) for i in wanted]


def cut(*where: int) -> Backend:
    return StagedBackend([ReferenceBackend() for _ in range(len(where) + 1)], where, where[-1])


def everywhere(spec: ModelSpec) -> tuple[int, ...]:
    return tuple(i for i in range(1, len(spec.layers) + 1) if can_cut(spec, i))


BACKENDS: dict[str, Callable[[ModelSpec], Backend]] = {
    "reference": lambda _: ReferenceBackend(),
    "cpu": lambda _: open_backend(),
    "cut before the head": lambda spec: cut(len(spec.layers)),
    "cut everywhere": lambda spec: cut(*everywhere(spec)),
}


@pytest.mark.parametrize("way", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_output_rows_may_repeat_reorder_or_be_empty(name: str, way: str) -> None:
    model, ids = MODELS[name](), token_ids(name)[: sum(n for n, _ in STEPS)]
    want = asyncio.run(every_row(open_backend() if way == "cpu" else ReferenceBackend(), model, ids))
    got = asyncio.run(asked(BACKENDS[way](model.spec), model, ids))
    assert np.array_equal(np.stack(got), want[wanted_rows()])


def test_the_head_computes_output_rows_only() -> None:
    model = SHAPES["gpt_oss"].model()
    n_layers = len(model.spec.layers)
    plan = runs.make_plan(model, MOST_ROWS, context=32, n_outputs=1, cuts=(n_layers - 1, n_layers))
    assert [[(b.name, b.rows) for b in s.inputs] for s in plan.stages] == [[], [("x", "T")], [("x.out", "O")]]
