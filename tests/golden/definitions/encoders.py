"""Encoders: rows attend to all rows, and the output is the hidden states of the last layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes, biases
from tests.golden.definitions.numbers import Array, alibi_slopes, gelu, layer_norm, relu, softmax


class JinaBert(Decoder):
    """Jina Embeddings 2 (arXiv 2310.19923): BERT with the symmetric ALiBi, no positions, and a GEGLU."""

    LAYER: ClassVar[str] = "encoder.layer.{i}."
    KEYS: ClassVar[dict[str, str]] = {"eps": "layer_norm_eps"}
    NAMES: ClassVar[dict[str, str]] = {
        "embed": "embeddings.word_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed_norm": "embeddings.LayerNorm",
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
        "norm_1": "attention.output.LayerNorm",
        "up": "mlp.gated_layers",
        "down": "mlp.wo",
        "norm_2": "mlp.layernorm",
    }

    def logits(self, ids: Sequence[int]) -> Array:
        """Hidden states of every row; [T, C]."""
        x = self.embed(ids) + self.weights[self.names["types"] + ".weight"][0]
        x = self.norm(x, self.names["embed_norm"])
        for i in range(self.layers):
            x = self.norm(x + self.attention(x, i), self.of(i, "norm_1"))
            x = self.norm(x + self.mlp(x, i), self.of(i, "norm_2"))
        return x

    def attention(self, x: Array, i: int) -> Array:
        q, k, v = self.qkv(x, i)
        distances = np.abs(np.arange(len(x))[:, None] - np.arange(len(x)))
        scores = np.einsum("thd,shd->hts", q, k) * self.head_dim**-0.5
        probs = softmax(scores - alibi_slopes(self.heads)[:, None, None] * distances)
        return self.linear(np.einsum("hts,shd->thd", probs, v).reshape(len(x), -1), self.of(i, "o"))

    def mlp(self, x: Array, i: int) -> Array:
        gate, up = np.split(self.linear(x, self.of(i, "up")), 2, axis=-1)
        act = {"geglu": gelu, "reglu": relu}[self.config["feed_forward_type"]]
        return self.linear(act(gate) * up, self.of(i, "down"))

    def norm(self, x: Array, name: str) -> Array:
        return layer_norm(x, self.eps) * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def shapes(self) -> Shapes:
        outer = {"types": [self.config["type_vocab_size"], self.hidden], "embed_norm": [self.hidden]}
        shapes = {self.names[part] + ".weight": shape for part, shape in outer.items()}
        shapes[self.names["embed_norm"] + ".bias"] = [self.hidden]
        unused = {self.names["last_norm"] + ".weight", self.names["head"] + ".weight"}
        found = {name: shape for name, shape in super().shapes().items() if name not in unused}
        return dict(sorted({**found, **shapes}.items()))

    def layer_shapes(self, i: int) -> Shapes:
        shapes = super().layer_shapes(i)
        return {**shapes, **biases(shapes, "q", "k", "v", "o", "down", "norm_1", "norm_2")}

    def mlp_shapes(self, _: int) -> Shapes:
        return {"up": [2 * self.ffn, self.hidden], "down": [self.hidden, self.ffn]}


ENCODERS: dict[str, Callable[..., Decoder]] = {"jina_bert": JinaBert}
