"""Definitions of mixtures of experts: DeepSeek 1 and OCR, Ling 1 and 2, Arctic, Grove MoE, Grok-1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from tests.golden.definitions.decoder import Decoder, Shapes
from tests.golden.definitions.numbers import ACTS, Array, attend, chosen, rms_norm, rotate, softmax, weighted

SMALLTHINKER = ("moe_num_active_primary_experts", "moe_ffn_hidden_size")
EXPERT = ("expert_gate", "expert_up", "expert_down")


class Mixture(Decoder):
    """A decoder whose MLP is a mixture, with probs of all experts by softmax; those of chosen ones sum to 1.

    `EXPERTS` is the key of their number. `gaps` collects how far the last chosen expert is from the next.
    """

    EXPERTS: ClassVar[str] = "num_experts"
    SHARED: ClassVar[str] = ""
    MIXTURE: ClassVar[dict[str, str]] = {
        "router": "mlp.gate",
        "expert_gate": "mlp.experts.{e}.gate_proj",
        "expert_up": "mlp.experts.{e}.up_proj",
        "expert_down": "mlp.experts.{e}.down_proj",
        "shared_gate": "mlp.shared_experts.gate_proj",
        "shared_up": "mlp.shared_experts.up_proj",
        "shared_down": "mlp.shared_experts.down_proj",
    }

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # pyright: ignore[reportArgumentType]
        self.names = {**self.MIXTURE, **self.names}
        self.n_experts, self.n_used = self.config[self.EXPERTS], self.config.get("num_experts_per_tok", 0)
        self.expert_ffn = self.config.get("moe_intermediate_size", self.ffn)
        self.shared_ffn = self.config.get(self.SHARED, 0) * self.expert_ffn

    def is_dense(self, i: int) -> bool:
        return i < self.config.get("first_k_dense_replace", 0)

    def mlp(self, x: Array, i: int) -> Array:
        if self.is_dense(i):
            return super().mlp(x, i)
        y = self.experts(x, x, i)
        return y + self.gated(x, i, "shared_") if self.shared_ffn else y

    def experts(self, x: Array, router_input: Array, i: int) -> Array:
        ids, probs = self.route(self.linear(router_input, self.of(i, "router")), i)
        return weighted(x, ids, probs, [partial(self.expert, i=i, e=e) for e in range(self.n_experts)])

    def expert(self, x: Array, i: int, e: int) -> Array:
        gate, up, down = (self.of(i, part).format(e=e) for part in EXPERT)
        return self.linear(self.act(self.linear(x, gate)) * self.linear(x, up), down)

    def gated(self, x: Array, i: int, prefix: str) -> Array:
        gate, up, down = (self.of(i, prefix + part) for part in ("gate", "up", "down"))
        return self.linear(self.act(self.linear(x, gate)) * self.linear(x, up), down)

    def route(self, logits: Array, i: int) -> tuple[NDArray[np.intp], Array]:
        """Numbers and probs of each row's experts; [T, U] each."""
        ids, probs = self.choose(logits), softmax(logits)
        probs = np.take_along_axis(probs, ids, axis=-1)
        return ids, probs / probs.sum(-1, keepdims=True) if self.config.get("norm_topk_prob", True) else probs

    def choose(self, scores: Array, n: int = 0) -> NDArray[np.intp]:
        """Numbers of the best; 0: of as many experts as a row uses."""
        n = n or self.n_used
        ranked = -np.sort(-scores, axis=-1)
        self.gaps.append(float((ranked[:, n - 1] - ranked[:, n]).min()))
        return chosen(scores, n)

    def mlp_shapes(self, i: int) -> Shapes:
        return super().mlp_shapes(i) if self.is_dense(i) else self.mixture_shapes(i)

    def mixture_shapes(self, i: int) -> Shapes:
        shapes = {"router": [self.n_experts, self.hidden]}
        sizes = [self.shared_ffn] if self.shared_ffn else []
        for size in sizes:
            wide = [size, self.hidden]
            shapes |= {"shared_gate": wide, "shared_up": wide, "shared_down": wide[::-1]}
        return {**shapes, **self.expert_shapes(i)}

    def expert_shapes(self, _: int) -> Shapes:
        wide = [self.expert_ffn, self.hidden]
        shapes = {"expert_gate": wide, "expert_up": wide, "expert_down": wide[::-1]}
        return {f"{part}#{e}": shape for e in range(self.n_experts) for part, shape in shapes.items()}


class DeepSeek(Mixture):
    """The first DeepSeek MoE: probs as softmax gives them, dense first layers, shared experts."""

    EXPERTS = "n_routed_experts"
    SHARED = "n_shared_experts"


class DeepSeekOcr(DeepSeek):
    """The text model of DeepSeek-OCR (arXiv 2510.18234): the first DeepSeek MoE, with a factor of the probs.

    The published config states neither: probs are as softmax gives them, the factor is 1.
    """

    def route(self, logits: Array, i: int) -> tuple[NDArray[np.intp], Array]:
        ids = self.choose(logits)
        probs = np.take_along_axis(softmax(logits), ids, axis=-1)
        if self.config.get("norm_topk_prob", False):
            return ids, probs / probs.sum(-1, keepdims=True)
        return ids, probs * self.config.get("routed_scaling_factor", 1.0)


class Bailing(Mixture):
    """Ling 1: a mixture with shared experts, and one matrix of queries, keys and values."""

    SHARED = "num_shared_experts"
    NAMES: ClassVar = {
        "embed": "model.word_embeddings",
        "qkv": "attention.query_key_value",
        "o": "attention.dense",
    }

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        y = self.linear(x, self.of(i, "qkv")).reshape(len(x), -1, self.head_dim)
        q, k, v = np.split(y, [self.heads, self.heads + self.kv_heads], axis=1)
        return q, k, v

    def attention_shapes(self) -> Shapes:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {"qkv": [q + 2 * kv, self.hidden], "o": [self.hidden, q]}


class Bailing2(Bailing):
    """Ling 2: norms of heads, half of each head rotated, groups of experts chosen by biased sigmoids."""

    NAMES: ClassVar = {
        **Bailing.NAMES,
        "q_norm": "attention.query_layernorm",
        "k_norm": "attention.key_layernorm",
        "router_bias": "mlp.gate",
    }

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        q, k, v = super().qkv(x, i)
        return self.norm(q, self.of(i, "q_norm")), self.norm(k, self.of(i, "k_norm")), v

    def rope(self, x: Array) -> Array:
        return rotate(x, self.theta, int(self.head_dim * self.config["partial_rotary_factor"]))

    def route(self, logits: Array, i: int) -> tuple[NDArray[np.intp], Array]:
        """The best experts of the best groups; a group is as good as its two best experts together."""
        probs = 1.0 / (1.0 + np.exp(-logits))
        biased = probs + self.weights[self.of(i, "router") + ".expert_bias"]
        n_groups = self.config["n_group"]
        groups = biased.reshape(len(logits), n_groups, -1)  # [T, groups, experts of a group]
        best = self.choose(np.sort(groups, axis=-1)[..., -2:].sum(-1), self.config["topk_group"])
        is_best = (best[:, :, None] == np.arange(n_groups)).any(1)  # [T, groups]
        ids = self.choose(np.where(np.repeat(is_best, groups.shape[-1], axis=1), biased, -1e9))
        probs = np.take_along_axis(probs, ids, axis=-1)
        return ids, probs / probs.sum(-1, keepdims=True) * self.config["routed_scaling_factor"]

    def attention_shapes(self) -> Shapes:
        return {**super().attention_shapes(), "q_norm": [self.head_dim], "k_norm": [self.head_dim]}

    def mixture_shapes(self, i: int) -> Shapes:
        return {**super().mixture_shapes(i), "router.expert_bias": [self.n_experts]}


class Arctic(Mixture):
    """Arctic: a dense MLP as wide as the stream, beside experts that read the layer's input."""

    EXPERTS = "num_local_experts"
    NAMES: ClassVar = {
        "norm_2": "residual_layernorm",
        "norm_experts": "post_attention_layernorm",
        "gate": "residual_mlp.w1",
        "up": "residual_mlp.w3",
        "down": "residual_mlp.w2",
        "router": "block_sparse_moe.gate",
        "expert_gate": "block_sparse_moe.experts.{e}.w1",
        "expert_up": "block_sparse_moe.experts.{e}.w3",
        "expert_down": "block_sparse_moe.experts.{e}.w2",
    }

    def layer(self, x: Array, i: int) -> Array:
        early = self.norm(x, self.of(i, "norm_experts"))
        x = x + self.attention(self.norm(x, self.of(i, "norm_1")), i)
        x = x + self.gated(self.norm(x, self.of(i, "norm_2")), i, "")
        return x + self.experts(early, early, i)

    def norm_shapes(self) -> Shapes:
        return {**super().norm_shapes(), "norm_experts": [self.hidden]}

    def mlp_shapes(self, i: int) -> Shapes:
        square = [self.hidden, self.hidden]
        return {"gate": square, "up": square, "down": square, **self.mixture_shapes(i)}


class SmallThinker(Mixture):
    """SmallThinker (arXiv 2507.20984): the router reads the layer's input, experts are gated by relu.

    Some layers have a window, some no rotation.
    """

    EXPERTS = "moe_num_primary_experts"
    NAMES: ClassVar = {
        "router": "block_sparse_moe.primary_router",
        "expert_gate": "block_sparse_moe.experts.{e}.gate",
        "expert_up": "block_sparse_moe.experts.{e}.up",
        "expert_down": "block_sparse_moe.experts.{e}.down",
    }

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.n_used, self.expert_ffn = (self.config[name] for name in SMALLTHINKER)
        self.act = ACTS["relu"]

    def layer(self, x: Array, i: int) -> Array:
        router_input = x
        x = x + self.attention(self.norm(x, self.of(i, "norm_1")), i)
        return x + self.experts(self.norm(x, self.of(i, "norm_2")), router_input, i)

    def attention(self, x: Array, i: int) -> Array:
        q, k, v = self.qkv(x, i)
        if self.config["rope_layout"][i]:
            q, k = self.rope(q), self.rope(k)
        window = self.config["sliding_window_size"] if self.config["sliding_window_layout"][i] else 0
        return self.linear(attend(q, k, v, window=window), self.of(i, "o"))

    def route(self, logits: Array, i: int) -> tuple[NDArray[np.intp], Array]:
        ids = self.choose(logits)
        best = np.take_along_axis(logits, ids, axis=-1)
        if self.config["moe_primary_router_apply_softmax"]:
            return ids, softmax(best)
        probs = 1.0 / (1.0 + np.exp(-best))
        return ids, probs / probs.sum(-1, keepdims=True)

    def mlp_shapes(self, i: int) -> Shapes:
        return self.mixture_shapes(i)


class Grove(Mixture):
    """Grove MoE (arXiv 2508.07785): norms of heads; neighbouring experts share a smaller one, whose part of
    the sum is `SCALE` times their probs.
    """

    WIDTH, PAIR, SCALE = 128, 2, 0.05
    NAMES: ClassVar = {
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
        "small_gate": "mlp.chunk_experts.{e}.gate_proj",
        "small_up": "mlp.chunk_experts.{e}.up_proj",
        "small_down": "mlp.chunk_experts.{e}.down_proj",
    }

    def qkv(self, x: Array, i: int) -> tuple[Array, Array, Array]:
        q, k, v = super().qkv(x, i)
        return self.norm(q, self.of(i, "q_norm")), self.norm(k, self.of(i, "k_norm")), v

    def experts(self, x: Array, router_input: Array, i: int) -> Array:
        ids, probs = self.route(self.linear(router_input, self.of(i, "router")), i)
        large = [partial(self.expert, i=i, e=e) for e in range(self.n_experts)]
        small = [partial(self.small, i=i, e=e // self.PAIR) for e in range(self.n_experts)]
        return weighted(x, ids, probs, large) + self.SCALE * weighted(x, ids, probs, small)

    def small(self, x: Array, i: int, e: int) -> Array:
        gate, up, down = (self.of(i, part).format(e=e) for part in ("small_gate", "small_up", "small_down"))
        return self.linear(self.act(self.linear(x, gate)) * self.linear(x, up), down)

    def route(self, logits: Array, i: int) -> tuple[NDArray[np.intp], Array]:
        """The best by sigmoid, weighted by softmax over all experts; the weights sum to 1 in every config."""
        ids, probs = self.choose(logits), softmax(logits)
        probs = np.take_along_axis(probs, ids, axis=-1)
        return ids, probs / probs.sum(-1, keepdims=True)

    def attention_shapes(self) -> Shapes:
        return {**super().attention_shapes(), "q_norm": [self.head_dim], "k_norm": [self.head_dim]}

    def mixture_shapes(self, i: int) -> Shapes:
        wide = [self.WIDTH, self.hidden]
        small = {"small_gate": wide, "small_up": wide, "small_down": wide[::-1]}
        chunks = range(self.n_experts // self.PAIR)
        return {
            **super().mixture_shapes(i),
            **{f"{part}#{e}": shape for e in chunks for part, shape in small.items()},
        }


def capped(logits: Array, config: Mapping[str, Any], name: str) -> Array:
    cap = config.get(f"{name}_logit_softcapping", 0.0)
    return cap * np.tanh(logits / cap) if cap else logits


class Grok(Mixture):
    """Grok-1: capped scores, norms before and after both blocks, probs that are not normalized, scales."""

    LAYER = "model.layers.{i}."
    NAMES: ClassVar = {
        "norm_1": "pre_attn_norm",
        "norm_attention": "post_attn_norm",
        "norm_2": "pre_moe_norm",
        "norm_mlp": "post_moe_norm",
        **{part: f"attn.{part}_proj" for part in "qkvo"},
        "router": "moe_block.gate",
        "expert_gate": "moe_block.experts.{e}.linear",
        "expert_up": "moe_block.experts.{e}.linear_v",
        "expert_down": "moe_block.experts.{e}.linear_1",
    }

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.act = ACTS["gelu_new"]

    def embed(self, ids: Sequence[int]) -> Array:
        return super().embed(ids) * self.config["embedding_multiplier_scale"]

    def head(self, x: Array) -> Array:
        return capped(super().head(x) * self.config["output_multiplier_scale"], self.config, "final")

    def layer(self, x: Array, i: int) -> Array:
        y = self.attention(self.norm(x, self.of(i, "norm_1")), i)
        x = x + self.norm(y, self.of(i, "norm_attention"))
        y = self.mlp(self.norm(x, self.of(i, "norm_2")), i)
        return x + self.norm(y, self.of(i, "norm_mlp"))

    def attention(self, x: Array, i: int) -> Array:
        q, k, v = self.qkv(x, i)
        scale, cap = self.config["attn_output_multiplier"], self.config["max_attn_value"]
        return self.linear(attend(self.rope(q), self.rope(k), v, scale=scale, cap=cap), self.of(i, "o"))

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.eps) * self.weights[f"{name}.scale"]

    def route(self, logits: Array, i: int) -> tuple[NDArray[np.intp], Array]:
        logits = capped(logits, self.config, "router")
        ids = self.choose(logits)
        probs = np.take_along_axis(softmax(logits), ids, axis=-1)
        return ids, probs / probs.sum(-1, keepdims=True) if self.config.get("norm_topk_prob") else probs

    def norm_shapes(self) -> Shapes:
        parts = ("norm_1", "norm_attention", "norm_2", "norm_mlp")
        return {f"{part}.scale": [self.hidden] for part in parts}

    def mlp_shapes(self, i: int) -> Shapes:
        return self.mixture_shapes(i)

    def shapes(self) -> Shapes:
        shapes = super().shapes()
        last = self.names["last_norm"]
        shapes[f"{last}.scale"] = shapes.pop(f"{last}.weight")
        return dict(sorted(shapes.items()))


MIXTURES: dict[str, type[Decoder]] = {
    "deepseek": DeepSeek,
    "deepseek_vl_v2": DeepSeekOcr,
    "bailing_moe": Bailing,
    "bailing_moe_v2": Bailing2,
    "arctic": Arctic,
    "smallthinker": SmallThinker,
    "grove_moe": Grove,
    "grok-1": Grok,
}
