"""Tensor parallelism (Megatron-LM, arXiv 1909.08053): a model's shares for several devices.

A device has whole heads with their keys and values, and a part of each MLP's inner columns: rows of the
matrices that enter attention and MLP, columns of those that leave. `all_reduce` adds what the devices made.
Embedding, norms of the stream, router and head are on every device, so each draws the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd

from camelid.errors import RequestError
from camelid.formats.quants import quant
from camelid.model.arch import Model
from camelid.model.kv_types import check_columns
from camelid.model.relative import alibi_weights
from camelid.model.spec import ModelSpec
from camelid.plan.plan import StateSpec
from camelid.plan.weights import Weight, cut_cols, cut_each, cut_rows

FIELD = "tensor_parallel"
# Tensors of a layer by the part that a device has; the others are whole on every device.
ROWS = frozenset({
    "attn_q", "attn_k", "attn_v", "attn_gate", "attn_sinks",
    "ffn_gate", "ffn_up", "ffn_gate_shexp", "ffn_up_shexp",
    "vis_attn_q", "vis_attn_k", "vis_attn_v", "vis_gate", "vis_up",
})  # fmt: skip
ROWS_OF_EACH = frozenset({"ffn_gate_exps", "ffn_up_exps", "ffn_gate_chexps", "ffn_up_chexps"})
COLS = frozenset({
    "attn_output", "ffn_down", "ffn_down_shexp", "ffn_down_exps", "ffn_down_chexps",
    "vis_attn_output", "vis_down",
})  # fmt: skip
MIXERS, MLPS = {"attention"}, {"", "glu", "mlp", "experts"}
RESIDUALS = {"sequential", "parallel", "post", "early_router", "early_experts"}
# Gains of one head [D], of each head [heads, D], or of all heads together [heads * D].
HEAD_NORMS = frozenset({"attn_q_norm", "attn_k_norm"})
SUB_NORMS = frozenset({"attn_sub_norm", "ffn_sub_norm"})  # of all heads, of all inner columns
SHARED_STATES = frozenset({"paged", "window"})


def shares(model: Model, n: int) -> list[Model]:
    """The model's shares for n devices. Raises RequestError for a model that cannot be divided so."""
    _check(model, n)
    spec = _share_spec(model.spec, n)
    return [Model(spec, dict(_share_weights(model, rank, n))) for rank in range(n)]


def share_states(states: Sequence[StateSpec], n: int) -> tuple[StateSpec, ...]:
    """The state groups of one of n devices: each has its heads of every row.

    Raises RequestError if the heads are no whole blocks of the KV cache's type.
    """
    return tuple(_share_state(state, n) if state.kind in SHARED_STATES else state for state in states)


def _share_state(state: StateSpec, n: int) -> StateSpec:
    tensors = tuple((name, cols // n) for name, cols in state.tensors)
    return check_columns(replace(state, tensors=tensors), state.kv_type)


def _check(model: Model, n: int) -> None:
    reason = _reason(model)
    if reason:
        raise RequestError(f"{FIELD} is {n}, but {reason}; omit it", field=FIELD)
    most = _most(model)
    fitting = [i for i in range(1, most + 1) if most % i == 0]
    if n not in fitting:
        raise RequestError(
            f"{FIELD} is {n}, but heads and blocks of weights of {model.spec.name} do not divide by it; "
            f"possible numbers: {', '.join(map(str, fitting))}",
            field=FIELD,
        )


def _reason(model: Model) -> str:
    """The reason why this kind of model runs on one device, "" if it can be divided."""
    spec = model.spec
    if spec.encoder or not spec.layers:
        return "a model with an encoder runs on one device"
    for layer in spec.layers:
        if layer.n_heads or layer.ffn_size or layer.head_dim:
            return f"{spec.name} has layers of different sizes, which run on one device"
        for kind, known in ((layer.mixer, MIXERS), (layer.mlp, MLPS), (layer.residual, RESIDUALS)):
            if kind not in known:
                return f"{spec.name} has layers of kind {kind!r}, which run on one device"
    if spec.n_kv_heads == 1:
        return f"{spec.name} has one head of keys and values for all queries, which runs on one device"
    for name, weight in model.weights.items():
        if _kind(name) in HEAD_NORMS and weight.cols != spec.head_dim:
            return f"{spec.name} norms all heads together ({name}), which one device does"
        if _kind(name) in SUB_NORMS:
            return f"{spec.name} norms whole rows inside a block ({name}), which one device does"
    return ""


def _most(model: Model) -> int:
    """The number of devices that each have the least whole share; its divisors are possible too."""
    spec = model.spec
    found = gcd(spec.n_heads, spec.n_kv_heads)
    for name, weight in model.weights.items():
        if _kind(name) in COLS and not name.endswith(".bias"):
            found = gcd(found, weight.cols // quant(weight.type).block)
    return found


def _share_spec(spec: ModelSpec, n: int) -> ModelSpec:
    experts = spec.experts
    if experts:
        experts = replace(experts, ffn_size=experts.ffn_size // n, shared_size=experts.shared_size // n)
    return replace(
        spec,
        n_heads=spec.n_heads // n,
        n_kv_heads=spec.n_kv_heads // n,
        ffn_size=spec.ffn_size // n,
        experts=experts,
        max_alibi_bias=0.0,  # the bias of a device's heads is among its weights
        attention_scale=spec.attention_scale or spec.head_dim**-0.5,
        tensor_parallel=n,
    )


def _share_weights(model: Model, rank: int, n: int) -> Iterator[tuple[str, Weight]]:
    """A device's weights. The bias of a sum is on device 0 alone."""
    for name, weight in model.weights.items():
        is_bias, kind = name.endswith(".bias"), _kind(name)
        if kind in COLS and is_bias:
            if rank == 0:
                yield name, weight
        else:
            yield name, _share(weight, kind, rank, n, is_bias=is_bias)
    size = model.spec.n_heads // n
    for name, weight in alibi_weights(model.spec).items():
        yield name, cut_cols(weight, name, rank * size, size)


def _share(weight: Weight, kind: str, rank: int, n: int, *, is_bias: bool) -> Weight:
    if kind in COLS or (kind in ROWS_OF_EACH and is_bias):
        size = weight.cols // n
        return cut_cols(weight, weight.name, rank * size, size)
    if kind in ROWS_OF_EACH:
        size = weight.shape[1] // n
        return cut_each(weight, weight.name, rank * size, size)
    if kind in ROWS or (kind in HEAD_NORMS and len(weight.shape) > 1):
        size = weight.shape[0] // n
        return cut_rows(weight, weight.name, rank * size, size)
    return weight


def _kind(name: str) -> str:
    """A layer's tensor without its layer and `.bias`; other tensors have no such name."""
    return name.removesuffix(".bias").rpartition(".")[2] if name.startswith("blk.") else ""
