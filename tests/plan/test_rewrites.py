"""Joined linear maps and rotations, fused sums, deferred norms; ops that stay apart."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.support.exhaustive import every
from tests.support.hf_models import HfCase, decoders, load_cases, write_hf
from tests.support.model import stress_runs
from tests.support.model.file_runs import Loaded, load_hf, run
from tests.support.model.runs import cuts, make_plan
from tests.support.model.stress.shapes import SHAPES
from tests.support.parity.compare import nmse

from camelid.backends.reference.backend import ReferenceBackend
from camelid.model.arch import Model
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model
from camelid.plan.fuse import REWRITES, UNBOUNDED, fuse
from camelid.plan.join import join_linears, join_ropes
from camelid.plan.op_rows_fused import KV_OPS, QKV
from camelid.plan.ops import OPS, make_op
from camelid.plan.plan import Buffer, Op, Plan, View
from camelid.plan.weights import Part, Weight

ALL = frozenset(REWRITES)
APART = ALL - {"join_linears", "join_ropes"}
# Norms of plain RMS kind in front of linear maps; the other architectures have layer norms, or norms of sums.
DEFERRED = {"llama31", "qwen2", "qwen3"}
HEAD_NORMS = {"qwen3", "qwen3_moe", "gemma3"}
EXPERTS = {"mixtral", "qwen3_moe", "qwen3_next", "granitemoehybrid"}
# Probs multiply the input of experts, or experts have no gate, which no fused op has.
UNFUSED = {"llama4", "nemotron_h_moe", "nemotron_h_moe_nano"}
FUSED_EXPERTS = {"linear_experts_glu", "linear_experts_sum"}
CHUNK = 13
# Architectures -> linear maps and rotations that the joins remove from a layer. A permuted or cast weight is
# not joined: llama's of Hugging Face directories, and biases stored as bf16.
REMOVED = {"llama31": (0, 0), "qwen2": (0, 0), "qwen3": (2, 1), "olmo2": (2, 0), "gpt2": (0, 0)}


def difference(loaded: Loaded, case: HfCase, plain: frozenset[str]) -> float:
    def logits(fused: frozenset[str]) -> Any:
        return asyncio.run(run(ReferenceBackend(), loaded, case.token_ids[:1], CHUNK, fused=fused))[0]

    return nmse(logits(ALL), logits(plain))


def removed(model: Model) -> tuple[float, ...]:
    plan, n_layers = make_plan(model, CHUNK, context=CHUNK), len(model.spec.layers)
    joined, apart = (Counter(chain(*map(parts, fuse(plan, names).ops))) for names in (ALL, APART))
    return tuple((apart[part] - joined[part]) / n_layers for part in ("map", "rotation"))


def parts(op: Op) -> list[str]:
    """The linear maps and rotations of an op."""
    maps = 1 + op.has("v_weight") if op.name in ("linear", "norm_linear", *QKV) else 0
    return ["map"] * maps + ["rotation"] * (op.name in ("rope", "norm_rope_write", *QKV))


@pytest.mark.parametrize("case", every(8, decoders()), ids=str)
def test_every_architecture_keeps_its_logits(case: HfCase, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype="bf16"))
    assert difference(loaded, case, APART) <= 1e-20
    assert removed(loaded.model) == REMOVED.get(case.name, removed(loaded.model))
    assert difference(loaded, case, frozenset()) <= 1e-11  # float32 is rounded elsewhere
    ops = fuse(make_plan(loaded.model, CHUNK, context=CHUNK), ALL).ops
    names = {op.name for op in ops}
    assert "linear_add_norm" in names or case.name not in DEFERRED
    assert any(op.name in QKV and op.has("q_gain") for op in ops) or case.name not in HEAD_NORMS
    assert names.issuperset(FUSED_EXPERTS) or case.name not in EXPERTS
    assert not names & {"linear_experts", "combine"} or case.name in UNFUSED


def test_biases_are_joined(tmp_path: Path) -> None:
    case = next(case for case in load_cases() if case.name == "qwen2")
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype="f32"))
    assert any(name.endswith("attn_v.bias") for name in loaded.model.weights)
    assert difference(loaded, case, APART) <= 1e-20
    assert removed(loaded.model)[0] == 2


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_other_architectures_keep_their_logits(name: str) -> None:
    """Latent attention, experts, recurrent state; several streams and per-layer inputs."""
    model, ids = SHAPES[name].model(), SHAPES[name].token_ids
    steps = cuts(CHUNK, len(ids))
    joined, apart = (
        stress_runs.run(model, [ids], steps, edit=partial(fuse, known=names))[0] for names in (ALL, APART)
    )
    assert nmse(joined, apart) <= 1e-20


def test_a_llama_of_a_gguf_file_has_one_map_and_one_rotation_per_layer() -> None:
    assert removed(bare_model(PRESETS["8b"], "q4_0")) == (2, 1)


@pytest.mark.parametrize("n_kv_heads", [1, 8])
def test_norms_of_heads_join_rotation_and_write(n_kv_heads: int) -> None:
    spec = replace(PRESETS["8b"], arch="qwen3", n_kv_heads=n_kv_heads)
    plan = make_plan(bare_model(spec, "q4_0"), CHUNK, context=CHUNK)
    counts = Counter(op.name for op in fuse(plan, ALL - {"qkv_heads"}).ops)
    assert counts["norm_rope_write"] == spec.n_layers and counts["norm"] <= 2  # the first and the last
    assert n_qkv(plan, "q_gain") == spec.n_layers


def n_qkv(plan: Plan, role: str) -> int:
    """Queries, keys and values in one op with an operand of this role."""
    return sum(op.name in QKV and op.has(role) for op in fuse(plan, ALL).ops)


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_a_tail_joins_the_write_to_its_store(arch: str) -> None:
    spec = replace(PRESETS["8b"], arch=arch)
    plan = make_plan(bare_model(spec, "q4_0"), CHUNK, context=CHUNK, kv_type="two-tier")
    assert n_qkv(plan, "tail") == spec.n_layers
    assert "kv_write" not in {op.name for op in fuse(plan, ALL).ops}


def test_all_ops_that_write_the_kv_cache_are_counted() -> None:
    assert {name for name, row in OPS.items() if "kv_write" in row.meaning} | {"kv_write"} == KV_OPS


def rows(name: str, cols: int) -> View:
    return View(Buffer(name, "T", cols), cols)


def matrix(name: str, n_out: int, type_: str = "f32") -> Weight:
    weight = Weight(name=name, type=type_, shape=(n_out, 64), parts=())
    return Weight(name=name, type=type_, shape=(n_out, 64), parts=(Part("file", 0, weight.n_bytes),))


def linear(y: View, x: View, type_: str = "f32") -> Op:
    return make_op(
        "linear", {"y": y, "x": x, "weight": matrix(f"blk.0.attn_{y.buffer.name}", y.cols, type_)}, {}
    )


X, Q, K, V = rows("x", 64), rows("q", 64), rows("k", 32), rows("v", 32)
MAPS = (linear(Q, X), linear(K, X), linear(V, X))


def test_outputs_lie_side_by_side() -> None:
    (op,) = join_linears(MAPS, UNBOUNDED)
    weight = op.weight("weight")
    assert (weight.name, weight.shape) == ("blk.0.attn_q+blk.0.attn_k+blk.0.attn_v", (128, 64))
    assert [part.n_bytes for part in weight.parts] == [64 * 64 * 4, 32 * 64 * 4, 32 * 64 * 4]
    add = make_op("add", {"x": rows("z", 32), "r": V}, {})
    assert join_linears((*MAPS, add), UNBOUNDED)[1].view("r") == View(Buffer("q+k+v", "T", 128), 32, 96)


SCALE = make_op("scale", {"x": X}, {"by": 2.0})
READ = make_op("add", {"x": rows("z", 32), "r": K}, {})
BOTH = make_op("add", {"x": K, "r": V}, {})
CASES: dict[str, tuple[tuple[Op, ...], list[str]]] = {
    "another type": ((linear(Q, X), linear(K, X, "f16"), linear(V, X)), ["q+v", "k"]),
    "another input": ((linear(Q, X), linear(K, rows("z", 64)), linear(V, X)), ["q+v", "k"]),
    "the input is written": ((linear(Q, X), SCALE, linear(K, X)), ["q", "k"]),
    "the output is read before": ((linear(Q, X), READ, linear(K, X)), ["q", "k"]),
    "both are bound where one is written": ((linear(K, X), linear(V, X), BOTH), ["k", "v"]),
}


@pytest.mark.parametrize("name", CASES)
def test_maps_that_stay_apart(name: str) -> None:
    ops, joined = CASES[name]
    made = [op for op in join_linears(ops, UNBOUNDED) if op.name == "linear"]
    assert [op.view("y").buffer.name for op in made] == joined


def test_a_joined_weight_has_a_bound() -> None:
    most = 96 * 64 * 4
    assert [op.view("y").buffer.name for op in join_linears(MAPS, most)] == ["q+k", "v"]


def rope(x: View, name: str = "rope") -> Op:
    tables = {
        role: Weight(name=f"{name}.{role}", type="f32", shape=(4, 32), parts=())
        for role in ("fine", "coarse")
    }
    return make_op("rope", {"x": x, **tables}, {"head_dim": 32, "dim": 32, "style": "neox"})


def test_rotations_of_neighbours_are_one() -> None:
    buffer = Buffer("qk", "T", 128)
    q, k, far = View(buffer, 64), View(buffer, 32, 64), View(buffer, 32, 96)
    assert [op.view("x") for op in join_ropes((rope(q), rope(k)), UNBOUNDED)] == [View(buffer, 96)]
    for apart in ((rope(q), rope(far)), (rope(q), rope(k, "other")), (rope(k), rope(q))):
        assert join_ropes(apart, UNBOUNDED) == apart
