"""Gemma 3n: layers carry four streams (AltUp, arXiv 2301.13310), a learned residual of low rank (LAuReL,
arXiv 2411.07501) and a per-layer embedding of the token; the last layers share keys and values of earlier
layers, four layers of five have a window, gates of early layers are sparse.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from tests.support.model.stress import plain
from tests.support.model.stress.shape import Mutation, Shape, changed, filled, random_ids
from tests.support.model.stress_runs import edit_ops, random_weights

from camelid.model.spec import LayerSpec, ModelSpec, RopeSpec

C, F, V, T, WINDOW = 32, 48, 96, 40, 8
H, KV, D = 4, 2, 8
N_LAYERS, N_OWN, N_SPARSE = 10, 5, 4  # layers; layers with keys and values; layers with sparse gates
STREAMS, P, RANK = 4, 6, 5
THETA, LOCAL_THETA, CAP = 1000.0, 10.0, 3.0
CUTOFF = NormalDist().inv_cdf(0.8)


def is_full(i: int) -> bool:
    return i % 5 == 4


def owner(i: int) -> int:
    """The last layer with the same window and keys and values of its own."""
    return i if i < N_OWN else max(n for n in range(N_OWN) if is_full(n) == is_full(i))


def layer(i: int) -> LayerSpec:
    return LayerSpec(
        mlp="sparse_glu" if i < N_SPARSE else "glu",
        residual="altup",
        act="gelu",
        state_group="kv" if is_full(i) else "window",
        window=0 if is_full(i) else WINDOW,
        rope="rope" if is_full(i) else "rope_local",
        kv_layer=-1 if i < N_OWN else owner(i),
    )


LAYERS = tuple(map(layer, range(N_LAYERS)))
ROPE = RopeSpec(theta=THETA, dim=D, style="neox")
ROPES = {"rope": ROPE, "rope_local": replace(ROPE, theta=LOCAL_THETA)}
SPEC = ModelSpec(
    arch="stress", name="gemma3n", n_layers=N_LAYERS, n_heads=H, n_kv_heads=KV, head_dim=D, hidden_size=C,
    ffn_size=F, vocab_size=V, context_length=64, norm_eps=1e-5, layers=LAYERS, is_tied=True, ropes=ROPES,
    attention_scale=1.0, logit_softcap=CAP, embedding_scale=C**0.5, norms_values=True, ffn_cutoff=CUTOFF,
    n_streams=STREAMS,
)  # fmt: skip

MODEL = {
    "token_embd": (V, C), "output_norm": (C,), "per_layer_token_embd": (V, N_LAYERS * P),
    "per_layer_model_proj": (N_LAYERS * P, C), "per_layer_proj_norm": (P,),
    "altup_proj": (STREAMS - 1, C, C), "altup_unembd_proj": (STREAMS - 1, C, C),
}  # fmt: skip
LAYER = {
    "attn_norm": (C,), "attn_q": (H * D, C), "attn_k": (KV * D, C), "attn_v": (KV * D, C),
    "attn_output": (C, H * D), "attn_q_norm": (D,), "attn_k_norm": (D,), "post_attention_norm": (C,),
    "ffn_norm": (C,), "ffn_gate": (F, C), "ffn_up": (F, C), "ffn_down": (C, F), "post_ffw_norm": (C,),
    "inp_gate": (P, C), "proj": (C, P), "post_norm": (C,), "laurel_l": (RANK, C), "laurel_r": (C, RANK),
    "laurel_post_norm": (C,), "altup_router": (STREAMS, C), "altup_router_norm": (C,),
    "altup_predict_coef": (STREAMS**2, STREAMS), "altup_correct_coef": (STREAMS, STREAMS),
    "altup_correct_scale": (C,),
}  # fmt: skip


def make_weights() -> dict[str, Any]:
    """Routers large enough that tanh of a C-th matters, coefficients small enough that streams stay close,
    scores small enough that ten random layers amplify float32's last bit little.
    """
    shapes = MODEL | {f"blk.{i}.{name}": shape for i in range(N_LAYERS) for name, shape in LAYER.items()}
    sizes = {"altup_router": C, "altup_predict_coef": 0.2, "altup_correct_coef": 0.2, "attn_q_norm": 0.5}
    weights = random_weights(shapes, 41)
    return {name: v * np.float32(sizes.get(name.rpartition(".")[2], 1.0)) for name, v in weights.items()}


WEIGHTS, TOKEN_IDS = make_weights(), random_ids(42, T, V)


def oracle() -> Any:  # [T, V]
    w = {name: value.astype(np.float64) for name, value in WEIGHTS.items()}
    x = w["token_embd"][TOKEN_IDS] * C**0.5
    inputs = layer_inputs(w, x)  # [T, layers, P]
    streams = [x, *(as_long(x @ m.T, x) for m in w["altup_proj"])]
    kept: dict[int, Any] = {}
    for i in range(N_LAYERS):
        at = {name: w[f"blk.{i}.{name}"] for name in LAYER}
        streams = run_layer(at, streams, inputs[:, i], i, kept)
    back = zip(streams[1:], w["altup_unembd_proj"], strict=True)
    x = sum((as_long(s @ m.T, streams[0]) for s, m in back), streams[0]) / STREAMS
    return CAP * np.tanh(plain.rms(x, w["output_norm"]) @ w["token_embd"].T / CAP)


def layer_inputs(w: plain.Weights, x: Any) -> Any:
    own = (w["per_layer_token_embd"][TOKEN_IDS] * P**0.5).reshape(T, N_LAYERS, P)
    seen = (x @ w["per_layer_model_proj"].T / C**0.5).reshape(T, N_LAYERS, P)
    return (own + plain.rms(seen, w["per_layer_proj_norm"])) / 2**0.5


def as_long(x: Any, other: Any) -> Any:
    return x * np.linalg.norm(other, axis=-1, keepdims=True) / np.linalg.norm(x, axis=-1, keepdims=True)


def routed(w: plain.Weights, x: Any) -> Any:  # [T, streams]
    return np.tanh(plain.rms(x, w["altup_router_norm"]) / C @ w["altup_router"].T)


def run_layer(w: plain.Weights, streams: list[Any], own: Any, i: int, kept: dict[int, Any]) -> list[Any]:
    """Algorithm 1 of AltUp around one layer: predict all streams, compute on the first, correct all."""
    mixing = (routed(w, streams[0]) @ w["altup_predict_coef"].T).reshape(T, STREAMS, STREAMS)
    old = np.stack(streams, 1)  # [T, streams, C]
    predicted = old + np.einsum("tij,tjc->tic", mixing, old)
    found = compute(w, predicted[:, 0], i, kept)
    shares = 1 + routed(w, found) @ w["altup_correct_coef"].T
    new = predicted + shares[..., None] * (found - predicted[:, 0])[:, None]
    gate = plain.gelu(new[:, 0] * w["altup_correct_scale"] @ w["inp_gate"].T)
    new[:, 1:] += plain.rms(gate * own @ w["proj"].T, w["post_norm"])[:, None]
    return list(new.transpose(1, 0, 2))


def compute(w: plain.Weights, x: Any, i: int, kept: dict[int, Any]) -> Any:
    """The layer's output with the learned residual."""
    h = plain.rms(x, w["attn_norm"])
    laurel = h + plain.rms(h @ w["laurel_l"].T @ w["laurel_r"].T, w["laurel_post_norm"])
    x = x + plain.rms(attention(w, h, i, kept), w["post_attention_norm"])
    x = (x + laurel) / 2**0.5
    return x + plain.rms(feed(w, plain.rms(x, w["ffn_norm"]), i), w["post_ffw_norm"])


def attention(w: plain.Weights, h: Any, i: int, kept: dict[int, Any]) -> Any:
    freqs = plain.frequencies(D, THETA if is_full(i) else LOCAL_THETA)
    q, k, v = ((h @ w[f"attn_{name}"].T).reshape(T, -1, D) for name in "qkv")
    if owner(i) == i:
        kept[i] = plain.turn(plain.rms(k, w["attn_k_norm"]), freqs), plain.rms(v, 1.0)
    q = plain.turn(plain.rms(q, w["attn_q_norm"]), freqs)
    k, v = kept[owner(i)]
    return plain.attend(q, k, v, 1.0, window=0 if is_full(i) else WINDOW) @ w["attn_output"].T


def feed(w: plain.Weights, h: Any, i: int) -> Any:
    """Sparse layers keep the largest fifth of the gates, assuming a normal distribution."""
    gate = h @ w["ffn_gate"].T
    if i < N_SPARSE:
        gate = np.maximum(gate - gate.mean(-1, keepdims=True) - CUTOFF * gate.std(-1, keepdims=True), 0)
    return (plain.gelu(gate) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T


def _layers(**changes: Any) -> Mutation:
    """Changes layers with a window, or layers of the sharing tail."""

    def change(spec: LayerSpec) -> LayerSpec:
        is_meant = all(getattr(spec, name) not in (-1, 0) for name in changes)
        return replace(spec, **changes) if is_meant else spec

    return Mutation(spec={"layers": tuple(map(change, LAYERS))})


def _from_layer(i: int) -> Mutation:
    """The windowed layers of the tail read another layer's keys and values."""
    layers = (replace(spec, kv_layer=i) if spec.kv_layer >= 0 and spec.window else spec for spec in LAYERS)
    return Mutation(spec={"layers": tuple(layers)})


def _zero(ending: str) -> Mutation:
    return Mutation(weights=filled(ending, 0.0))


def _roll(ending: str, n: int, axis: int) -> Mutation:
    return Mutation(weights=changed(lambda _, value: np.roll(value, n, axis), ending))


def _plain_gates(spec: LayerSpec) -> LayerSpec:
    return replace(spec, mlp="glu")


MUTATIONS = {
    "tail with keys and values of its own": _layers(kv_layer=-1),
    "tail reads another layer": _from_layer(N_OWN - 3),
    "window one wider": _layers(window=WINDOW + 1),
    "one theta": Mutation(spec={"ropes": ROPES | {"rope_local": ROPES["rope"]}}),
    "values not normed": Mutation(spec={"norms_values": False}),
    "query norm without gain": Mutation(weights=filled("attn_q_norm", 1.0)),
    "key norm without gain": Mutation(weights=filled("attn_k_norm", 1.0)),
    "scores scaled": Mutation(spec={"attention_scale": 0.0}),
    "no softcap": Mutation(spec={"logit_softcap": 0.0}),
    "gates not sparse": Mutation(spec={"layers": tuple(map(_plain_gates, LAYERS))}),
    "gates less sparse": Mutation(spec={"ffn_cutoff": NormalDist().inv_cdf(0.7)}),
    "no prediction": _zero("altup_predict_coef"),
    "corrections all alike": _zero("altup_correct_coef"),
    "no router": _zero("altup_router"),
    "prediction transposed": Mutation(
        weights=changed(
            lambda _, v: v.reshape(STREAMS, STREAMS, -1).swapaxes(0, 1).reshape(v.shape), "altup_predict_coef"
        )
    ),
    "streams opened in another order": _roll("altup_proj", 1, 0),
    "streams closed in another order": _roll("altup_unembd_proj", 1, 0),
    "streams not as long as the first": Mutation(
        edit=lambda plan: edit_ops(plan, lambda op: None if op.name in ("mul", "length") else op)
    ),
    "correction not scaled": Mutation(weights=filled("altup_correct_scale", 1.0)),
    "no laurel": _zero("laurel_r"),
    "no embeddings for layers": _zero("per_layer_token_embd"),
    "embeddings of the next layer": _roll("per_layer_token_embd", P, 1),
    "nothing of the hidden state in layer inputs": _zero("per_layer_model_proj"),
    "layer inputs not let in": _zero("post_norm"),
}
GEMMA3N = Shape(spec=SPEC, weights=WEIGHTS, token_ids=TOKEN_IDS, oracle=oracle, mutations=MUTATIONS)
