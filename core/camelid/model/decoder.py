"""Lowers any `ModelSpec` to a plan, layer by layer, through its blocks: the one decoder, and the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from camelid.errors import PlanError
from camelid.model.arch import Model
from camelid.model.blocks import altup as streams
from camelid.model.blocks.cross import CROSS, cross_layers
from camelid.model.blocks.delta import delta_state
from camelid.model.blocks.mamba import mamba2_state
from camelid.model.blocks.mla import mla_state
from camelid.model.encoder import lower_encode
from camelid.model.layers import apply_layer, embed
from camelid.model.lowering import RECURRENT, TOKENS, Lowering, Tensors
from camelid.model.rope import rope_weights
from camelid.model.spec import LayerSpec, ModelSpec
from camelid.plan.builder import PlanBuilder
from camelid.plan.plan import Plan, StateSpec, View
from camelid.plan.step import ProgramKey

# The mixers that keep one slot a sequence, and what a layer of them keeps there; a model has one of them.
MIXER_STATES: dict[str, Callable[[ModelSpec], Tensors]] = {"mamba2": mamba2_state, "delta": delta_state}

PAGE_ROWS = 16
RING_ROWS = 128  # penalties look back 64 tokens; the rest covers steps in flight
GROUP_KINDS = {"kv": "paged", "window": "window"}
TABLE_KINDS = ("paged", "window", "static")
Entry: TypeAlias = Callable[[Lowering], None]


def declare_states(spec: ModelSpec) -> tuple[StateSpec, ...]:
    """The state groups that every plan of this model shares."""
    kv = mla_state(spec) if spec.mla else (("k", spec.kv_size), ("v", spec.kv_size))
    owners = [(i, layer) for i, layer in enumerate(spec.layers) if layer.kv_layer < 0]
    groups = {name: _layers(owners, name) for name in GROUP_KINDS}
    declared = [StateSpec(name, GROUP_KINDS[name], ls, kv, PAGE_ROWS) for name, ls in groups.items() if ls]
    if crossed := cross_layers(spec):
        declared.append(StateSpec(CROSS, "static", crossed, kv, PAGE_ROWS))
    return (*declared, *_recurrent(spec), StateSpec(TOKENS, "ring", (), (("id", 1),), RING_ROWS))


def _recurrent(spec: ModelSpec) -> Iterator[StateSpec]:
    for mixer, tensors in MIXER_STATES.items():
        layers = tuple(i for i, layer in enumerate(spec.layers) if layer.mixer == mixer)
        if layers:
            yield StateSpec(RECURRENT, RECURRENT, layers, tensors(spec), 1)


def _layers(owners: Sequence[tuple[int, LayerSpec]], group: str) -> tuple[int, ...]:
    return tuple(i for i, layer in owners if layer.state_group == group)


def lower(model: Model, key: ProgramKey) -> Plan:
    """The plan of one entry. `decode` and `mixed` share their ops and differ in capacity.

    Raises PlanError for an entry that the model does not have.
    """
    spec, entries = model.spec, entries_of(model.spec)
    if key.entry not in entries:
        known = ", ".join(entries)
        raise PlanError(f"{spec.name} has no entry {key.entry!r}; it has {known}", op=key.entry)
    n_channels = 2 if "token_types" in model.weights else 1
    plan = PlanBuilder(key, declare_states(spec), n_channels=n_channels)
    _state_changes(plan)
    entries[key.entry](Lowering(plan, spec, {**model.weights, **rope_weights(spec)}))
    return plan.build()


def entries_of(spec: ModelSpec) -> Mapping[str, Entry]:
    """What can be asked of the model, and what lowers it."""
    decode = {"decode": lower_decode, "mixed": lower_decode} if spec.layers else {}
    return decode | ({"encode": lower_encode} if spec.encoder else {})


def lower_decode(c: Lowering) -> None:
    """Adds the decoder's ops: embeddings, layers, logits of the output rows and the draw."""
    c, spec = c.stack("dec."), c.spec
    x = embed(c)  # [T, C]
    if spec.n_streams > 1:
        c, x = replace(c, layer_inputs=streams.layer_inputs(c, x, TOKENS)), streams.open_streams(c, x)
    for i in range(len(spec.layers)):
        x = apply_layer(c, x, i)
    _head(c, streams.close_streams(c, x) if spec.n_streams > 1 else x)


def _head(c: Lowering, x: View) -> None:
    """Logits of the output rows, and the draw."""
    out = c.plan.gather_rows(c.norm(x, "output_norm"))  # [O, C]
    logits = c.linear(out, "token_embd" if c.spec.is_tied else "output", "logits")  # [O, V]
    c.plan.scale(logits, c.spec.logit_scale)
    c.plan.softcap(logits, c.spec.logit_softcap)
    c.plan.sample(logits, TOKENS)


def _state_changes(plan: PlanBuilder) -> None:
    for state in plan.states:
        if state.kind in TABLE_KINDS:
            plan.tables(state.name)
        if state.kind != "ring" and plan.key.capacity.copies:
            plan.copy(state.name)
