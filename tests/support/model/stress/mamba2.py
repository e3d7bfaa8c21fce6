"""A mamba2 hybrid in the form of granitehybrid and nemotron_h: mamba2 and attention layers, with and without
rope, a gated FFN after each, and Granite's scales. The oracle uses the quadratic form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.model.stress import plain
from tests.support.model.stress.shape import Mutation, Shape, filled, random_ids, without
from tests.support.model.stress_runs import bypass, edit_ops, random_weights, reads, with_attr

from camelid.model.spec import LayerSpec, ModelSpec, RopeSpec, SsmSpec
from camelid.plan.plan import Op, Plan

C, F, V, T = 48, 80, 96, 40
HEADS, KV_HEADS, D = 4, 2, 16
SSM = SsmSpec(n_heads=8, head_dim=8, n_groups=2, state_size=16)
MAMBA = LayerSpec(mixer="mamba2", state_group="recurrent")
LAYERS = (MAMBA, LayerSpec(), MAMBA, LayerSpec(rope=""))
SCALES: dict[str, Any] = {
    "embedding_scale": 3.0,
    "residual_scale": 0.6,
    "logit_scale": 0.5,
    "attention_scale": 0.2,
}
SPEC = ModelSpec(
    arch="stress", name="mamba2", n_layers=4, n_heads=HEADS, n_kv_heads=KV_HEADS, head_dim=D, hidden_size=C,
    ffn_size=F, vocab_size=V, context_length=64, norm_eps=1e-5, layers=LAYERS, is_tied=True, ssm=SSM,
    ropes={"rope": RopeSpec(theta=100.0, dim=D, style="neox")}, **SCALES,
)  # fmt: skip
INNER, CONV, GROUP = 64, 64 + 2 * 32, 32


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd": (V, C), "output_norm": (C,)}
    for i, layer in enumerate(LAYERS):
        found |= {f"blk.{i}.{name}": shape for name, shape in (MIXERS[layer.mixer] | COMMON).items()}
    return found


COMMON = {"attn_norm": (C,), "ffn_norm": (C,), "ffn_gate": (F, C), "ffn_up": (F, C), "ffn_down": (C, F)}
MIXERS: dict[str, dict[str, tuple[int, ...]]] = {
    "attention": {"attn_q": (HEADS * D, C), "attn_k": (KV_HEADS * D, C), "attn_v": (KV_HEADS * D, C),
                  "attn_output": (C, HEADS * D)},
    "mamba2": {"ssm_in": (INNER + CONV + 8, C), "ssm_conv1d": (CONV, 4), "ssm_conv1d.bias": (CONV,),
               "ssm_dt.bias": (8,), "ssm_a": (8, 1), "ssm_d": (8, 1), "ssm_norm": (2, GROUP),
               "ssm_out": (C, INNER)},
}  # fmt: skip


def make_weights() -> dict[str, Any]:
    """Random weights, with decays from slow to fast, as in trained models."""
    weights = random_weights(shapes(), 7)
    for i in (0, 2):
        weights[f"blk.{i}.ssm_a"] = -np.exp(np.linspace(-2.0, 1.0, 8, dtype=np.float32))[:, None]
    return weights


WEIGHTS = make_weights()
TOKEN_IDS = random_ids(8, T, V)


def oracle() -> Any:  # [T, V]
    w = {name: value.astype(np.float64) for name, value in WEIGHTS.items()}

    def mix(h: Any, i: int) -> Any:
        return 0.6 * (
            mamba2(w, h, f"blk.{i}.") if i in (0, 2) else attention(w, h, f"blk.{i}.", turns=i == 1)
        )

    def feed(h: Any, i: int) -> Any:
        return 0.6 * plain.swiglu(h, *(w[f"blk.{i}.ffn_{name}"] for name in ("gate", "up", "down")))

    scaled = {**w, "token_embd": 3.0 * w["token_embd"]}
    return 0.5 * plain.transformer(scaled, TOKEN_IDS, 4, mix=mix, feed=feed) @ w["token_embd"].T


def mamba2(w: plain.Weights, h: Any, blk: str) -> Any:
    """State space duality (arXiv 2405.21060, section 3): y = (L * C B^T) (dt x), L the decay from s to t."""
    z, xbc, dt = np.split(h @ w[blk + "ssm_in"].T, [INNER, INNER + CONV], 1)
    xbc = plain.silu(plain.causal_conv(xbc, w[blk + "ssm_conv1d"], w[blk + "ssm_conv1d.bias"]))
    x, b, c = np.split(xbc, [INNER, INNER + 32], 1)
    dt = plain.softplus(dt + w[blk + "ssm_dt.bias"])
    heads = [
        ssd_head(x[:, 8 * n : 8 * n + 8], b[:, group], c[:, group], dt[:, n], w[blk + "ssm_a"][n])
        + w[blk + "ssm_d"][n] * x[:, 8 * n : 8 * n + 8]
        for n in range(8)
        for group in [slice(16 * (n // 4), 16 * (n // 4) + 16)]
    ]
    y = np.concatenate(heads, 1) * plain.silu(z)
    return plain.rms(y.reshape(-1, 2, GROUP), w[blk + "ssm_norm"]).reshape(-1, INNER) @ w[blk + "ssm_out"].T


def ssd_head(x: Any, b: Any, c: Any, dt: Any, a: Any) -> Any:
    past = np.cumsum(dt * a)
    decay = np.tril(np.exp(np.minimum(past[:, None] - past[None], 0.0)))  # [t, s]
    return (decay * (c @ b.T) * dt) @ x


def attention(w: plain.Weights, h: Any, blk: str, *, turns: bool) -> Any:
    q, k, v = ((h @ w[f"{blk}attn_{name}"].T).reshape(len(h), -1, D) for name in "qkv")
    if turns:
        q, k = plain.rope(q, D, 100.0), plain.rope(k, D, 100.0)
    return plain.attend(q, k, v, 0.2) @ w[blk + "attn_output"].T


def no_gate(plan: Plan) -> Plan:
    return bypass(plan, lambda op: op.name == "glu" and reads(op, "up", "scan"), "up")


def b_for_c(plan: Plan) -> Plan:
    swap = {"b": "c", "c": "b"}

    def change(op: Op) -> Op:
        taken = tuple((r, op.view(swap[r]) if r in swap else o) for r, o in op.operands)
        return replace(op, operands=taken) if op.name == "scan_mamba2" else op

    return edit_ops(plan, change)


MUTATIONS = {
    "no D skip": Mutation(weights=filled("ssm_d", 0.0)),
    "no dt bias": Mutation(weights=filled("ssm_dt.bias", 0.0)),
    "no decay": Mutation(weights=filled("ssm_a", 0.0)),
    "no conv bias": Mutation(weights=without("ssm_conv1d.bias")),
    "gate off": Mutation(edit=no_gate),
    "one norm for all groups": Mutation(edit=lambda plan: with_attr(plan, "norm", size=0)),
    "B and C swapped": Mutation(edit=b_for_c),
    "conv without SiLU": Mutation(edit=lambda plan: with_attr(plan, "conv1d", act="none")),
    "rope everywhere": Mutation(spec={"layers": (MAMBA, LayerSpec()) * 2}),
    "rope nowhere": Mutation(spec={"layers": (MAMBA, LayerSpec(rope="")) * 2}),
    **{name: Mutation(spec={name: 1.0}) for name in SCALES},
}
MAMBA2 = Shape(spec=SPEC, weights=WEIGHTS, token_ids=TOKEN_IDS, oracle=oracle, mutations=MUTATIONS)
