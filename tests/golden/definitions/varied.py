"""Definitions of models whose layers differ in heads and widths: OpenELM, DeciLM."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes
from tests.golden.definitions.numbers import Array


class OpenElm(Decoder):
    """OpenELM (arXiv 2404.14619): each layer has heads and a width of its own, and norms its heads."""

    KEYS: ClassVar = {
        "hidden": "model_dim",
        "layers": "num_transformer_layers",
        "theta": "rope_freq_constant",
        "act": "activation_fn_name",
    }
    LAYER = "transformer.layers.{i}."
    NAMES: ClassVar = {
        "embed": "transformer.token_embeddings",
        "last_norm": "transformer.norm",
        "norm_1": "attn_norm",
        "norm_2": "ffn_norm",
        "qkv": "attn.qkv_proj",
        "q_norm": "attn.q_norm",
        "k_norm": "attn.k_norm",
        "o": "attn.out_proj",
        "gate_up": "ffn.proj_1",
        "down": "ffn.proj_2",
    }

    @property
    def is_tied(self) -> bool:
        return self.config["share_input_output_layers"]

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        n_q, n_kv = self.config["num_query_heads"][i], self.config["num_kv_heads"][i]
        y = self.linear(x, self.of(i, "qkv")).reshape(len(x), -1, self.head_dim)
        q, k, v = np.split(y, [n_q, n_q + n_kv], axis=1)
        return self.norm(q, self.of(i, "q_norm")), self.norm(k, self.of(i, "k_norm")), v

    def mlp(self, x: Array, i: int) -> Array:
        gate, up = np.split(self.linear(x, self.of(i, "gate_up")), 2, axis=-1)
        return self.linear(self.act(gate) * up, self.of(i, "down"))

    def width(self, i: int) -> int:
        divisor, exact = self.config["ffn_dim_divisor"], self.config["ffn_multipliers"][i] * self.hidden
        width = max(divisor, int(exact + divisor / 2) // divisor * divisor)
        return width + divisor if width < 0.9 * exact else width

    def layer_shapes(self, i: int) -> Shapes:
        q, kv = (self.config[f"num_{name}_heads"][i] * self.head_dim for name in ("query", "kv"))
        return {
            **self.norm_shapes(),
            "qkv": [q + 2 * kv, self.hidden],
            "o": [self.hidden, q],
            "q_norm": [self.head_dim],
            "k_norm": [self.head_dim],
            "gate_up": [2 * self.width(i), self.hidden],
            "down": [self.hidden, self.width(i)],
        }


class Deci(Decoder):
    """Llama whose layers have KV heads and widths of their own, or a matrix in place of attention."""

    def block(self, i: int) -> tuple[int, bool, int]:
        """KV heads, whether a matrix stands in place of attention, and the width of the MLP."""
        if "block_configs" not in self.config:
            return self.config["num_key_value_heads_per_layer"][i], False, self.ffn
        block = self.config["block_configs"][i]
        group, factor = block["attention"]["n_heads_in_group"], block["ffn"]["ffn_mult"]
        width = int(2 * (factor or 0) * self.hidden / 3)
        n_kv = self.heads // group if group else 0
        return n_kv, block["attention"]["replace_with_linear"], (width + 255) // 256 * 256

    def layer(self, x: Array, i: int) -> Array:
        n_kv, is_linear, width = self.block(i)
        if n_kv or is_linear:
            h = self.norm(x, self.of(i, "norm_1"))
            x = x + (self.linear(h, self.of(i, "o")) if is_linear else self.attention(h, i))
        return x + self.mlp(self.norm(x, self.of(i, "norm_2")), i) if width else x

    def layer_shapes(self, i: int) -> Shapes:
        n_kv, is_linear, width = self.block(i)
        kv, wide = n_kv * self.head_dim, [width, self.hidden]
        shapes = {"norm_1": [self.hidden], "o": [self.hidden, self.hidden]} if n_kv or is_linear else {}
        if n_kv:
            shapes |= {"q": [self.hidden, self.hidden], "k": [kv, self.hidden], "v": [kv, self.hidden]}
        if width:
            shapes |= {"norm_2": [self.hidden], "gate": wide, "up": wide, "down": wide[::-1]}
        return shapes


VARIED: dict[str, type[Decoder]] = {"openelm": OpenElm, "deci": Deci, "nemotron-nas": Deci}
