"""Definitions of RWKV-6 "Finch" (arXiv 2404.05892, section 4) and of QRWKV6, in published names."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes, biases
from tests.golden.definitions.numbers import Array, before, layer_norm, relu, rotate, sigmoid, silu

MIXED = "wkvrg"
BONUS = "time_faaaa"


class Mixed(Decoder):
    """Parts of RWKV-6: mixes and decays that depend on the data."""

    MIXER: ClassVar[str]
    ORDER: ClassVar[str]  # of the mixed inputs in time_maa_w1 and time_maa_w2

    def bare(self, i: int, name: str) -> Array:
        return self.weights[self.LAYER.format(i=i) + name]

    def mixes(self, x: Array, i: int) -> dict[str, Array]:
        """ddlerp: x + change * (lambda + tanh((x + change * mu) A) B), by letter."""
        change = (before(x) - x) * self.config.get("use_tokenshift", True)
        part = lambda name: self.bare(i, f"{self.MIXER}time_maa_{name}")  # noqa: E731
        low = np.tanh((x + change * part("x").ravel()) @ part("w1"))
        lows = zip(self.ORDER, np.split(low, 5, axis=-1), part("w2"), strict=True)
        return {name: x + change * (part(name).ravel() + rank @ up) for name, rank, up in lows}

    def decays(self, x: Array, i: int) -> Array:
        """exp(-exp(d)) of each column."""
        part = lambda name: self.bare(i, f"{self.MIXER}time_decay{name}")  # noqa: E731
        return np.exp(-np.exp(part("").ravel() + np.tanh(x @ part("_w1")) @ part("_w2")))

    def heads_of(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.head_dim)  # [T, H, D]

    def shapes(self) -> Shapes:
        shapes = super().shapes()
        for i in range(self.layers):
            shapes |= {self.LAYER.format(i=i) + name: shape for name, shape in self.bare_shapes().items()}
        return dict(sorted(shapes.items()))

    def bare_shapes(self) -> Shapes:
        """The tensors without an ending, by name in their layer."""
        n, mix_rank = self.hidden, self.config.get("lora_rank_tokenshift", 32)
        decay_rank = self.config.get("lora_rank_decay", 64)
        vectors = ("time_decay", *(f"time_maa_{name}" for name in ("x", *MIXED)))
        shapes = {name: [1, 1, n] for name in vectors}
        shapes |= {"time_maa_w1": [n, 5 * mix_rank], "time_maa_w2": [5, mix_rank, n]}
        shapes |= {"time_decay_w1": [n, decay_rank], "time_decay_w2": [decay_rank, n]}
        return {self.MIXER + name: shape for name, shape in shapes.items()}


class Rwkv6(Mixed):
    """Row by row: y = r (S + diag(u) k^T v), S = diag(w) S + k^T v, with S [keys, values] of each head.

    As in the published class, the stream is halved after every `rescale_every` layers, with the outputs of
    later layers.
    """

    KEYS: ClassVar = {"eps": "layer_norm_epsilon"}
    LAYER: ClassVar = "rwkv.blocks.{i}."
    NAMES: ClassVar = {
        "embed": "rwkv.embeddings",
        "last_norm": "rwkv.ln_out",
        "head": "head",
        "first_norm": "pre_ln",
        "norm_1": "ln1",
        "norm_2": "ln2",
        "r": "attention.receptance",
        "k": "attention.key",
        "v": "attention.value",
        "g": "attention.gate",
        "o": "attention.output",
        "heads_norm": "attention.ln_x",
        "key": "feed_forward.key",
        "value": "feed_forward.value",
        "receptance": "feed_forward.receptance",
    }
    MIXER: ClassVar = "attention."
    ORDER: ClassVar = MIXED

    @property
    def head_dim(self) -> int:
        return self.config["head_size"]

    def scale(self, i: int) -> float:
        every = self.config["rescale_every"]
        return 0.5 ** (i // every) if every else 1.0

    def embed(self, ids: object) -> Array:
        return self.norm(super().embed(ids), self.of(0, "first_norm"))  # pyright: ignore[reportArgumentType]

    def norm(self, x: Array, name: str) -> Array:
        return layer_norm(x, self.eps) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def layer(self, x: Array, i: int) -> Array:
        x = x + self.attention(self.norm(x, self.of(i, "norm_1")), i) * self.scale(i)
        x = x + self.mlp(self.norm(x, self.of(i, "norm_2")), i) * self.scale(i)
        return x * (self.scale(i + 1) / self.scale(i))

    def attention(self, x: Array, i: int) -> Array:
        mixed = self.mixes(x, i)
        r, k, v = (self.heads_of(self.linear(mixed[name], self.of(i, name))) for name in "rkv")
        y = self.wkv(r, self.heads_of(self.decays(mixed["w"], i)), k, v, self.bare(i, self.MIXER + BONUS))
        name, eps = self.of(i, "heads_norm"), 1e-5 * self.config["head_size_divisor"] ** 2
        y = layer_norm(y, eps).reshape(x.shape) * self.weights[f"{name}.weight"]
        y = y + self.weights[f"{name}.bias"]
        return self.linear(y * silu(self.linear(mixed["g"], self.of(i, "g"))), self.of(i, "o"))

    def wkv(self, r: Array, w: Array, k: Array, v: Array, u: Array) -> Array:
        """The output of each row; [T, H, D]."""
        state, rows = np.zeros((r.shape[1], self.head_dim, self.head_dim)), list[Array]()
        for t in range(len(r)):
            now = np.einsum("hi,hj->hij", k[t], v[t])
            rows.append(np.einsum("hi,hij->hj", r[t], state + u[..., None] * now))
            state = w[t][..., None] * state + now
        return np.stack(rows)

    def mlp(self, x: Array, i: int) -> Array:
        change = before(x) - x
        k, r = (x + change * self.bare(i, f"feed_forward.time_maa_{name}").ravel() for name in "kr")
        value = self.linear(relu(self.linear(k, self.of(i, "key"))) ** 2, self.of(i, "value"))
        return sigmoid(self.linear(r, self.of(i, "receptance"))) * value

    def shapes(self) -> Shapes:
        return dict(sorted({**super().shapes(), "rwkv.ln_out.bias": [self.hidden]}.items()))

    def bare_shapes(self) -> Shapes:
        vector = [1, 1, self.hidden]
        own = {f"feed_forward.time_maa_{name}": vector for name in "kr"}
        bonus = {self.MIXER + BONUS: [self.hidden // self.head_dim, self.head_dim]}
        return {**own, **bonus, **super().bare_shapes()}

    def layer_shapes(self, i: int) -> Shapes:
        names = ("norm_1", "norm_2", "heads_norm", *(("first_norm",) if i == 0 else ()))
        norms = {name: [self.hidden] for name in names}
        square = [self.hidden, self.hidden]
        mlp = {"key": [self.ffn, self.hidden], "value": [self.hidden, self.ffn], "receptance": square}
        return {**norms, **biases(norms, *norms), **dict.fromkeys("rkvgo", square), **mlp}


class Qrwkv6(Mixed):
    """QRWKV6, Qwen 2 with RWKV-6's mixes in gated linear attention (arXiv 2312.06635, section 4).

    Row by row: S = diag(w) S + ((1 - w) k)^T v, y = q S / sqrt(D), with S [keys, values] of each head.
    Settings that Camelid refuses: queries and keys rotated, no mixes, plain keys, a norm of heads, no gate.
    """

    MIXER: ClassVar = "self_attn."
    ORDER: ClassVar = "rkvwg"
    NAMES: ClassVar = {"g": "self_attn.gate"}

    def attention(self, x: Array, i: int) -> Array:
        mixed, config, n = self.mixes(x, i), self.config, self.heads // self.kv_heads
        letters = {"q": "r", "k": "k", "v": "v"}
        q, k, v = (self.heads_of(self.linear(mixed[m], self.of(i, p))) for p, m in letters.items())
        q, k = (rotate(rows, self.theta) if config["use_rope"] else rows for rows in (q, k))
        k, v, w = np.repeat(k, n, axis=1), np.repeat(v, n, axis=1), self.heads_of(self.decays(mixed["w"], i))
        y = self.scan(q, w, k * (1.0 - w) if config["balance_state"] else k, v) / np.sqrt(self.head_dim)
        y = layer_norm(y, 1e-5 * self.head_dim) if config["groupnorm_att"] else y
        gate = sigmoid(self.linear(mixed["g"], self.of(i, "g"))) if config["gate_rank_type"] else 1.0
        return self.linear(y.reshape(x.shape) * gate, self.of(i, "o"))

    def scan(self, q: Array, w: Array, k: Array, v: Array) -> Array:
        """The output of each row; [T, H, D]."""
        state, rows = np.zeros((self.heads, self.head_dim, self.head_dim)), list[Array]()
        for t in range(len(q)):
            state = w[t][..., None] * state + np.einsum("hi,hj->hij", k[t], v[t])
            rows.append(np.einsum("hi,hij->hj", q[t], state))
        return np.stack(rows)

    def attention_shapes(self) -> Shapes:
        shapes = super().attention_shapes()
        return {**shapes, **biases(shapes, "q", "k", "v"), "g": [self.hidden, self.hidden]}


RWKV6: dict[str, type[Decoder]] = {"rwkv6": Rwkv6, "rwkv6qwen2": Qrwkv6}
