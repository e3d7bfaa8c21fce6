"""Definitions of models with GPT-2's layers: CodeShell, Jais, Refact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes, biases
from tests.golden.definitions.numbers import Array, alibi_slopes, attend, layer_norm, silu


class Gpt(Decoder):
    """Layer norms, biases everywhere, one matrix of queries, keys and values, an MLP without a gate."""

    KEYS: ClassVar = {
        "hidden": "n_embd",
        "ffn": "n_inner",
        "layers": "n_layer",
        "heads": "n_head",
        "kv_heads": "n_head",
        "eps": "layer_norm_epsilon",
        "act": "activation_function",
    }
    LAYER = "transformer.h.{i}."
    NAMES: ClassVar = {
        "embed": "transformer.wte",
        "last_norm": "transformer.ln_f",
        "norm_1": "ln_1",
        "norm_2": "ln_2",
        "qkv": "attn.c_attn",
        "o": "attn.c_proj",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    }

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # pyright: ignore[reportArgumentType]
        self.ffn = self.ffn or 4 * self.hidden

    def norm(self, x: Array, name: str) -> Array:
        return layer_norm(x, self.eps) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        y = self.linear(x, self.of(i, "qkv")).reshape(len(x), -1, self.head_dim)
        q, k, v = np.split(y, [self.heads, self.heads + self.kv_heads], axis=1)
        return q, k, v

    def mlp(self, x: Array, i: int) -> Array:
        return self.linear(self.act(self.linear(x, self.of(i, "up"))), self.of(i, "down"))

    def shapes(self) -> Shapes:
        return dict(sorted({**super().shapes(), f"{self.names['last_norm']}.bias": [self.hidden]}.items()))

    def layer_shapes(self, i: int) -> Shapes:
        shapes = super().layer_shapes(i)
        return {**shapes, **biases(shapes, *shapes)}

    def attention_shapes(self) -> Shapes:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {"qkv": [q + 2 * kv, self.hidden], "o": [self.hidden, q]}

    def mlp_shapes(self, _: int) -> Shapes:
        return {"up": [self.ffn, self.hidden], "down": [self.hidden, self.ffn]}


class CodeShell(Gpt):
    """Rotated heads, and fewer heads of keys and values than of queries."""

    KEYS: ClassVar = {**Gpt.KEYS, "kv_heads": "num_query_groups"}


class Jais(Gpt):
    """Jais (arXiv 2308.16149): ALiBi, SwiGLU, and muP's scales; matrices are stored as [in, out]."""

    NAMES: ClassVar = {**Gpt.NAMES, "gate": "mlp.c_fc2"}

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        config = self.config
        self.embedding_scale = config.get("mup_embeddings_scale", config.get("embeddings_scale", 1.0))
        self.logit_scale = config.get("width_scale", 1.0)
        if "mup_output_alpha" in config:
            self.logit_scale = config["mup_output_alpha"] * config["mup_width_scale"]

    @property
    def is_tied(self) -> bool:
        return True

    def embed(self, ids: Sequence[int]) -> Array:
        return super().embed(ids) * self.embedding_scale

    def head(self, x: Array) -> Array:
        return x @ self.weights["transformer.wte.weight"].T * self.logit_scale

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def attention(self, x: Array, i: int) -> Array:
        q, k, v = self.qkv(x, i)
        scale = 1.0 / self.head_dim if self.config["mup_scale_qk_dot_by_d"] else 0.0
        return self.linear(attend(q, k, v, scale=scale, slopes=alibi_slopes(self.heads)), self.of(i, "o"))

    def mlp(self, x: Array, i: int) -> Array:
        gate, up = self.linear(x, self.of(i, "gate")), self.linear(x, self.of(i, "up"))
        return self.linear(silu(gate) * up, self.of(i, "down"))

    def layer_shapes(self, i: int) -> Shapes:
        shapes = {name: shape[::-1] for name, shape in super().layer_shapes(i).items()}
        gate = {"gate": shapes["up"], "gate.bias": shapes["up.bias"]}
        return {**shapes, **gate}


class Refact(Decoder):
    """Refact: ALiBi, one head of keys and values, a gated MLP, layer norms without biases."""

    KEYS: ClassVar = {
        "hidden": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "eps": "layer_norm_epsilon",
    }
    LAYER = "transformer.h.{i}."
    NAMES: ClassVar = {
        "embed": "transformer.wte",
        "last_norm": "transformer.ln_f",
        "norm_1": "ln_1",
        "norm_2": "ln_2",
        "q": "attn.q",
        "kv": "attn.kv",
        "o": "attn.c_proj",
        "gate_up": "mlp.gate_up_proj",
        "down": "mlp.c_proj",
    }
    MULTIPLE = 256  # of the MLP's width

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # pyright: ignore[reportArgumentType]
        inner = self.config["n_inner"] or 4 * self.hidden
        self.ffn = -(-(2 * inner // 3) // self.MULTIPLE) * self.MULTIPLE

    def norm(self, x: Array, name: str) -> Array:
        return layer_norm(x, self.eps) * self.weights[f"{name}.weight"]

    def attention(self, x: Array, i: int) -> Array:
        q = self.linear(x, self.of(i, "q")).reshape(len(x), -1, self.head_dim)
        k, v = np.split(self.linear(x, self.of(i, "kv")), 2, axis=-1)
        y = attend(q, k[:, None], v[:, None], slopes=alibi_slopes(self.heads))
        return self.linear(y, self.of(i, "o"))

    def mlp(self, x: Array, i: int) -> Array:
        gate, up = np.split(self.linear(x, self.of(i, "gate_up")), 2, axis=-1)
        return self.linear(silu(gate) * up, self.of(i, "down"))

    def attention_shapes(self) -> Shapes:
        square = [self.hidden, self.hidden]
        return {"q": square, "kv": [2 * self.head_dim, self.hidden], "o": square}

    def mlp_shapes(self, _: int) -> Shapes:
        return {"gate_up": [2 * self.ffn, self.hidden], "down": [self.hidden, self.ffn]}


GPTS: dict[str, type[Decoder]] = {"codeshell": CodeShell, "jais": Jais, "gpt_refact": Refact}
