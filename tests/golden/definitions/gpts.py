"""Definitions of models with GPT-2's layers: CodeShell."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes, biases
from tests.golden.definitions.numbers import Array, layer_norm


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


GPTS: dict[str, type[Decoder]] = {"codeshell": CodeShell}
