"""The one decoder: lowers any `ModelSpec` to a plan, layer by layer, through its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from camelid.model.arch import Model
from camelid.model.blocks import altup as streams
from camelid.model.blocks.attention import attention
from camelid.model.blocks.delta import delta, delta_state
from camelid.model.blocks.experts import experts
from camelid.model.blocks.glu import glu, mlp, sparse_glu
from camelid.model.blocks.mamba import mamba2, mamba2_state
from camelid.model.blocks.mla import mla, mla_state
from camelid.model.lowering import RECURRENT, Block, Lowering, Tensors
from camelid.model.rope import rope_weights
from camelid.model.spec import LayerSpec, ModelSpec
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import Plan, StateSpec, View
from camelid.plan.step import ProgramKey

MIXERS: dict[str, Block] = {"attention": attention, "mamba2": mamba2, "delta": delta, "mla": mla}
# The mixers that keep one slot a sequence, and what a layer of them keeps there; a model has one of them.
MIXER_STATES: dict[str, Callable[[ModelSpec], Tensors]] = {"mamba2": mamba2_state, "delta": delta_state}
MLPS: dict[str, Block] = {"glu": glu, "mlp": mlp, "sparse_glu": sparse_glu, "experts": experts}

PAGE_ROWS = 16
RING_ROWS = 128  # penalties look back 64 tokens; the rest covers steps in flight
TOKENS = "tokens"
GROUP_KINDS = {"kv": "paged", "window": "window"}


def declare_states(spec: ModelSpec) -> tuple[StateSpec, ...]:
    """The state groups that every plan of this model shares."""
    kv = mla_state(spec) if spec.mla else (("k", spec.kv_size), ("v", spec.kv_size))
    owners = [(i, layer) for i, layer in enumerate(spec.layers) if layer.kv_layer < 0]
    groups = {name: _layers(owners, name) for name in GROUP_KINDS}
    declared = [StateSpec(name, GROUP_KINDS[name], ls, kv, PAGE_ROWS) for name, ls in groups.items() if ls]
    return (*declared, *_recurrent(spec), StateSpec(TOKENS, "ring", (), (("id", 1),), RING_ROWS))


def _recurrent(spec: ModelSpec) -> Iterator[StateSpec]:
    for mixer, tensors in MIXER_STATES.items():
        layers = tuple(i for i, layer in enumerate(spec.layers) if layer.mixer == mixer)
        if layers:
            yield StateSpec(RECURRENT, RECURRENT, layers, tensors(spec), 1)


def _layers(owners: Sequence[tuple[int, LayerSpec]], group: str) -> tuple[int, ...]:
    return tuple(i for i, layer in owners if layer.state_group == group)


def lower(model: Model, key: ProgramKey) -> Plan:
    """The plan of one entry. `decode` and `mixed` share their ops and differ in capacity."""
    spec = model.spec
    plan = PlanBuilder(key, declare_states(spec))
    c = Lowering(plan, spec, {**model.weights, **rope_weights(spec)})
    _state_changes(plan)
    x = _embed(c)  # [T, C]
    if spec.n_streams > 1:
        c, x = replace(c, layer_inputs=streams.layer_inputs(c, x, TOKENS)), streams.open_streams(c, x)
    for i, layer in enumerate(spec.layers):
        RESIDUALS[layer.residual](c, x, i)
    _head(c, streams.close_streams(c, x) if spec.n_streams > 1 else x)
    return plan.build()


def _embed(c: Lowering) -> View:
    x = c.plan.embed(c.weights["token_embd"], TOKENS, c.spec.embedding_scale)
    if "position_embd" in c.weights:
        c.plan.embed_position(x, c.weights["position_embd"])
    return x


def sequential(c: Lowering, x: View, i: int) -> None:
    """x += mixer(norm(x)); x += mlp(norm(x)). Norms before and after each block, where the model has them."""
    layer, blk, scale = c.layer(i), f"blk.{i}.", c.spec.residual_scale
    y = MIXERS[layer.mixer](c, c.norm_if(x, blk + "attn_norm"), i)
    c.plan.add(x, c.norm_if(y, blk + "post_attention_norm"), scale)
    y = MLPS[layer.mlp](c, c.norm_if(x, blk + "ffn_norm"), i)
    c.plan.add(x, c.norm_if(y, blk + "post_ffw_norm"), scale)


def altup(c: Lowering, x: View, i: int) -> None:
    """Predicts all streams [T, N*C], runs the layer on the first, corrects all by what it found."""
    layer, blk = c.layer(i), f"blk.{i}."
    first = streams.predict(c, x, i)  # [T, C]
    h = c.norm(first, blk + "attn_norm")
    y = c.norm(MIXERS[layer.mixer](c, h, i), blk + "post_attention_norm")
    c.plan.add(y, first)
    c.plan.add(y, streams.laurel(c, h, i))
    c.plan.scale(y, 0.5**0.5)
    c.plan.add(y, c.norm(MLPS[layer.mlp](c, c.norm(y, blk + "ffn_norm"), i), blk + "post_ffw_norm"))
    streams.correct(c, x, y, i)
    streams.add_layer_input(c, x, i)


RESIDUALS: dict[str, Callable[[Lowering, View, int], None]] = {"sequential": sequential, "altup": altup}


def _head(c: Lowering, x: View) -> None:
    """Logits of the output rows, and the draw."""
    out = c.plan.gather_rows(c.norm(x, "output_norm"))  # [O, C]
    logits = c.linear(out, "token_embd" if c.spec.is_tied else "output", "logits")  # [O, V]
    c.plan.scale(logits, c.spec.logit_scale)
    c.plan.softcap(logits, c.spec.logit_softcap)
    c.plan.sample(logits, TOKENS)


def _state_changes(plan: PlanBuilder) -> None:
    for state in plan.states:
        if state.kind in GROUP_KINDS.values():
            plan.tables(state.name)
        if state.kind != "ring" and plan.key.capacity.copies:
            plan.copy(state.name)
