"""BERT (arXiv 1810.04805): an encoder alone. Learned positions and token types, post-norms, biases
everywhere, bidirectional attention; embeddings pooled as in sentence encoders (arXiv 1908.10084).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.model.stress import plain
from tests.support.model.stress.shape import Mutation, Values, filled, random_ids, without
from tests.support.model.stress_encoder import Request
from tests.support.model.stress_runs import Edit, edit_ops, random_weights, with_attr

from camelid.model.spec import EncoderSpec, LayerSpec, ModelSpec
from camelid.plan.plan import Op

C, F, V, H, D, N_LAYERS, EPS = 32, 48, 96, 4, 8, 3, 1e-12
LENGTHS = (40, 1, 23)

LAYER = LayerSpec(mixer="bidirectional", mlp="mlp", residual="post", act="gelu_erf", rope="")
ENCODER = EncoderSpec(layers=(LAYER,) * N_LAYERS, pooling="mean", has_unit_length=True)
SPEC = ModelSpec(
    arch="stress", name="bert", n_layers=0, n_heads=H, n_kv_heads=H, head_dim=D, hidden_size=C, ffn_size=F,
    vocab_size=V, context_length=64, norm_eps=EPS, norm_kind="layer", layers=(), is_tied=True,
    encoder=ENCODER,
)  # fmt: skip

MODEL = {"token_embd": (V, C), "position_embd": (64, C), "token_types": (2, C), "token_embd_norm": (C,)}
NAMES = {
    "attn_q": (C, C), "attn_k": (C, C), "attn_v": (C, C), "attn_output": (C, C), "attn_output_norm": (C,),
    "ffn_up": (F, C), "ffn_down": (C, F), "layer_output_norm": (C,),
}  # fmt: skip


def shapes() -> dict[str, tuple[int, ...]]:
    layers = {f"blk.{i}.{name}": shape for i in range(N_LAYERS) for name, shape in NAMES.items()}
    biased = {"token_embd_norm": (C,), **layers}
    return {**MODEL, **layers, **{f"{name}.bias": shape[:1] for name, shape in biased.items()}}


WEIGHTS = random_weights(shapes(), 51)


def request(seed: int, n: int) -> Request:
    """A text, with a second text in its last third: positions continue, types change."""
    return random_ids(seed, n, V), [(i, int(3 * i >= 2 * n)) for i in range(n)]


REQUESTS = [request(52 + i, n) for i, n in enumerate(LENGTHS)]


def oracle(*, pooling: str = "mean", seen: Any = None) -> list[Any]:
    """Embeddings [C], or hidden states [T, C] without pooling. `seen` [T, T] masks the keys of each row."""
    w = {name: value.astype(np.float64) for name, value in WEIGHTS.items()}
    return [embedding(w, ids, at, pooling, seen) for ids, at in REQUESTS]


def embedding(w: plain.Weights, ids: Any, at: Any, pooling: str, seen: Any) -> Any:
    positions, types = np.array(at).T
    x = w["token_embd"][ids] + w["position_embd"][positions] + w["token_types"][types]
    x = layer_norm(w, x, "token_embd_norm")
    mask = np.ones((len(x), len(x)), bool) if seen is None else seen(len(x))
    for i in range(N_LAYERS):
        blk = f"blk.{i}."
        x = layer_norm(w, x + attention(w, x, blk, mask), blk + "attn_output_norm")
        inner = plain.gelu_erf(linear(w, x, blk + "ffn_up"))
        x = layer_norm(w, x + linear(w, inner, blk + "ffn_down"), blk + "layer_output_norm")
    pooled = {"": x, "mean": x.mean(0), "cls": x[0], "last": x[-1]}[pooling]
    return plain.unit(pooled)


def attention(w: plain.Weights, x: Any, blk: str, mask: Any) -> Any:
    q, k, v = (linear(w, x, f"{blk}attn_{name}").reshape(len(x), H, D) for name in "qkv")
    scores = np.where(mask, np.einsum("thd,shd->hts", q, k) / np.sqrt(D), -np.inf)
    y = np.einsum("hts,shd->thd", plain.softmax(scores), v)
    return linear(w, y.reshape(len(x), -1), blk + "attn_output")


def linear(w: plain.Weights, x: Any, name: str) -> Any:
    return x @ w[name].T + w[f"{name}.bias"]


def layer_norm(w: plain.Weights, x: Any, name: str) -> Any:
    return plain.layer_norm(x, w[name], w[f"{name}.bias"], EPS)


def with_encoder(**changes: Any) -> ModelSpec:
    return replace(SPEC, encoder=replace(ENCODER, **changes))


def _encoder(**changes: Any) -> Mutation:
    return Mutation(spec={"encoder": replace(ENCODER, **changes)})


def _layer(**changes: Any) -> Mutation:
    return _encoder(layers=(replace(LAYER, **changes),) * N_LAYERS)


def _no_channel(channel: int) -> Edit:
    def change(op: Op) -> Op | None:
        is_meant = op.name == "embed_position" and op.integer("channel") == channel
        return None if is_meant else op

    return lambda plan: edit_ops(plan, change)


def _norms(mixer: str, mlp: str) -> Mutation:
    """Puts the norms at other places of the sequential residual."""

    def rename(values: Values) -> Values:
        names = {"attn_output_norm": mixer, "layer_output_norm": mlp}
        return {_renamed(name, names): value for name, value in values.items()}

    return replace(_layer(residual="sequential"), weights=rename)


def _renamed(name: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        name = name.replace(old, new)
    return name


BIASED = ("token_embd_norm", "attn_q", "attn_v", "attn_output", "attn_output_norm", "ffn_up", "ffn_down",
          "layer_output_norm")  # fmt: skip
MUTATIONS = {
    "token types dropped": Mutation(edit=_no_channel(1)),
    "positions dropped": Mutation(edit=_no_channel(0)),
    "types as positions": Mutation(edit=lambda plan: with_attr(plan, "embed_position", channel=1)),
    "norm before the blocks": _norms("attn_norm", "ffn_norm"),
    "norm after the blocks, before the sums": _norms("post_attention_norm", "post_ffw_norm"),
    "no norm of embeddings": Mutation(weights=without("token_embd_norm")),
    "rms norms": Mutation(spec={"norm_kind": "rms"}),
    **{f"no bias of {name}": Mutation(weights=without(f"{name}.bias")) for name in BIASED},
    "no gain": Mutation(weights=filled("layer_output_norm", 1.0)),
    "first row instead of the mean": _encoder(pooling="cls"),
    "last row instead of the mean": _encoder(pooling="last"),
    "not of length 1": _encoder(has_unit_length=False),
    "causal": Mutation(edit=lambda plan: with_attr(plan, "attend_rows", mask="causal")),
    "a window": _layer(window=32),
    "scores not scaled": Mutation(spec={"attention_scale": 1.0}),
    "gelu by tanh": _layer(act="gelu"),
    "half the heads": Mutation(spec={"n_heads": H // 2, "n_kv_heads": H // 2, "head_dim": 2 * D}),
}
