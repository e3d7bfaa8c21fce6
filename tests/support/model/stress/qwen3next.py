"""Qwen3-Next: three gated DeltaNet layers, then attention with an output gate, partial rope and norms per
head; experts with a gated shared expert in every layer. Weights are drawn in the published layout: the oracle
reads its interleaved projections directly, camelid reads them split.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.support.model.stress import plain
from tests.support.model.stress.shape import Mutation, Shape, filled, random_ids, without
from tests.support.model.stress_runs import bypass, edit_ops, random_weights, reads, with_attr

from camelid.model.spec import DeltaSpec, ExpertsSpec, LayerSpec, ModelSpec, RopeSpec
from camelid.plan.plan import Op, Plan

C, V, T, EPS = 48, 96, 40, 1e-5
H, KV, D, TURNED, THETA = 4, 2, 16, 8, 100.0
HV, HK, DV, DK = 6, 2, 16, 12  # value heads, key heads
R = HV // HK
E, USED, X, SHARED = 6, 2, 24, 40
KEYS, VALUES = HK * DK, HV * DV
DELTA = LayerSpec(mixer="delta", mlp="experts", state_group="recurrent")
LAYERS = (DELTA, DELTA, DELTA, LayerSpec(mlp="experts"))
SPEC = ModelSpec(
    arch="stress", name="qwen3next", n_layers=4, n_heads=H, n_kv_heads=KV, head_dim=D, hidden_size=C,
    ffn_size=X, vocab_size=V, context_length=64, norm_eps=EPS, layers=LAYERS, is_tied=False,
    ropes={"rope": RopeSpec(theta=THETA, dim=TURNED, style="neox")},
    experts=ExpertsSpec(n_experts=E, n_used=USED, ffn_size=X, shared_size=SHARED),
    delta=DeltaSpec(n_heads=HV, value_dim=DV, n_key_heads=HK, key_dim=DK),
)  # fmt: skip
EVERY: dict[str, tuple[int, ...]] = {
    "attn_norm": (C,), "ffn_norm": (C,), "ffn_gate_inp": (E, C), "ffn_gate_exps": (E, X, C),
    "ffn_up_exps": (E, X, C), "ffn_down_exps": (E, C, X), "ffn_gate_shexp": (SHARED, C),
    "ffn_up_shexp": (SHARED, C), "ffn_down_shexp": (C, SHARED), "ffn_gate_inp_shexp": (1, C),
}  # fmt: skip
MIXERS: dict[str, dict[str, tuple[int, ...]]] = {
    "attention": {"q_and_gate": (H * 2 * D, C), "attn_k": (KV * D, C), "attn_v": (KV * D, C),
                  "attn_output": (C, H * D), "attn_q_norm": (D,), "attn_k_norm": (D,)},
    "delta": {"qkvz": (HK * (2 * DK + 2 * R * DV), C), "ba": (HK * 2 * R, C), "ssm_dt.bias": (HV,),
              "ssm_conv1d": (2 * KEYS + VALUES, 4), "ssm_a": (HV,), "ssm_norm": (DV,),
              "ssm_out": (C, VALUES)},
}  # fmt: skip
# An interleaved projection: row groups repeat, each split into parts of these names and sizes.
INTERLEAVED = {
    "q_and_gate": (H, {"attn_q": D, "attn_gate": D}),
    "qkvz": (HK, {"q": DK, "k": DK, "v": R * DV, "attn_gate": R * DV}),
    "ba": (HK, {"ssm_beta": R, "ssm_alpha": R}),
}


def draw() -> dict[str, Any]:
    """Random weights, with decays from slow to fast, as in trained models."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (V, C), "output": (V, C), "output_norm": (C,)}
    for i, layer in enumerate(LAYERS):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in (MIXERS[layer.mixer] | EVERY).items()}
    weights = random_weights(shapes, 11)
    for i in range(3):
        weights[f"blk.{i}.ssm_a"] = -np.exp(np.linspace(-2.0, 1.0, HV, dtype=np.float32))
    return weights


def apart(published: dict[str, Any]) -> dict[str, Any]:
    """The published weights under GGUF names, interleaved projections split."""
    found: dict[str, Any] = {}
    for name, value in published.items():
        blk, _, last = name.rpartition(".")
        parts = cut(value, *INTERLEAVED[last]) if last in INTERLEAVED else {last: value}
        if "v" in parts:
            parts["attn_qkv"] = np.concatenate([parts.pop(x) for x in "qkv"])
        found |= {f"{blk}.{part}" if blk else part: a for part, a in parts.items()}
    return found


def cut(value: Any, n: int, sizes: dict[str, int]) -> dict[str, Any]:
    groups = value.reshape(n, sum(sizes.values()), -1)
    ends = np.cumsum(list(sizes.values()))
    pieces = np.split(groups, ends[:-1], axis=1)
    return {name: piece.reshape(-1, value.shape[1]) for name, piece in zip(sizes, pieces, strict=True)}


PUBLISHED = draw()
WEIGHTS = apart(PUBLISHED)
TOKEN_IDS = random_ids(12, T, V)


def oracle() -> Any:  # [T, V]
    w = {name: value.astype(np.float64) for name, value in PUBLISHED.items()}

    def mix(h: Any, i: int) -> Any:
        return (delta_net if i < 3 else gated_attention)(w, h, f"blk.{i}.")

    def feed(h: Any, i: int) -> Any:
        return experts(w, h, f"blk.{i}.ffn_")

    return plain.transformer(w, TOKEN_IDS, 4, mix=mix, feed=feed) @ w["output"].T


def delta_net(w: plain.Weights, h: Any, blk: str) -> Any:
    """Equation 10 of arXiv 2412.06464: S = S (decay (I - beta k k^T)) + beta v k^T, head by head."""
    groups = (h @ w[blk + "qkvz"].T).reshape(T, HK, -1)
    q, k, v, z = np.split(groups, np.cumsum([DK, DK, R * DV]), -1)
    flat = np.concatenate([part.reshape(T, -1) for part in (q, k, v)], 1)
    q, k, v = np.split(plain.silu(plain.causal_conv(flat, w[blk + "ssm_conv1d"])), [KEYS, 2 * KEYS], 1)
    b, a = np.split((h @ w[blk + "ba"].T).reshape(T, HK, -1), 2, -1)
    beta = plain.sigmoid(b.reshape(T, HV))
    decay = np.exp(w[blk + "ssm_a"] * plain.softplus(a.reshape(T, HV) + w[blk + "ssm_dt.bias"]))
    q, k = (plain.unit(x.reshape(T, HK, DK)) for x in (q, k))
    v, z = v.reshape(T, HV, DV), z.reshape(T, HV, DV)
    heads = [delta_head(q[:, n // R], k[:, n // R], v[:, n], decay[:, n], beta[:, n]) for n in range(HV)]
    y = plain.rms(np.stack(heads, 1), w[blk + "ssm_norm"]) * plain.silu(z)
    return y.reshape(T, -1) @ w[blk + "ssm_out"].T


def delta_head(q: Any, k: Any, v: Any, decay: Any, beta: Any) -> Any:  # [T, V]
    s, rows = np.zeros((DV, DK)), []
    for t in range(T):
        s = s @ (decay[t] * (np.eye(DK) - beta[t] * np.outer(k[t], k[t]))) + beta[t] * np.outer(v[t], k[t])
        rows.append(s @ q[t] / np.sqrt(DK))
    return np.stack(rows)


def gated_attention(w: plain.Weights, h: Any, blk: str) -> Any:
    q, gate = np.split((h @ w[blk + "q_and_gate"].T).reshape(T, H, 2 * D), 2, -1)
    k, v = ((h @ w[blk + name].T).reshape(T, KV, D) for name in ("attn_k", "attn_v"))
    q, k = plain.rms(q, w[blk + "attn_q_norm"]), plain.rms(k, w[blk + "attn_k_norm"])
    y = plain.attend(plain.rope(q, TURNED, THETA), plain.rope(k, TURNED, THETA), v, D**-0.5)
    return (y * plain.sigmoid(gate.reshape(T, -1))) @ w[blk + "attn_output"].T


def experts(w: plain.Weights, h: Any, blk: str) -> Any:
    """Probabilities of the selected experts are divided by their sum; the shared expert has its own gate."""
    probs = plain.softmax(h @ w[blk + "gate_inp"].T)
    kept = probs >= np.sort(probs, 1)[:, -USED, None]
    shares = probs * kept / (probs * kept).sum(1, keepdims=True)
    each = [
        plain.swiglu(h, *(w[f"{blk}{name}_exps"][e] for name in ("gate", "up", "down"))) for e in range(E)
    ]
    shared = plain.swiglu(h, *(w[f"{blk}{name}_shexp"] for name in ("gate", "up", "down")))
    return np.einsum("te,etc->tc", shares, each) + plain.sigmoid(h @ w[blk + "gate_inp_shexp"].T) * shared


def no_unit_keys(plan: Plan) -> Plan:
    return bypass(plan, lambda op: op.name == "norm" and op.word("kind") == "l2" and is_key(op), "x")


def no_unit_queries(plan: Plan) -> Plan:
    return bypass(plan, lambda op: op.name == "norm" and op.word("kind") == "l2" and not is_key(op), "x")


def is_key(op: Op) -> bool:
    return op.view("x").offset == KEYS


def gate_off(plan: Plan) -> Plan:
    return bypass(plan, lambda op: op.name == "glu" and reads(op, "gate", "z"), "up")


def short_norm(plan: Plan) -> Plan:
    """Values of length 1 before the scan, in place of root mean square 1."""
    return with_attr(plan, "norm", where=lambda op: reads(op, "x", "scan"), kind="l2")


def raw_beta(plan: Plan) -> Plan:
    return edit_ops(plan, lambda op: None if op.name == "unary" and reads(op, "x", "beta") else op)


MUTATIONS = {
    "beta constant": Mutation(weights=filled("ssm_beta", 0.0)),
    "decay off": Mutation(weights=filled("ssm_a", 0.0)),
    "decay the same for every row": Mutation(weights=filled("ssm_alpha", 0.0)),
    "dt bias off": Mutation(weights=filled("ssm_dt.bias", 0.0)),
    "shared gate off": Mutation(weights=without("ffn_gate_inp_shexp")),
    "shared expert off": Mutation(weights=filled("ffn_down_shexp", 0.0)),
    "attention's gate off": Mutation(weights=without("blk.3.attn_gate")),
    "query norm off": Mutation(weights=without("attn_q_norm")),
    "key norm off": Mutation(weights=without("attn_k_norm")),
    "keys as long as they are": Mutation(edit=no_unit_keys),
    "queries as long as they are": Mutation(edit=no_unit_queries),
    "gate off": Mutation(edit=gate_off),
    "another norm of what was scanned": Mutation(edit=short_norm),
    "beta without sigmoid": Mutation(edit=raw_beta),
    "conv without SiLU": Mutation(edit=lambda plan: with_attr(plan, "conv1d", act="none")),
    "shares not normalized": Mutation(edit=lambda plan: with_attr(plan, "router", normalize=0)),
    "rope over whole heads": Mutation(edit=lambda plan: with_attr(plan, "rope", offset=D - TURNED)),
}
QWEN3NEXT = Shape(spec=SPEC, weights=WEIGHTS, token_ids=TOKEN_IDS, oracle=oracle, mutations=MUTATIONS)
