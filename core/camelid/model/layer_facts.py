"""From metadata to layers: of each its mixer, its feed-forward block, its window and its rotation."""

from __future__ import annotations

from typing import TypeAlias

from camelid.model.arch import Arch
from camelid.model.getters import Facts
from camelid.model.lowering import RECURRENT
from camelid.model.spec import LayerSpec

LOCAL, GLOBAL = "rope_local", "rope"
ACTS = ("silu", "gelu", "gelu_erf", "relu", "relu2")
Kind: TypeAlias = tuple[str, str, bool, bool]  # mixer, feed-forward block, has a window, rotates


def read_layers(facts: Facts, arch: Arch, n_layers: int, *, has_experts: bool) -> tuple[LayerSpec, ...]:
    """All layers at once: a list of the file is read once, not once a layer."""
    window = facts.count("attention.sliding_window", arch.window, least=0)
    windowed = _windowed(facts, arch, n_layers) if window else [False] * n_layers
    mlps = _mlps(facts, arch, n_layers, has_experts=has_experts)
    mixers, turned = _mixers(facts, arch, n_layers), _turned(facts, arch, n_layers)
    kinds = list(zip(mixers, mlps, windowed, turned, strict=True))
    act = _act(facts, arch)
    made = {kind: _layer(arch, kind, act, window) for kind in {*kinds}}
    return tuple(made[kind] for kind in kinds)


def _layer(arch: Arch, kind: Kind, act: str, window: int) -> LayerSpec:
    mixer, mlp, is_local, is_turned = kind
    if mixer != arch.mixers[0]:
        return LayerSpec(
            mixer=mixer, mlp=mlp, act=act, residual=arch.residual, state_group=RECURRENT, rope=""
        )
    return LayerSpec(
        mixer=mixer,
        mlp=mlp,
        act=act,
        residual=arch.residual,
        state_group="window" if is_local else "kv",
        window=window if is_local else 0,
        rope=_rope_name(arch, is_local) if is_turned else "",
    )


def _mixers(facts: Facts, arch: Arch, n_layers: int) -> list[str]:
    """The row's first mixer for layers with keys and values, its second for the others."""
    first, *others = arch.mixers
    if not others:
        return [first] * n_layers
    every = facts.count("full_attention_interval", arch.full_attention_interval, least=0)
    if every:
        return [others[0] if is_recurrent else first for is_recurrent in all_but(every, n_layers)]
    counts = facts.counts("attention.head_count_kv", n_layers, 1)
    return [first if n_kv_heads else others[0] for n_kv_heads in counts]


def _mlps(facts: Facts, arch: Arch, n_layers: int, *, has_experts: bool) -> list[str]:
    """Experts, if any, from layer `leading_dense_block_count` on."""
    first = facts.count("leading_dense_block_count", 0, least=0) if has_experts else n_layers
    return ["experts" if i >= first else arch.mlp for i in range(n_layers)]


def _act(facts: Facts, arch: Arch) -> str:
    act = facts.gguf.get(facts.key("hidden_activation"), str, default=arch.act)
    if act not in ACTS:
        facts.fail("hidden_activation", f"is {act!r}; known: {', '.join(ACTS)}")
    return act


def _windowed(facts: Facts, arch: Arch, n_layers: int) -> list[bool]:
    """True for layers that see a window only."""
    if facts.is_list("attention.sliding_window_pattern"):
        return facts.flags("attention.sliding_window_pattern", n_layers)
    return all_but(facts.count("attention.sliding_window_pattern", arch.window_pattern, least=0), n_layers)


def _turned(facts: Facts, arch: Arch, n_layers: int) -> list[bool]:
    """True for layers that rotate, if the architecture does."""
    if arch.has_rope_switch and not facts.flag("rope.scaling.finetuned", default=True):
        return [False] * n_layers
    if facts.has("rope.layers"):
        return facts.flags("rope.layers", n_layers)
    return all_but(arch.nope_every, n_layers)


def all_but(every: int, n_layers: int) -> list[bool]:
    """False for every nth layer; 0: for none."""
    return [not every or (i + 1) % every != 0 for i in range(n_layers)]


def _rope_name(arch: Arch, is_local: bool) -> str:
    if not arch.rope_style:
        return ""
    return LOCAL if is_local and arch.has_local_rope else GLOBAL
