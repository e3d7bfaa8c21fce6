"""Models cut into stages: valid cuts, the data that crosses them, and logits equal to the bit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import every
from tests.support.hf_models import HfCase, decoders, write_hf
from tests.support.model import runs
from tests.support.model.file_runs import load_hf, run
from tests.support.model.stress import t5
from tests.support.model.stress.bert import SPEC as BERT
from tests.support.model.stress.shapes import SHAPES

from camelid.backends.base import Backend
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.staged.backend import StagedBackend
from camelid.errors import RequestError
from camelid.model.arch import Model
from camelid.model.cuts import can_cut, cut_for
from camelid.model.spec import LayerSpec, ModelSpec
from camelid.plan.builder import PlanBuilder
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.stages import layer_ranges, split
from camelid.plan.weights import inline_f32
from camelid_native.cpu.backend import open_backend

CHUNK = 13  # rows per step: a prompt needs several steps, and windows end inside a step
CASES = [case for case in decoders() if case.name not in ("gemma3n", "gemma4")]  # share keys
FUSED = open_backend().capabilities().fused


def staged(kind: Callable[[], Any], cuts: Sequence[int], n_layers: int) -> StagedBackend:
    return StagedBackend([kind() for _ in range(len(cuts) + 1)], cuts, n_layers)


def every_cut(spec: ModelSpec) -> list[tuple[int, ...]]:
    """Each valid single cut, and all valid cuts together."""
    single = [(i,) for i in range(1, len(spec.layers) + 1) if can_cut(spec, i)]
    return [*single, tuple(i for (i,) in single)] if len(single) > 1 else single


@pytest.mark.parametrize("case", every(5, CASES), ids=str)
def test_every_architecture_on_cpu_in_any_stages(case: HfCase, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype="bf16"))
    ids, spec = case.token_ids[:1], loaded.model.spec

    def logits(backend: Backend) -> Any:
        return asyncio.run(run(backend, loaded, ids, CHUNK, context=len(ids[0]), fused=FUSED))[0]

    want, cuts = logits(open_backend()), every_cut(spec)
    assert len(cuts) >= len(spec.layers), "a layer boundary is no valid cut"
    for where in (cuts[0], cuts[-1]):  # after the first layer, and after every layer
        assert np.array_equal(logits(staged(open_backend, where, len(spec.layers))), want), where


async def shape_logits(backend: Backend, model: Model, ids: Sequence[int], chunk: int) -> Any:
    plan = runs.make_plan(model, chunk, context=len(ids), cuts=backend.capabilities().cuts)
    state = runs.make_state(plan.states, context=len(ids), n_sequences=1)
    started = await runs.start(backend, [plan], state)
    return (await started.feed([started.open_stream(ids)], runs.cuts(chunk, len(ids))))[0]


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_other_architectures(name: str) -> None:
    """Latent attention, experts, recurrent state; several streams and per-layer inputs."""
    shape = SHAPES[name]
    model, ids = shape.model(), shape.token_ids
    want = asyncio.run(shape_logits(ReferenceBackend(), model, ids, 7))
    cuts = every_cut(model.spec)
    assert cuts
    for where in cuts:
        backend = staged(ReferenceBackend, where, len(model.spec.layers))
        assert np.array_equal(asyncio.run(shape_logits(backend, model, ids, 7)), want), where


def plan_of(model: Model, *cuts: int) -> Plan:
    return runs.make_plan(model, 7, context=32, cuts=cuts)


def names(buffers: Any) -> list[str]:
    return [buffer.name for buffer in buffers]


def test_data_across_a_cut_is_declared() -> None:
    """The residual stream; with several streams all of them, and the inputs of later layers."""
    plain = plan_of(SHAPES["gpt_oss"].model(), 1).stages
    assert [names(s.inputs) for s in plain] == [[], ["x"]] and names(plain[0].outputs) == ["x"]
    wide = SHAPES["gemma3n"].model()
    first, last = plan_of(wide, 1).stages
    embedded = wide.weights["per_layer_token_embd"].cols
    assert sorted(b.cols for b in last.inputs) == sorted(
        [wide.spec.n_streams * wide.spec.hidden_size, embedded]
    )
    assert {*first.outputs} == {*last.inputs}
    assert f"takes {last.inputs[0].name}[T," in plan_of(wide, 1).text()


def test_data_passed_through_a_stage_is_not_its_output() -> None:
    """Per-layer inputs are computed once, and every later stage receives them."""
    stages = plan_of(SHAPES["gemma3n"].model(), 1, 2).stages
    made = {name for name in names(stages[0].outputs) if name not in names(stages[1].outputs)}
    assert len(made) == 1 and made < {*names(stages[1].inputs)} & {*names(stages[2].inputs)}


def lives(part: Plan) -> dict[str, tuple[int, int]]:
    """The first and last op of each buffer: inputs exist before all ops, outputs after all."""
    (stage,) = part.stages
    found: dict[str, tuple[int, int]] = dict.fromkeys(names(stage.inputs), (-1, -1))
    for i, op in enumerate(stage.ops):
        for _, view in op.views():
            first, _ = found.get(view.buffer.name, (i, i))
            found[view.buffer.name] = (first, i)
    return found | {name: (found[name][0], len(stage.ops)) for name in names(stage.outputs)}


def waiting() -> list[Plan]:
    """Two stages with a buffer that lives from the first op to the last, while other buffers come and go."""
    table, key = inline_f32("table", [0.0] * 8, (2, 4)), plan_of(SHAPES["mamba2"].model()).key
    plan = PlanBuilder(key, (StateSpec("tokens", "ring", (), (("id", 1),), 64),))
    x = plan.embed(table, "tokens")
    early = plan.norm(x, None, 1.0)
    for _ in range(3):
        x = plan.norm(x, None, 1.0)
    plan.cut("rest")
    for _ in range(3):
        x = plan.norm(x, None, 1.0)
    plan.add(early, x)
    plan.emit(plan.gather_rows(early))
    return split(plan.build(), layer_ranges((1,), 2))


def test_a_boundary_shares_no_bytes() -> None:
    """Not even with buffers that live before its first use, or after its last."""
    model = SHAPES["gemma3n"].model()
    parts = split(plan_of(model, 1, 2), layer_ranges((1, 2), len(model.spec.layers)))
    for part in (*parts, *waiting()):
        places, spans = plan_arena(part).offsets, lives(part)
        sizes = {v.buffer.name: 4 * part.rows[v.rows] * v.stride for op in part.ops for _, v in op.views()}
        for a, b in combinations(spans, 2):
            together = spans[a][0] <= spans[b][1] and spans[b][0] <= spans[a][1]
            apart = places[a] + sizes[a] <= places[b] or places[b] + sizes[b] <= places[a]
            assert apart or not together, (a, b)


def test_state_is_on_its_layers_stage() -> None:
    model = SHAPES["qwen3next"].model()
    whole, cut = plan_of(model), 2
    parts = split(plan_of(model, cut), layer_ranges((cut,), len(model.spec.layers)))
    for i, state in enumerate(whole.states):
        own = [part.states[i] for part in parts]
        assert [s.name for s in own] == [state.name] * 2
        if state.layers:
            assert own[0].layers + own[1].layers == state.layers
            assert all(layer < cut for layer in own[0].layers) and all(x >= cut for x in own[1].layers)
            assert sum(s.unit_bytes for s in own) == state.unit_bytes
    assert parts[0].layout.n_words == parts[1].layout.n_words == whole.layout.n_words


SPEC = SHAPES["gpt_oss"].spec
N = len(SPEC.layers)


@pytest.mark.parametrize(
    ("gpu_layers", "cut"),
    [(-1, 0), (0, N + 1), (1, N), (2, N - 1), (N, 1), (N + 1, 0), (N + 2, 0), (999, 0)],
)
def test_last_layers_are_offloaded_first_after_the_head(gpu_layers: int, cut: int) -> None:
    assert cut_for(SPEC, gpu_layers) == cut


def test_invalid_cuts_are_refused() -> None:
    with pytest.raises(RequestError, match="gpu_layers is -2, expected a number of layers, or -1") as caught:
        cut_for(SPEC, -2)
    assert caught.value.field == "gpu_layers"


def sharing(*kv_layers: int) -> ModelSpec:
    """Layers that read another layer's keys and values, by index; -1: their own."""
    return replace(SPEC, layers=tuple(LayerSpec(kv_layer=i) for i in kv_layers))


def test_layers_that_share_keys_are_not_separated() -> None:
    spec = sharing(-1, -1, 1, -1, 3)
    assert [i for i in range(7) if can_cut(spec, i)] == [0, 1, 3, 5, 6]
    with pytest.raises(RequestError, match=r"share keys and values.*possible numbers for .*: 0, 1, 3, 5, 6$"):
        cut_for(spec, 4)
    assert cut_for(spec, 3) == 3


@pytest.mark.parametrize("spec", [t5.SPEC, BERT], ids=["t5", "bert"])
def test_encoders_are_not_cut(spec: ModelSpec) -> None:
    assert [can_cut(spec, i) for i in (0, len(spec.layers) + 1)] == [True, True]
    if spec.layers:
        with pytest.raises(RequestError, match="encoder runs on one device"):
            cut_for(spec, 1)
