"""Encoders: rows attend to all rows, and the output is the last layer's hidden states or a head's scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes, biases
from tests.golden.definitions.numbers import (
    Array,
    alibi_slopes,
    chosen,
    gelu,
    layer_norm,
    relu,
    rotate,
    softmax,
    weighted,
)


class Encoder(Decoder):
    """BERT (arXiv 1810.04805): norms follow the sums of the residual, and matrices have biases.

    In a class with a ranking head, `PREFIX` precedes the names of the inner model's tensors; the head is
    scores(tanh(pooler(row of the first token))).
    """

    PREFIX: ClassVar[str] = ""
    KEYS: ClassVar[dict[str, str]] = {"eps": "layer_norm_eps"}
    OUTER: ClassVar[dict[str, str]] = {
        "embed": "embeddings.word_embeddings",
        "types": "embeddings.token_type_embeddings",
        "embed_norm": "embeddings.LayerNorm",
    }
    HEAD: ClassVar[dict[str, str]] = {"pooler": "pooler", "scores": "classifier"}
    BIASED: ClassVar[tuple[str, ...]] = ("q", "k", "v", "o", "down", "norm_1", "norm_2")

    @property
    def ranks(self) -> bool:
        return self.config["architectures"][0].endswith("ForSequenceClassification")

    def outputs(self, ids: Sequence[int], types: Sequence[int]) -> Array:
        """Hidden states of every row [T, C], or the scores [1, L] of a class with a ranking head."""
        x = self.embedded(ids) + self.weights[self.outer("types") + ".weight"][list(types)]
        x = self.norm(x, self.outer("embed_norm"))
        for i in range(self.layers):
            x = self.norm(x + self.attention(x, i), self.of(i, "norm_1"))
            x = self.norm(x + self.mlp(x, i), self.of(i, "norm_2"))
        if not self.ranks:
            return x
        return self.linear(np.tanh(self.linear(x[:1], self.HEAD["pooler"])), self.HEAD["scores"])

    def embedded(self, ids: Sequence[int]) -> Array:
        return self.weights[self.outer("embed") + ".weight"][list(ids)]

    def attention(self, x: Array, i: int) -> Array:
        q, k, v = self.qkv(x, i)
        scores = np.einsum("thd,shd->hts", self.rope(q), self.rope(k)) * self.head_dim**-0.5
        rows = np.einsum("hts,shd->thd", softmax(scores + self.bias(len(x))), v)
        return self.linear(rows.reshape(len(x), -1), self.of(i, "o"))

    def bias(self, _n_rows: int) -> Array:
        """Added to the scores [heads, T, T]."""
        return np.zeros(1)

    def rope(self, x: Array) -> Array:
        return x

    def norm(self, x: Array, name: str) -> Array:
        return layer_norm(x, self.eps) * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def outer(self, part: str) -> str:
        return self.prefix + self.OUTER[part]

    def of(self, i: int, part: str) -> str:
        return self.prefix + super().of(i, part)

    @property
    def prefix(self) -> str:
        return self.PREFIX if self.ranks else ""

    def shapes(self) -> Shapes:
        outer = {"embed": [self.vocab, self.hidden], "embed_norm": [self.hidden], **self.outer_shapes()}
        outer["types"] = [self.config["type_vocab_size"], self.hidden]
        shapes = {self.outer(part) + ".weight": shape for part, shape in outer.items()}
        shapes[self.outer("embed_norm") + ".bias"] = [self.hidden]
        n_labels = len(self.config.get("id2label", ()))
        head = {"pooler": [self.hidden, self.hidden], "scores": [n_labels, self.hidden]} if self.ranks else {}
        for part, shape in head.items():
            shapes |= {self.HEAD[part] + ".weight": shape, self.HEAD[part] + ".bias": shape[:1]}
        inner = (self.names[part] for part in ("embed", "last_norm", "head"))
        unused = {name + ".weight" for name in inner}
        found = {name: shape for name, shape in super().shapes().items() if name not in unused}
        return dict(sorted({**found, **shapes}.items()))

    def outer_shapes(self) -> Shapes:
        return {}

    def layer_shapes(self, i: int) -> Shapes:
        shapes = super().layer_shapes(i)
        return {**shapes, **biases(shapes, *(part for part in self.BIASED if part in shapes))}


class JinaBert(Encoder):
    """Jina Embeddings 2 (arXiv 2310.19923): BERT with the symmetric ALiBi, no positions, and a GEGLU."""

    PREFIX: ClassVar[str] = "bert."
    LAYER: ClassVar[str] = "encoder.layer.{i}."
    HEAD: ClassVar[dict[str, str]] = {"pooler": "bert.pooler.dense", "scores": "classifier"}
    NAMES: ClassVar[dict[str, str]] = {
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
        "norm_1": "attention.output.LayerNorm",
        "up": "mlp.gated_layers",
        "down": "mlp.wo",
        "norm_2": "mlp.layernorm",
    }

    def bias(self, n_rows: int) -> Array:
        distances = np.abs(np.arange(n_rows)[:, None] - np.arange(n_rows))
        return -alibi_slopes(self.heads)[:, None, None] * distances

    def mlp(self, x: Array, i: int) -> Array:
        gate, up = np.split(self.linear(x, self.of(i, "up")), 2, axis=-1)
        act = {"geglu": gelu, "reglu": relu}[self.config["feed_forward_type"]]
        return self.linear(act(gate) * up, self.of(i, "down"))

    def mlp_shapes(self, _: int) -> Shapes:
        return {"up": [2 * self.ffn, self.hidden], "down": [self.hidden, self.ffn]}


class FusedEncoder(Encoder):
    """An encoder whose queries, keys and values are one matrix, and whose MLP has no gate."""

    LAYER: ClassVar[str] = "encoder.layers.{i}."
    OUTER: ClassVar[dict[str, str]] = {**Encoder.OUTER, "embed_norm": "emb_ln"}
    BIASED: ClassVar[tuple[str, ...]] = ("qkv", "o", "up", "down", "norm_1", "norm_2")
    NAMES: ClassVar[dict[str, str]] = {
        "qkv": "attn.Wqkv",
        "o": "attn.out_proj",
        "norm_1": "norm1",
        "up": "mlp.fc1",
        "down": "mlp.fc2",
        "norm_2": "norm2",
    }

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        rows = self.linear(x, self.of(i, "qkv")).reshape(len(x), 3, self.heads, self.head_dim)
        return rows[:, 0], rows[:, 1], rows[:, 2]

    def mlp(self, x: Array, i: int) -> Array:
        return self.linear(self.act(self.linear(x, self.of(i, "up"))), self.of(i, "down"))

    def attention_shapes(self) -> Shapes:
        return {"qkv": [3 * self.hidden, self.hidden], "o": [self.hidden, self.hidden]}

    def mlp_shapes(self, _: int) -> Shapes:
        return {"up": [self.ffn, self.hidden], "down": [self.hidden, self.ffn]}


class XlmRobertaFlash(FusedEncoder):
    """XLM-RoBERTa (arXiv 1911.02116) with the tensors of Jina's code: learned positions, after padding's."""

    PREFIX: ClassVar[str] = "roberta."
    OUTER: ClassVar[dict[str, str]] = {
        **FusedEncoder.OUTER,
        "positions": "embeddings.position_embeddings",
    }
    HEAD: ClassVar[dict[str, str]] = {"pooler": "classifier.dense", "scores": "classifier.out_proj"}
    NAMES: ClassVar[dict[str, str]] = {
        **FusedEncoder.NAMES,
        "qkv": "mixer.Wqkv",
        "o": "mixer.out_proj",
    }

    def embedded(self, ids: Sequence[int]) -> Array:
        first = self.config["pad_token_id"] + 1
        return super().embedded(ids) + self.weights[self.outer("positions") + ".weight"][first:][: len(ids)]

    def outer_shapes(self) -> Shapes:
        return {"positions": [self.config["max_position_embeddings"], self.hidden]}


class NomicMoe(FusedEncoder):
    """Nomic Embed 2 (arXiv 2502.07972): every second layer adds the chosen experts' outputs, times their
    probabilities among all experts, and one bias.
    """

    KEYS: ClassVar[dict[str, str]] = {
        "hidden": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "ffn": "n_inner",
        "eps": "layer_norm_epsilon",
        "theta": "rotary_emb_base",
        "act": "activation_function",
    }
    NAMES: ClassVar[dict[str, str]] = {
        **FusedEncoder.NAMES,
        "router": "mlp.router.layer",
        "w1": "mlp.experts.mlp",
        "w2": "mlp.experts.mlp",
        "sum": "mlp.experts",
    }

    def rope(self, x: Array) -> Array:
        return rotate(x, self.theta)

    def mlp(self, x: Array, i: int) -> Array:
        return self.experts(x, i) if self.is_sparse(i) else super().mlp(x, i)

    def experts(self, x: Array, i: int) -> Array:
        probs = softmax(self.linear(x, self.of(i, "router")))
        n_used = self.config["moe_top_k"]
        ranked = np.sort(np.log(probs), axis=-1)[:, ::-1]
        self.gaps.append(float((ranked[:, n_used - 1] - ranked[:, n_used]).min()))
        ids = chosen(probs, n_used)
        shares = np.take_along_axis(probs, ids, axis=-1)
        if self.config["moe_normalize_expert_weights"]:
            shares = shares / shares.sum(-1, keepdims=True)
        return weighted(x, ids, shares, self.experts_of(i)) + self.weights[self.of(i, "sum") + ".bias"]

    def experts_of(self, i: int) -> list[Callable[[Array], Array]]:
        stacks = (self.weights[f"{self.of(i, part)}.{part}"] for part in ("w1", "w2"))
        first, second = (np.split(stack, self.config["num_experts"]) for stack in stacks)  # [F, C] each
        pairs = zip(first, second, strict=True)
        return [lambda x, w1=w1, w2=w2: self.act(x @ w1.T) @ w2 for w1, w2 in pairs]

    def is_sparse(self, i: int) -> bool:
        return i % self.config["moe_every_n_layers"] == 1

    def mlp_shapes(self, i: int) -> Shapes:
        if not self.is_sparse(i):
            return super().mlp_shapes(i)
        n = self.config["num_experts"]
        stack = [n * self.ffn, self.hidden]
        return {"router": [n, self.hidden], "w1.w1": stack, "w2.w2": stack, "sum.bias": [self.hidden]}


ENCODERS: dict[str, Callable[..., Decoder]] = {
    "jina_bert": JinaBert,
    "nomic_bert_moe": NomicMoe,
    "xlm_roberta_flash": XlmRobertaFlash,
}
