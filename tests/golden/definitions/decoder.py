"""A float64 decoder with the layers of Llama (arXiv 2302.13971), whose parts definitions override."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from tests.golden.definitions.numbers import ACTS, Array, attend, rms_norm, rotate

Json = dict[str, Any]
Shapes = dict[str, list[int]]


class Decoder:
    """One model: its config.json and its weights by published name.

    `KEYS` are config.json's names of the sizes, `NAMES` the published names of tensors; those of a layer
    follow `LAYER`. A missing bias is 0.
    """

    KEYS: ClassVar[Mapping[str, str]] = {}
    NAMES: ClassVar[Mapping[str, str]] = {}
    LAYER: ClassVar[str] = "model.layers.{i}."
    COMMON_KEYS: ClassVar[Mapping[str, str]] = {
        "hidden": "hidden_size",
        "ffn": "intermediate_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "eps": "rms_norm_eps",
        "theta": "rope_theta",
        "act": "hidden_act",
    }
    COMMON_NAMES: ClassVar[Mapping[str, str]] = {
        "embed": "model.embed_tokens",
        "last_norm": "model.norm",
        "head": "lm_head",
        "norm_1": "input_layernorm",
        "norm_2": "post_attention_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    }

    def __init__(self, config: Json, weights: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.gaps: list[float] = []  # between scores of the last chosen expert and the first one left out
        self.weights = {name: np.asarray(value, np.float64) for name, value in (weights or {}).items()}
        self.names = {**self.COMMON_NAMES, **self.NAMES}
        keys = {**self.COMMON_KEYS, **self.KEYS}
        sizes = {part: config.get(key) for part, key in keys.items()}
        self.hidden, self.ffn, self.layers = (int(sizes[name] or 0) for name in ("hidden", "ffn", "layers"))
        self.heads = int(sizes["heads"] or 0)
        self.kv_heads = int(sizes["kv_heads"] or self.heads)
        self.eps, self.theta = float(sizes["eps"] or 1e-6), float(sizes["theta"] or 10000.0)
        self.act, self.vocab = ACTS[sizes["act"] or "silu"], config["vocab_size"]

    @property
    def head_dim(self) -> int:
        return self.config.get("head_dim") or self.hidden // self.heads

    @property
    def is_tied(self) -> bool:
        return self.config.get("tie_word_embeddings", False)

    def outputs(self, ids: Sequence[int], _types: Sequence[int]) -> Array:
        """The logits; encoders override them, whose tokens have types."""
        return self.logits(ids)

    def logits(self, ids: Sequence[int]) -> Array:
        """Logits of every row; [T, V]."""
        x = self.embed(ids)
        for i in range(self.layers):
            x = self.layer(x, i)
        return self.head(self.norm(x, self.names["last_norm"]))

    def embed(self, ids: Sequence[int]) -> Array:
        return self.weights[self.names["embed"] + ".weight"][list(ids)]

    def head(self, x: Array) -> Array:
        return self.linear(x, self.names["embed" if self.is_tied else "head"])

    def layer(self, x: Array, i: int) -> Array:
        x = x + self.attention(self.norm(x, self.of(i, "norm_1")), i)
        return x + self.mlp(self.norm(x, self.of(i, "norm_2")), i)

    def attention(self, x: Array, i: int) -> Array:
        q, k, v = self.qkv(x, i)
        return self.linear(attend(self.rope(q), self.rope(k), v), self.of(i, "o"))

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        """Queries, keys and values; [T, heads, D]."""
        q, k, v = (self.linear(x, self.of(i, name)).reshape(len(x), -1, self.head_dim) for name in "qkv")
        return q, k, v

    def rope(self, x: Array) -> Array:
        return rotate(x, self.theta)

    def mlp(self, x: Array, i: int) -> Array:
        gate, up = self.linear(x, self.of(i, "gate")), self.linear(x, self.of(i, "up"))
        return self.linear(self.act(gate) * up, self.of(i, "down"))

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.eps) * self.weights[name + ".weight"]

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[name + ".weight"].T + self.weights.get(name + ".bias", 0.0)

    def of(self, i: int, part: str) -> str:
        """The published name of a layer's tensor, without its ending."""
        return self.LAYER.format(i=i) + self.names[part]

    def shapes(self) -> Shapes:
        """The published tensors."""
        outer = {"embed": [self.vocab, self.hidden], "last_norm": [self.hidden]}
        outer |= {} if self.is_tied else {"head": [self.vocab, self.hidden]}
        shapes = {self.names[part] + ".weight": shape for part, shape in outer.items()}
        for i in range(self.layers):
            for name, shape in self.layer_shapes(i).items():
                part, _, ending = name.partition(".")
                part, _, expert = part.partition("#")
                shapes[f"{self.of(i, part).format(e=expert)}.{ending or 'weight'}"] = shape
        return dict(sorted(shapes.items()))

    def layer_shapes(self, i: int) -> Shapes:
        """The tensors of a layer by part; a part without an ending is a weight, `part#e` is of expert e."""
        return {**self.norm_shapes(), **self.attention_shapes(), **self.mlp_shapes(i)}

    def norm_shapes(self) -> Shapes:
        return {"norm_1": [self.hidden], "norm_2": [self.hidden]}

    def attention_shapes(self) -> Shapes:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {"q": [q, self.hidden], "k": [kv, self.hidden], "v": [kv, self.hidden], "o": [self.hidden, q]}

    def mlp_shapes(self, _: int) -> Shapes:
        wide = [self.ffn, self.hidden]
        return {"gate": wide, "up": wide, "down": [self.hidden, self.ffn]}


def biases(shapes: Shapes, *parts: str) -> Shapes:
    """The biases of these parts."""
    return {f"{part}.bias": shapes[part][:1] for part in parts}
