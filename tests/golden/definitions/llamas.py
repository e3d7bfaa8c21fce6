"""Definitions of models with the layers of Llama under names of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Json, Shapes, biases
from tests.golden.definitions.numbers import Array, alibi_slopes, attend, layer_norm, rotate, silu

MLA_SIZES = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")


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


class Baichuan13(Baichuan):
    """Baichuan 13B: ALiBi in place of rotation."""

    def attention(self, x: Array, i: int) -> Array:
        q, k, v = self.qkv(x, i)
        return self.linear(attend(q, k, v, slopes=alibi_slopes(self.heads)), self.of(i, "o"))


class CogVlm(Decoder):
    """CogVLM on text: Llama beside a second set of matrices, and a tower, for images.

    The constant of its rotation differs between the two published classes.
    """

    KEYS: ClassVar = {"kv_heads": "num_multi_query_heads"}
    NAMES: ClassVar = {
        "qkv": "self_attn.language_expert_query_key_value",
        "o": "self_attn.language_expert_dense",
        **{part: f"mlp.language_mlp.{part}_proj" for part in ("gate", "up", "down")},
        "vision_qkv": "self_attn.vision_expert_query_key_value",
        "vision_o": "self_attn.vision_expert_dense",
        **{f"vision_{part}": f"mlp.vision_mlp.{part}_proj" for part in ("gate", "up", "down")},
    }

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.is_second = self.config.get("num_multi_query_heads") is not None
        self.theta = self.config.get("rope_theta") or (500000.0 if self.is_second else 10000.0)

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        y = self.linear(x, self.of(i, "qkv")).reshape(len(x), -1, self.head_dim)
        q, k, v = np.split(y, [self.heads, self.heads + self.kv_heads], axis=1)
        return q, k, v

    def attention_shapes(self) -> Shapes:
        n_rows = (self.heads + 2 * self.kv_heads) * self.head_dim
        return {"qkv": [n_rows, self.hidden], "o": [self.hidden, self.hidden]}

    def layer_shapes(self, i: int) -> Shapes:
        own = {**self.attention_shapes(), **self.mlp_shapes(i)}
        visual = {f"vision_{part}": shape for part, shape in own.items()}
        more = biases(visual, "vision_qkv") if self.is_second else {}
        return {**self.norm_shapes(), **own, **visual, **more}

    def shapes(self) -> Shapes:
        tower = {
            "model.vision.boi": [1, 1, self.hidden],
            "model.vision.linear_proj.norm1.bias": [self.hidden],
        }
        return dict(sorted({**super().shapes(), **tower}.items()))


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


class Maincoder(Decoder):
    """Maincoder: pairs of adjacent floats are rotated, then heads of queries and keys are normed."""

    NAMES: ClassVar = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}

    def attention(self, x: Array, i: int) -> Array:
        q, k, v = self.qkv(x, i)
        q, k = self.norm(self.rope(q), self.of(i, "q_norm")), self.norm(self.rope(k), self.of(i, "k_norm"))
        return self.linear(attend(q, k, v), self.of(i, "o"))

    def rope(self, x: Array) -> Array:
        return rotate(x, self.theta, adjacent=True)

    def attention_shapes(self) -> Shapes:
        return {**super().attention_shapes(), "q_norm": [self.head_dim], "k_norm": [self.head_dim]}


class Plamo(Decoder):
    """PLaMo: attention and MLP read one norm; query head h reads key head h modulo their number."""

    LAYER = "model.layers.layers.{i}."
    NAMES: ClassVar = {"norm_1": "norm"}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kv_heads = int(np.ceil(self.heads / self.config["n_shared_head"]))

    def layer(self, x: Array, i: int) -> Array:
        h = self.norm(x, self.of(i, "norm_1"))
        return x + self.attention(h, i) + self.mlp(h, i)

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        """Keys and values repeated as a whole, one head for each of the queries."""
        q, k, v = super().qkv(x, i)
        n = self.config["n_shared_head"]
        return q, np.tile(k, (1, n, 1))[:, : self.heads], np.tile(v, (1, n, 1))[:, : self.heads]

    def rope(self, x: Array) -> Array:
        """mlx-lm's rope_traditional rotates adjacent pairs."""
        return rotate(x, self.theta, adjacent=self.config.get("rope_traditional", False))

    def norm_shapes(self) -> Shapes:
        return {"norm_1": [self.hidden]}


class Plm(Decoder):
    """PLM (arXiv 2503.12167): latent attention, adjacent pairs of its last floats rotated; relu squared."""

    NAMES: ClassVar = {
        "kv_a": "self_attn.kv_a_proj_with_mqa",
        "kv_norm": "self_attn.kv_a_layernorm",
        "kv_b": "self_attn.kv_b_proj",
    }

    def attention(self, x: Array, i: int) -> Array:
        rank, nope, rope = (self.config[name] for name in MLA_SIZES)
        q = self.linear(x, self.of(i, "q")).reshape(len(x), self.heads, -1)
        latent, k_rope = np.split(self.linear(x, self.of(i, "kv_a")), [rank], axis=-1)
        kv = self.linear(self.norm(latent, self.of(i, "kv_norm")), self.of(i, "kv_b"))
        k, v = np.split(kv.reshape(len(x), self.heads, -1), [nope], axis=-1)
        k_rope = np.repeat(self.rope(k_rope[:, None]), self.heads, axis=1)
        q = np.concatenate([q[..., :nope], self.rope(q[..., nope:])], axis=-1)
        scale = (nope + rope) ** -0.5
        return self.linear(attend(q, np.concatenate([k, k_rope], -1), v, scale=scale), self.of(i, "o"))

    def rope(self, x: Array) -> Array:
        return rotate(x, self.theta, adjacent=True)

    def mlp(self, x: Array, i: int) -> Array:
        return self.linear(self.act(self.linear(x, self.of(i, "up"))), self.of(i, "down"))

    def attention_shapes(self) -> Shapes:
        rank, nope, rope = (self.config[name] for name in MLA_SIZES)
        value, n = self.config["v_head_dim"], self.heads
        return {
            "q": [n * (nope + rope), self.hidden],
            "kv_a": [rank + rope, self.hidden],
            "kv_norm": [rank],
            "kv_b": [n * (nope + value), rank],
            "o": [self.hidden, n * value],
        }

    def mlp_shapes(self, _: int) -> Shapes:
        return {"up": [self.ffn, self.hidden], "down": [self.hidden, self.ffn]}


def baichuan(config: Json, weights: Mapping[str, Any] | None = None) -> Decoder:
    """The 13B has 40 layers, and states no max_position_embeddings."""
    return (Baichuan13 if config["num_hidden_layers"] == 40 else Baichuan)(config, weights)


LLAMAS: dict[str, Callable[..., Decoder]] = {
    "internlm2": InternLm2,
    "orion": Orion,
    "xverse": Decoder,
    "minicpm": MiniCpm,
    "qwen": Qwen,
    "chatglm": ChatGlm,
    "baichuan": baichuan,
    "cogvlm": CogVlm,
    "mimo": MiMo,
    "PanguEmbedded": Pangu,
    "maincoder": Maincoder,
    "plamo": Plamo,
    "plm": Plm,
}
