"""Definition of a model whose layers have a state in place of attention: RWKV-7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes, biases
from tests.golden.definitions.numbers import ACTS, Array, layer_norm

MIXED = "rwkvag"


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


class Rwkv7(Decoder):
    """RWKV-7 "Goose" (arXiv 2503.14456, sections 4 and 5, and its appendix with the model's equations).

    Row by row: S = S (diag(w) - u^T (a * u)) + v^T k, with S [values, keys] of each head.
    """

    KEYS: ClassVar = {"eps": "norm_eps", "act": "hidden_act"}
    NAMES: ClassVar = {
        "embed": "model.embeddings",
        "first_norm": "pre_norm",
        "norm_1": "attn_norm",
        "norm_2": "ffn_norm",
        "key": "ffn.key",
        "value": "ffn.value",
        **{f"x_{letter}": f"attn.x_{letter}" for letter in MIXED},
        **{f"{name}_proj": f"attn.{name}_proj" for name in "rkvo"},
        **{f"{name}_down": f"attn.{name}_lora.lora.0" for name in "wavg"},
        **{f"{name}_up": f"attn.{name}_lora.lora.2" for name in "wavg"},
        "k_k": "attn.k_k",
        "k_a": "attn.k_a",
        "r_k": "attn.r_k",
        "heads_norm": "attn.g_norm",
        "ffn_x_k": "ffn.x_k",
    }
    BARE: ClassVar = (*(f"x_{letter}" for letter in MIXED), "k_k", "k_a", "r_k", "ffn_x_k")  # without ending

    def __init__(self, config: dict[str, object], *args: object) -> None:
        acts = {"sqrelu": "relu2"}
        act = acts.get(str(config["hidden_act"]), config["hidden_act"])
        super().__init__({**config, "hidden_act": act}, *args)  # pyright: ignore[reportArgumentType]
        self.act = ACTS[str(act)]
        self.heads = self.hidden // self.head_dim
        self.first_values: Array | None = None

    def logits(self, ids: Sequence[int]) -> Array:
        self.first_values = None
        return super().logits(ids)

    def embed(self, ids: Sequence[int]) -> Array:
        x = super().embed(ids)
        return self.norm(x, self.of(0, "first_norm")) if self.config["norm_first"] else x

    def norm(self, x: Array, name: str) -> Array:
        y = layer_norm(x, self.eps) * self.weights[f"{name}.weight"]
        return y + self.weights[f"{name}.bias"] if self.config["norm_bias"] else y

    def part(self, i: int, name: str) -> Array:
        return self.weights[self.of(i, name)].ravel()

    def mix(self, x: Array, before: Array, share: Array) -> Array:
        return x + (before - x) * share

    def pair(self, x: Array, i: int, name: str) -> Array:
        act = {"w": np.tanh, "g": sigmoid}.get(name, lambda y: y)
        return self.linear(act(self.linear(x, self.of(i, f"{name}_down"))), self.of(i, f"{name}_up"))

    def attention(self, x: Array, i: int) -> Array:
        before = np.vstack([np.zeros_like(x[:1]), x[:-1]])
        mixed = {letter: self.mix(x, before, self.part(i, f"x_{letter}")) for letter in MIXED}
        r, k, v = (self.linear(mixed[name], self.of(i, f"{name}_proj")) for name in "rkv")
        if self.first_values is None:
            self.first_values = v
        else:
            v = v + (self.first_values - v) * sigmoid(self.pair(mixed["v"], i, "v"))
        decay = np.exp(-np.exp(-0.5) * sigmoid(self.pair(mixed["w"], i, "w")))
        rate = sigmoid(self.pair(mixed["a"], i, "a"))
        heads = (len(x), self.heads, self.head_dim)
        removed = (k * self.part(i, "k_k")).reshape(heads)
        removed = removed / np.maximum(np.linalg.norm(removed, axis=-1, keepdims=True), 1e-12)
        k = k * (1.0 + (rate - 1.0) * self.part(i, "k_a"))
        r, k, v, decay, rate = (y.reshape(heads) for y in (r, k, v, decay, rate))
        y = layer_norm(self.wkv(r, decay, k, v, removed, rate), self.head_dim * self.eps)
        name = self.of(i, "heads_norm")
        y = y.reshape(x.shape) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        bonus = (r * k * self.part(i, "r_k").reshape(heads[1:])).sum(-1, keepdims=True) * v
        y = (y + bonus.reshape(x.shape)) * self.pair(mixed["g"], i, "g")
        return self.linear(y, self.of(i, "o_proj"))

    def wkv(self, r: Array, decay: Array, k: Array, v: Array, removed: Array, rate: Array) -> Array:
        """The output of each row; [T, H, D]."""
        state, rows = np.zeros((self.heads, self.head_dim, self.head_dim)), list[Array]()
        for t in range(len(r)):
            move = np.einsum("hi,hj->hij", removed[t], removed[t] * rate[t])
            shrink = np.einsum("hi,ij->hij", decay[t], np.eye(self.head_dim))
            state = state @ (shrink - move) + np.einsum("hi,hj->hij", v[t], k[t])
            rows.append(np.einsum("hij,hj->hi", state, r[t]))
        return np.stack(rows)

    def mlp(self, x: Array, i: int) -> Array:
        before = np.vstack([np.zeros_like(x[:1]), x[:-1]])
        k = self.linear(self.mix(x, before, self.part(i, "ffn_x_k")), self.of(i, "key"))
        return self.linear(self.act(k), self.of(i, "value"))

    def shapes(self) -> Shapes:
        shapes = {**super().shapes(), "model.norm.bias": [self.hidden]}
        bare = tuple(f".{self.names[name]}.weight" for name in self.BARE)
        named = {n.removesuffix(".weight") if n.endswith(bare) else n: s for n, s in shapes.items()}
        return dict(sorted(named.items()))

    def layer_shapes(self, i: int) -> Shapes:
        norms = {"norm_1": [self.hidden], "norm_2": [self.hidden], "heads_norm": [self.hidden]}
        norms |= {"first_norm": [self.hidden]} if i == 0 else {}
        return {
            **norms,
            **biases(norms, *norms),
            **self.attention_shapes(),
            **self.pair_shapes(i),
            **self.mlp_shapes(i),
        }

    def attention_shapes(self) -> Shapes:
        square, vector = [self.hidden, self.hidden], [self.hidden]
        mixed = {f"x_{letter}": [1, 1, self.hidden] for letter in MIXED}
        own = {"k_k": vector, "k_a": vector, "r_k": [self.heads, self.head_dim]}
        return {**mixed, **own, **{f"{name}_proj": square for name in "rkvo"}}

    def pair_shapes(self, i: int) -> Shapes:
        keys = {"w": "decay", "a": "a", "v": "v", "g": "gate"}
        ranks = {name: self.config[f"{key}_low_rank_dim"] for name, key in keys.items() if i or name != "v"}
        downs = {f"{name}_down": [rank, self.hidden] for name, rank in ranks.items()}
        ups = {f"{name}_up": [self.hidden, rank] for name, rank in ranks.items()}
        return {**downs, **ups, **biases(ups, *(name for name in ups if name != "g_up"))}

    def mlp_shapes(self, _: int) -> Shapes:
        return {"ffn_x_k": [self.hidden], "key": [self.ffn, self.hidden], "value": [self.hidden, self.ffn]}


RECURRENT: dict[str, type[Decoder]] = {"rwkv7": Rwkv7}
