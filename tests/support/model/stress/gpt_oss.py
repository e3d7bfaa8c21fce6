"""gpt-oss (arXiv 2508.10925): a learned sink in every head's softmax, windows in every other layer, YaRN with
an unrounded ramp, biases everywhere, experts in MXFP4 with a clamped SwiGLU.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from tests.support.model.stress import plain
from tests.support.model.stress.shape import Mutation, Shape, random_ids, without
from tests.support.model.stress_runs import random_weights

from camelid.model.spec import ExpertsSpec, LayerSpec, ModelSpec, RopeScaling, RopeSpec
from camelid.plan.weights import INLINE, Part, Weight

C, V, T, WINDOW = 64, 96, 40, 8
H, KV, D = 6, 2, 16
E, USED, X = 6, 3, 32
THETA, FACTOR, ORIGINAL, FAST, SLOW = 100.0, 4.0, 16, 2.0, 0.1
MAGNITUDE = float(0.1 * np.log(FACTOR) + 1.0)
BLOCK, BLOCK_BYTES = 32, 17

SCALING = RopeScaling(
    kind="yarn", factor=FACTOR, original_context=ORIGINAL, beta_fast=FAST, beta_slow=SLOW,
    magnitude=MAGNITUDE, is_rounded=False,
)  # fmt: skip
ROPE = RopeSpec(theta=THETA, dim=D, style="neox", scaling=SCALING)
FULL = LayerSpec(mlp="experts", act="swiglu_oai")
LOCAL = replace(FULL, state_group="window", window=WINDOW)
EXPERTS = ExpertsSpec(n_experts=E, n_used=USED, ffn_size=X, gate="topk_softmax", normalize=False)
SPEC = ModelSpec(
    arch="stress", name="gpt-oss", n_layers=4, n_heads=H, n_kv_heads=KV, head_dim=D, hidden_size=C,
    ffn_size=X, vocab_size=V, context_length=64, norm_eps=1e-5, layers=(LOCAL, FULL) * 2, is_tied=False,
    experts=EXPERTS, ropes={"rope": ROPE},
)  # fmt: skip

LAYER = {
    "attn_norm": (C,), "attn_q": (H * D, C), "attn_q.bias": (H * D,), "attn_k": (KV * D, C),
    "attn_k.bias": (KV * D,), "attn_v": (KV * D, C), "attn_v.bias": (KV * D,), "attn_output": (C, H * D),
    "attn_output.bias": (C,), "attn_sinks": (H,), "post_attention_norm": (C,), "ffn_gate_inp": (E, C),
    "ffn_gate_inp.bias": (E,), "ffn_gate_exps.bias": (E, X), "ffn_up_exps.bias": (E, X),
    "ffn_down_exps.bias": (E, C),
}  # fmt: skip
# Stacked matrices and the exponent of most blocks: large enough that gates and ups reach the clamp.
STACKS = {"ffn_gate_exps": (E, X, C, 125), "ffn_up_exps": (E, X, C, 125), "ffn_down_exps": (E, C, X, 120)}


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd": (V, C), "output_norm": (C,), "output": (V, C)}
    return found | {f"blk.{i}.{name}": shape for i in range(4) for name, shape in LAYER.items()}


def random_blocks() -> dict[str, Any]:
    """uint8 [E, out, row_bytes]: exponents near the given one, any nibbles."""
    rng = np.random.default_rng(31)

    def blocks(n_experts: int, n_out: int, n_in: int, exponent: int) -> Any:
        raw = rng.integers(0, 256, (n_experts, n_out, n_in // BLOCK, BLOCK_BYTES), dtype=np.uint8)
        raw[..., 0] = rng.integers(exponent - 1, exponent + 2, raw.shape[:-1])
        return raw.reshape(n_experts, n_out, -1)

    return {f"blk.{i}.{name}": blocks(*stack) for i in range(4) for name, stack in STACKS.items()}


def stored(name: str, raw: Any) -> Weight:
    shape = (*raw.shape[:2], raw.shape[2] // BLOCK_BYTES * BLOCK)
    part = Part(INLINE, 0, raw.nbytes, base64.b64encode(raw.tobytes()).decode("ascii"))
    return Weight(name=name, type="mxfp4", shape=shape, parts=(part,))


NUMBERS, BLOCKS = random_weights(shapes(), 32), random_blocks()
TOKEN_IDS = random_ids(33, T, V)


def weights() -> dict[str, Any]:
    """Weights by block name: post_attention_norm of the file format is the norm before the experts."""
    named = {name.replace("post_attention_norm", "ffn_norm"): value for name, value in NUMBERS.items()}
    return named | {name: stored(name, raw) for name, raw in BLOCKS.items()}


def oracle(limit: float = 7.0) -> Any:  # [T, V]
    w = {name: value.astype(np.float64) for name, value in NUMBERS.items()}
    w |= {
        name: dequantize(raw, GGMLQuantizationType.MXFP4).astype(np.float64) for name, raw in BLOCKS.items()
    }
    x = w["token_embd"][TOKEN_IDS]
    for i in range(4):
        blk = f"blk.{i}."
        x = x + attention(w, plain.rms(x, w[blk + "attn_norm"]), blk, 0 if i % 2 else WINDOW)
        x = x + mixture(w, plain.rms(x, w[blk + "post_attention_norm"]), blk, limit)
    return plain.rms(x, w["output_norm"]) @ w["output"].T


def linear(w: plain.Weights, h: Any, name: str) -> Any:
    return h @ w[name].T + w[f"{name}.bias"]


def attention(w: plain.Weights, h: Any, blk: str, window: int) -> Any:
    q, k, v = (linear(w, h, f"{blk}attn_{name}").reshape(T, -1, D) for name in "qkv")
    freqs = plain.yarn(D, THETA, factor=FACTOR, original=ORIGINAL, fast=FAST, slow=SLOW, is_rounded=False)
    q, k = plain.turn(q, freqs, magnitude=MAGNITUDE), plain.turn(k, freqs, magnitude=MAGNITUDE)
    y = plain.attend(q, k, v, D**-0.5, window=window, sinks=w[blk + "attn_sinks"])
    return linear(w, y, blk + "attn_output")


def mixture(w: plain.Weights, h: Any, blk: str, limit: float) -> Any:
    """Softmax over the selected logits alone; gate at most `limit`, up within ±limit and raised by 1."""
    y = np.zeros_like(h)
    for t, logits in enumerate(linear(w, h, blk + "ffn_gate_inp")):
        chosen = np.argsort(-logits)[:USED]
        for expert, share in zip(chosen, plain.softmax(logits[chosen]), strict=True):
            gate, up = (expert_linear(w, h[t], f"{blk}ffn_{name}_exps", expert) for name in ("gate", "up"))
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
            inner = gate * plain.sigmoid(1.702 * gate) * (up + 1)
            y[t] += share * expert_linear(w, inner, blk + "ffn_down_exps", expert)
    return y


def expert_linear(w: plain.Weights, h: Any, name: str, expert: int) -> Any:
    return w[name][expert] @ h + w[f"{name}.bias"][expert]


def _layers(local: LayerSpec, full: LayerSpec) -> Mutation:
    return Mutation(spec={"layers": (local, full) * 2})


def _rope(**changes: Any) -> Mutation:
    return Mutation(spec={"ropes": {"rope": replace(ROPE, scaling=replace(SCALING, **changes))}})


def _after_attention(values: Any) -> Any:
    """The norm at the usual place of post_attention_norm."""
    return {name.replace("ffn_norm", "post_attention_norm"): value for name, value in values.items()}


BIASED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps",
          "ffn_down_exps")  # fmt: skip
MUTATIONS = {
    "no sinks": Mutation(weights=without("attn_sinks")),
    **{f"no bias of {name}": Mutation(weights=without(f"{name}.bias")) for name in BIASED},
    "window one wider": _layers(replace(LOCAL, window=WINDOW + 1), FULL),
    "windows in the other layers": _layers(FULL, LOCAL),
    "no windows": _layers(FULL, FULL),
    "yarn with rounded ends": _rope(is_rounded=True),
    "yarn of another original context": _rope(original_context=2 * ORIGINAL),
    "no magnitude": _rope(magnitude=1.0),
    "no yarn": Mutation(spec={"ropes": {"rope": replace(ROPE, scaling=None)}}),
    "pairs instead of halves": Mutation(spec={"ropes": {"rope": replace(ROPE, style="norm")}}),
    "softmax over all experts": Mutation(spec={"experts": replace(EXPERTS, gate="softmax")}),
    "plain SwiGLU": _layers(replace(LOCAL, act="silu"), replace(FULL, act="silu")),
    "norm after attention": Mutation(weights=_after_attention),
}
GPT_OSS = Shape(spec=SPEC, weights=weights(), token_ids=TOKEN_IDS, oracle=oracle, mutations=MUTATIONS)
