"""Lowers a model to plans: the entries of a model, its decoder, and the state groups of its plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from camelid.errors import PlanError
from camelid.model.arch import Model
from camelid.model.blocks import altup as streams
from camelid.model.blocks.cross import CROSS, cross_layers
from camelid.model.blocks.delta import delta_state
from camelid.model.blocks.mamba import mamba2_state
from camelid.model.blocks.mla import mla_state
from camelid.model.blocks.rwkv import rwkv_state
from camelid.model.blocks.shortconv import shortconv_state
from camelid.model.encoder import lower_encode
from camelid.model.features import has_features, lower_features
from camelid.model.kv_types import KvType, check_columns, kv_row
from camelid.model.layers import INJECTED, apply_layer, embed, inject
from camelid.model.lowering import RECURRENT, TOKENS, Lowering, Tensors
from camelid.model.relative import alibi_weights
from camelid.model.rope import rope_weights
from camelid.model.spec import LayerSpec, ModelSpec
from camelid.plan.builder import PlanBuilder
from camelid.plan.dtypes import F32
from camelid.plan.outputs import only_outputs
from camelid.plan.plan import PAGE_ROWS, Plan, StateSpec, View
from camelid.plan.stages import layer_ranges
from camelid.plan.step import ProgramKey
from camelid.plan.tiers import TAIL_WINDOW, tail_of

# Recurrent mixer -> the tensors in a sequence's slot, per layer, the same for all mixers of a model.
MIXER_STATES: dict[str, Callable[[ModelSpec], Tensors]] = {
    "mamba": mamba2_state,
    "mamba2": mamba2_state,
    "mamba_heads": mamba2_state,
    "attention_mamba2": mamba2_state,
    "delta": delta_state,
    "shortconv": shortconv_state,
    "rwkv6": rwkv_state,
    "gated_rwkv6": rwkv_state,
    "rwkv7_first": rwkv_state,
    "rwkv7": rwkv_state,
}

RING_ROWS = 128  # penalties read the last 64 token ids; the rest covers steps in flight
KV, WINDOW = "kv", "window"  # state groups of full-attention and of sliding-window layers
TABLE_KINDS = ("paged", "window", "static")
Entry: TypeAlias = Callable[[Lowering], None]


def declare_states(
    spec: ModelSpec, kv_type: str = "f32", page_rows: int = PAGE_ROWS
) -> tuple[StateSpec, ...]:
    """The state groups of all plans of a model, with a KV cache of `kv_type` in pages of `page_rows` rows.

    Raises RequestError for an unknown `kv_type`, or if the model's rows are not a multiple of its block.
    """
    states = _kv_states(spec, kv_row(kv_type), page_rows)
    declared = [check_columns(state, kv_type) for state in states if state.layers]
    return (*declared, *_recurrent(spec), StateSpec(TOKENS, "ring", (), (("id", 1),), RING_ROWS))


def _kv_states(spec: ModelSpec, types: KvType, page_rows: int) -> Iterator[StateSpec]:
    """The state groups of the KV cache; groups without layers are included."""
    kv, window_kv = _group_tensors(spec, KV), _group_tensors(spec, WINDOW)
    full, local = (_writers(spec, group) for group in (KV, WINDOW))
    window = max((layer.window for layer in spec.layers if layer.state_group == WINDOW), default=0)
    yield StateSpec(KV, "paged", full, kv, page_rows, types.kv)
    if types.tail:
        yield StateSpec(tail_of(KV), "window", full, kv, page_rows, types.tail, TAIL_WINDOW)
    yield StateSpec(WINDOW, "window", local, window_kv, page_rows, types.window, window)
    for group in _own_groups(spec):
        own = _group_tensors(spec, group)
        yield StateSpec(group, "paged", _writers(spec, group), own, page_rows, types.kv)
        if types.tail:
            yield StateSpec(
                tail_of(group), "window", _writers(spec, group), own, page_rows, types.tail, TAIL_WINDOW
            )
    yield StateSpec(CROSS, "static", cross_layers(spec), kv, page_rows, types.static)


def _group_tensors(spec: ModelSpec, group: str) -> Tensors:
    """The tensors of a state group, whose layers have equal KV heads."""
    layer = next((layer for layer in spec.layers if layer.state_group == group), LayerSpec())
    return _kv_tensors(spec.of_layer(layer))


def _kv_tensors(spec: ModelSpec) -> Tensors:
    return mla_state(spec) if spec.mla else (("k", spec.kv_size), ("v", spec.kv_size))


def _own_groups(spec: ModelSpec) -> list[str]:
    """State groups of full-attention layers with fewer KV heads than the most."""
    named = {layer.state_group: None for layer in spec.layers}
    return [group for group in named if group.startswith(f"{KV}_")]


def _recurrent(spec: ModelSpec) -> Iterator[StateSpec]:
    layers = tuple(i for i, layer in enumerate(spec.layers) if layer.mixer in MIXER_STATES)
    if layers:
        tensors = MIXER_STATES[spec.layers[layers[0]].mixer]
        yield StateSpec(RECURRENT, RECURRENT, layers, tensors(spec), 1)


def _writers(spec: ModelSpec, group: str) -> tuple[int, ...]:
    """The layers that write their own keys and values to a state group."""
    return tuple(
        i for i, layer in enumerate(spec.layers) if layer.kv_layer < 0 and layer.state_group == group
    )


def lower(
    model: Model,
    key: ProgramKey,
    states: tuple[StateSpec, ...] | None = None,
    *,
    cuts: tuple[int, ...] = (),
    dtype: str = F32,
) -> Plan:
    """The plan of one entry over `states` (None: `declare_states` with an f32 KV cache).

    `decode` and `mixed` differ only in capacity. With fewer outputs than rows, the ops after the last layer's
    attention or scan run on the output rows only. Activations are stored as `dtype`, logits as float32.
    A new stage begins before each layer in `cuts`; the number of layers stands for the head.

    Raises PlanError for an entry that the model does not have.
    """
    spec, entries = model.spec, entries_of(model.spec)
    if key.entry not in entries:
        known = ", ".join(entries)
        raise PlanError(f"{spec.name} has no entry {key.entry!r}; its entries: {known}", op=key.entry)
    n_channels = 2 if "token_types" in model.weights else _n_channels(spec, key)
    plan = PlanBuilder(key, states or declare_states(spec), n_channels=n_channels, dtype=dtype)
    _state_changes(plan, layer_ranges(cuts, len(spec.layers))[0])
    weights = {**model.weights, **rope_weights(spec), **alibi_weights(spec)}
    entries[key.entry](Lowering(plan, spec, weights, cuts=cuts))
    return only_outputs(plan.build())


def _n_channels(spec: ModelSpec, key: ProgramKey) -> int:
    """Position channels of a row: images have one for each axis of the rotation, text has one number."""
    axes = (axis for rope in spec.ropes.values() for axis in rope.axes)
    return 1 + max(axes, default=0) if INJECTED in key.features else 1


def entries_of(spec: ModelSpec) -> Mapping[str, Entry]:
    """Entry name -> lowering: `decode` and `mixed` of a decoder; `encode` of an encoder, or for features
    of a decoder alone."""
    decode = {"decode": lower_decode, "mixed": lower_decode} if spec.layers else {}
    if spec.encoder:
        return decode | {"encode": lower_encode}
    return decode | ({"encode": lower_features} if has_features(spec) else {})


def lower_decode(c: Lowering) -> None:
    """Adds the decoder's ops: embedding, layers, logits of the output rows, sampling."""
    c, spec = c.stack("dec."), c.spec
    x = embed(c)  # [T, C]
    if INJECTED in c.plan.key.features:
        c = replace(c, side=inject(c, x))
    if "per_layer_token_embd" in c.weights:
        c = replace(c, layer_inputs=streams.layer_inputs(c, x, TOKENS))
    x = streams.open_streams(c, x) if spec.n_streams > 1 else x
    for i in range(len(spec.layers)):
        _begin_stage(c, i)
        x = apply_layer(c, x, i)
    _begin_stage(c, len(spec.layers))
    _head(c, streams.close_streams(c, x) if spec.n_streams > 1 else x)


def _begin_stage(c: Lowering, i: int) -> None:
    """Begins a new stage if the plan is cut before layer `i`."""
    n_layers = len(c.spec.layers)
    for layers in layer_ranges(c.cuts, n_layers)[1:]:
        if layers.start == i:
            c.plan.cut(f"blk.{i}" if i < n_layers else "head")
            _state_changes(c.plan, layers)


def _head(c: Lowering, x: View) -> None:
    """Adds the final norm, the logits of the output rows and the sampling op."""
    out = c.plan.gather_rows(c.norm(x, "output_norm"))  # [O, C]
    name = "token_embd" if c.spec.is_tied else "output"
    logits = c.linear(out, name, "logits", dtype=F32)  # [O, V]
    c.plan.scale(logits, c.spec.logit_scale)
    c.plan.softcap(logits, c.spec.logit_softcap)
    c.plan.sample(logits, TOKENS)


def _state_changes(plan: PlanBuilder, layers: range) -> None:
    """Adds the page-table updates and page copies of the state groups that `layers` use."""
    for state in plan.states:
        if not set(state.layers) & set(layers):
            continue
        if state.kind in TABLE_KINDS:
            plan.tables(state.name)
        if state.kind != "ring" and plan.key.capacity.copies:
            plan.copy(state.name)
