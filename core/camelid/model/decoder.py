"""The one decoder: lowers any `ModelSpec` to a plan, layer by layer, through its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camelid.model.archs import Model
from camelid.model.blocks.attention import attention
from camelid.model.blocks.glu import glu
from camelid.model.rope import rope_tables
from camelid.model.spec import ModelSpec
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import Plan, StateSpec, View
from camelid.plan.step import ProgramKey
from camelid.plan.weights import Weight

Block = Callable[[PlanBuilder, View, ModelSpec, Mapping[str, Weight], int], None]

MIXERS: dict[str, Block] = {"attention": attention}
MLPS: dict[str, Block] = {"glu": glu}

PAGE_ROWS = 16
RING_ROWS = 128  # penalties look back 64 tokens; the rest covers steps in flight
TOKENS = "tokens"


def declare_states(spec: ModelSpec) -> tuple[StateSpec, ...]:
    """The state groups that every plan of this model shares."""
    layers = tuple(range(spec.n_layers))
    kv = (("k", spec.kv_size), ("v", spec.kv_size))
    return (
        StateSpec("kv", "paged", layers, kv, PAGE_ROWS),
        StateSpec(TOKENS, "ring", (), (("id", 1),), RING_ROWS),
    )


def lower(model: Model, key: ProgramKey) -> Plan:
    """The plan of one entry. `decode` and `mixed` share their ops and differ in capacity."""
    spec = model.spec
    plan = PlanBuilder(key, declare_states(spec))
    weights = _with_tables(model)
    _state_changes(plan)
    x = plan.embed(weights["token_embd"], TOKENS)  # [T, C]
    for i, layer in enumerate(spec.layers):
        MIXERS[layer.mixer](plan, x, spec, weights, i)
        MLPS[layer.mlp](plan, x, spec, weights, i)
    h = plan.norm(x, weights["output_norm"], spec.norm_eps)
    out = plan.gather_rows(h)  # [O, C]
    logits = plan.linear(out, weights["token_embd" if spec.is_tied else "output"], "logits")  # [O, V]
    plan.sample(logits, TOKENS)
    return plan.build()


def _with_tables(model: Model) -> dict[str, Weight]:
    fine, coarse = rope_tables(model.spec.rope, model.spec.context_length)
    return {**model.weights, fine.name: fine, coarse.name: coarse}


def _state_changes(plan: PlanBuilder) -> None:
    for state in plan.states:
        if state.kind == "paged":
            plan.tables(state.name)
            if plan.key.capacity.copies:
                plan.copy(state.name)
