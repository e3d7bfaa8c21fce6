"""Definitions of models with the layers of Llama under names of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes, biases
from tests.golden.definitions.numbers import Array, layer_norm, rotate, silu


class InternLm2(Decoder):
    """One matrix repeats, for each KV head: its query heads, its key, its value."""

    NAMES: ClassVar = {
        "embed": "model.tok_embeddings",
        "head": "output",
        "norm_1": "attention_norm",
        "norm_2": "ffn_norm",
        "qkv": "attention.wqkv",
        "o": "attention.wo",
        "gate": "feed_forward.w1",
        "up": "feed_forward.w3",
        "down": "feed_forward.w2",
    }

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        groups = self.linear(x, self.of(i, "qkv")).reshape(len(x), self.kv_heads, -1, self.head_dim)
        q = groups[:, :, :-2].reshape(len(x), self.heads, self.head_dim)
        return q, groups[:, :, -2], groups[:, :, -1]

    def attention_shapes(self) -> Shapes:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {"qkv": [q + 2 * kv, self.hidden], "o": [self.hidden, q]}
        return {**shapes, **(biases(shapes, "qkv", "o") if self.config["bias"] else {})}


class Orion(Decoder):
    """Llama with layer norms, whose epsilon config.json calls rms_norm_eps."""

    def norm(self, x: Array, name: str) -> Array:
        return layer_norm(x, self.eps) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def norm_shapes(self) -> Shapes:
        shapes = super().norm_shapes()
        return {**shapes, **biases(shapes, *shapes)}

    def shapes(self) -> Shapes:
        return dict(sorted({**super().shapes(), "model.norm.bias": [self.hidden]}.items()))


class MiniCpm(Decoder):
    """Llama with scales on embeddings, on each block's output and on the head's input."""

    def embed(self, ids: Sequence[int]) -> Array:
        return super().embed(ids) * self.config["scale_emb"]

    def layer(self, x: Array, i: int) -> Array:
        scale = self.config["scale_depth"] / np.sqrt(self.layers)
        x = x + scale * self.attention(self.norm(x, self.of(i, "norm_1")), i)
        return x + scale * self.mlp(self.norm(x, self.of(i, "norm_2")), i)

    def head(self, x: Array) -> Array:
        return super().head(x / (self.hidden / self.config["dim_model_base"]))

    def rope(self, x: Array) -> Array:
        """LongRoPE (arXiv 2402.13753): factors by the length, and a magnitude by the ratio of contexts."""
        scaling = self.config.get("rope_scaling")
        if not scaling:
            return super().rope(x)
        original = scaling["original_max_position_embeddings"]
        factors = scaling["long_factor" if len(x) > original else "short_factor"]
        ratio = self.config["max_position_embeddings"] / original
        magnitude = np.sqrt(1.0 + np.log(ratio) / np.log(original)) if ratio > 1 else 1.0
        return rotate(x, self.theta, scales=np.array(factors)) * magnitude

    @property
    def is_tied(self) -> bool:
        return self.config.get("tie_word_embeddings", True)


class Qwen(Decoder):
    """The first Qwen: w2 is the gate of its MLP, and intermediate_size counts both matrices."""

    KEYS: ClassVar = {
        "eps": "layer_norm_epsilon",
        "theta": "rotary_emb_base",
        "kv_heads": "num_attention_heads",
    }
    LAYER = "transformer.h.{i}."
    NAMES: ClassVar = {
        "embed": "transformer.wte",
        "last_norm": "transformer.ln_f",
        "norm_1": "ln_1",
        "norm_2": "ln_2",
        "qkv": "attn.c_attn",
        "o": "attn.c_proj",
        "gate": "mlp.w2",
        "up": "mlp.w1",
        "down": "mlp.c_proj",
    }

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        q, k, v = np.split(self.linear(x, self.of(i, "qkv")).reshape(len(x), -1, self.head_dim), 3, axis=1)
        return q, k, v

    @property
    def head_dim(self) -> int:
        return self.config["kv_channels"]

    def attention_shapes(self) -> Shapes:
        q = self.heads * self.head_dim
        return {"qkv": [3 * q, self.hidden], "qkv.bias": [3 * q], "o": [self.hidden, q]}

    def mlp_shapes(self, _: int) -> Shapes:
        wide = [self.ffn // 2, self.hidden]
        return {"gate": wide, "up": wide, "down": [self.hidden, self.ffn // 2]}


class ChatGlm(Decoder):
    """ChatGLM 2, 3 and GLM-4: half of each head is rotated, in adjacent pairs."""

    KEYS: ClassVar = {
        "ffn": "ffn_hidden_size",
        "layers": "num_layers",
        "kv_heads": "multi_query_group_num",
        "eps": "layernorm_epsilon",
    }
    LAYER = "transformer.encoder.layers.{i}."
    NAMES: ClassVar = {
        "embed": "transformer.embedding.word_embeddings",
        "last_norm": "transformer.encoder.final_layernorm",
        "head": "transformer.output_layer",
        "qkv": "self_attention.query_key_value",
        "o": "self_attention.dense",
        "gate_up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    }

    @property
    def head_dim(self) -> int:
        return self.config["kv_channels"]

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        y = self.linear(x, self.of(i, "qkv")).reshape(len(x), -1, self.head_dim)
        q, k, v = np.split(y, [self.heads, self.heads + self.kv_heads], axis=1)
        return q, k, v

    def rope(self, x: Array) -> Array:
        theta = 10000.0 * self.config.get("rope_ratio", 1.0)
        return rotate(x, theta, self.head_dim // 2, adjacent=True)

    def mlp(self, x: Array, i: int) -> Array:
        gate, up = np.split(self.linear(x, self.of(i, "gate_up")), 2, axis=-1)
        return self.linear(silu(gate) * up, self.of(i, "down"))

    def attention_shapes(self) -> Shapes:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {"qkv": [q + 2 * kv, self.hidden], "o": [self.hidden, q]}
        return {**shapes, **(biases(shapes, "qkv") if self.config["add_qkv_bias"] else {})}

    def mlp_shapes(self, _: int) -> Shapes:
        return {"gate_up": [2 * self.ffn, self.hidden], "down": [self.hidden, self.ffn]}


class Baichuan(Decoder):
    """Baichuan 7B: Llama with one matrix of queries, keys and values."""

    NAMES: ClassVar = {"qkv": "self_attn.W_pack"}

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        q, k, v = np.split(self.linear(x, self.of(i, "qkv")).reshape(len(x), -1, self.head_dim), 3, axis=1)
        return q, k, v

    def attention_shapes(self) -> Shapes:
        return {"qkv": [3 * self.hidden, self.hidden], "o": [self.hidden, self.hidden]}


class MiMo(Decoder):
    """MiMo 7B: biases on queries, keys and values, and layers that predict further tokens, not used here."""

    def attention_shapes(self) -> Shapes:
        shapes = super().attention_shapes()
        return {**shapes, **biases(shapes, *"qkv")}

    def shapes(self) -> Shapes:
        further = {"model.mtp_layers.0.token_layernorm.weight": [self.hidden]}
        return dict(sorted({**super().shapes(), **further}.items()))


class Pangu(Decoder):
    """openPangu-Embedded: biases on all four matrices of attention."""

    def attention_shapes(self) -> Shapes:
        shapes = super().attention_shapes()
        return {**shapes, **(biases(shapes, *"qkvo") if self.config["bias"] else {})}


LLAMAS: dict[str, type[Decoder]] = {
    "internlm2": InternLm2,
    "orion": Orion,
    "xverse": Decoder,
    "minicpm": MiniCpm,
    "qwen": Qwen,
    "chatglm": ChatGlm,
    "baichuan": Baichuan,
    "mimo": MiMo,
    "PanguEmbedded": Pangu,
}
