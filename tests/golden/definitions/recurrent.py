"""Definitions of models whose layers have a state in place of attention: RWKV-7, ARWKV-7, PLaMo 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from tests.golden.definitions.decoder import Decoder, Shapes, biases
from tests.golden.definitions.numbers import (
    ACTS,
    Array,
    attend,
    before,
    layer_norm,
    rms_norm,
    rotate,
    sigmoid,
    silu,
)

MIXED = "rwkvag"


class Rwkv7(Decoder):
    """RWKV-7 "Goose" (arXiv 2503.14456, sections 4 and 5, and its appendix with the model's equations).

    Row by row: S = S (diag(w) - u^T (a * u)) + v^T k, with S [values, keys] of each head.
    """

    KEYS: ClassVar = {"eps": "norm_eps", "act": "hidden_act"}
    NAMES: ClassVar = {
        "embed": "model.embeddings",
        "first_norm": "pre_norm",
        "norm_1": "attn_norm",
        "norm_2": "ffn_norm",
        "key": "ffn.key",
        "value": "ffn.value",
        **{f"x_{letter}": f"attn.x_{letter}" for letter in MIXED},
        **{f"{name}_proj": f"attn.{name}_proj" for name in "rkvo"},
        **{f"{name}_down": f"attn.{name}_lora.lora.0" for name in "wavg"},
        **{f"{name}_up": f"attn.{name}_lora.lora.2" for name in "wavg"},
        "k_k": "attn.k_k",
        "k_a": "attn.k_a",
        "r_k": "attn.r_k",
        "heads_norm": "attn.g_norm",
        "ffn_x_k": "ffn.x_k",
    }
    BARE: ClassVar = (*(f"x_{letter}" for letter in MIXED), "k_k", "k_a", "r_k", "ffn_x_k")  # without ending

    def __init__(self, config: dict[str, object], *args: object) -> None:
        acts = {"sqrelu": "relu2"}
        act = acts.get(str(config["hidden_act"]), config["hidden_act"])
        super().__init__({**config, "hidden_act": act}, *args)  # pyright: ignore[reportArgumentType]
        self.act = ACTS[str(act)]
        self.heads = self.hidden // self.head_dim
        self.first_values: Array | None = None

    @property
    def heads_eps(self) -> float:
        return self.head_dim * self.eps

    @property
    def letters(self) -> str:
        """The letters of the mixed inputs."""
        return MIXED

    def logits(self, ids: Sequence[int]) -> Array:
        self.first_values = None
        return super().logits(ids)

    def embed(self, ids: Sequence[int]) -> Array:
        x = super().embed(ids)
        return self.norm(x, self.of(0, "first_norm")) if self.config["norm_first"] else x

    def norm(self, x: Array, name: str) -> Array:
        y = layer_norm(x, self.eps) * self.weights[f"{name}.weight"]
        return y + self.weights[f"{name}.bias"] if self.config["norm_bias"] else y

    def part(self, i: int, name: str) -> Array:
        return self.weights[self.of(i, name)].ravel()

    def mix(self, x: Array, before: Array, share: Array) -> Array:
        return x + (before - x) * share

    def pair(self, x: Array, i: int, name: str) -> Array:
        act = {"w": np.tanh, "g": sigmoid}.get(name, lambda y: y)
        return self.linear(act(self.linear(x, self.of(i, f"{name}_down"))), self.of(i, f"{name}_up"))

    def attention(self, x: Array, i: int) -> Array:
        mixed = {letter: self.mix(x, before(x), self.part(i, f"x_{letter}")) for letter in self.letters}
        r, k, v = (self.linear(mixed[name], self.of(i, f"{name}_proj")) for name in "rkv")
        if self.first_values is None:
            self.first_values = v
        else:
            v = v + (self.first_values - v) * sigmoid(self.pair(mixed["v"], i, "v"))
        decay = np.exp(-np.exp(-0.5) * sigmoid(self.pair(mixed["w"], i, "w")))
        rate = sigmoid(self.pair(mixed["a"], i, "a"))
        heads = (len(x), self.heads, self.head_dim)
        removed = (k * self.part(i, "k_k")).reshape(heads)
        removed = removed / np.maximum(np.linalg.norm(removed, axis=-1, keepdims=True), 1e-12)
        k = k * (1.0 + (rate - 1.0) * self.part(i, "k_a"))
        r, k, v, decay, rate = (y.reshape(heads) for y in (r, k, v, decay, rate))
        y = self.norm_heads(self.wkv(r, decay, k, v, removed, rate), i)
        bonus = (r * k * self.part(i, "r_k").reshape(heads[1:])).sum(-1, keepdims=True) * v
        y = self.gated(y.reshape(x.shape) + bonus.reshape(x.shape), mixed, i)
        return self.linear(y, self.of(i, "o_proj"))

    def norm_heads(self, y: Array, i: int) -> Array:
        """Norms each head; [T, H, D]."""
        y, name = layer_norm(y, self.heads_eps), self.of(i, "heads_norm")
        gain, bias = (self.weights[f"{name}.{kind}"].reshape(y.shape[1:]) for kind in ("weight", "bias"))
        return y * gain + bias

    def gated(self, y: Array, mixed: dict[str, Array], i: int) -> Array:
        return y * self.pair(mixed["g"], i, "g")

    def wkv(self, r: Array, decay: Array, k: Array, v: Array, removed: Array, rate: Array) -> Array:
        """The output of each row; [T, H, D]."""
        state, rows = np.zeros((self.heads, self.head_dim, self.head_dim)), list[Array]()
        for t in range(len(r)):
            move = np.einsum("hi,hj->hij", removed[t], removed[t] * rate[t])
            shrink = np.einsum("hi,ij->hij", decay[t], np.eye(self.head_dim))
            state = state @ (shrink - move) + np.einsum("hi,hj->hij", v[t], k[t])
            rows.append(np.einsum("hij,hj->hi", state, r[t]))
        return np.stack(rows)

    def mlp(self, x: Array, i: int) -> Array:
        k = self.linear(self.mix(x, before(x), self.part(i, "ffn_x_k")), self.of(i, "key"))
        return self.linear(self.act(k), self.of(i, "value"))

    def shapes(self) -> Shapes:
        shapes = {**super().shapes(), "model.norm.bias": [self.hidden]}
        bare = tuple(f".{self.names[name]}.weight" for name in self.BARE)
        named = {n.removesuffix(".weight") if n.endswith(bare) else n: s for n, s in shapes.items()}
        return dict(sorted(named.items()))

    def layer_shapes(self, i: int) -> Shapes:
        norms = {"norm_1": [self.hidden], "norm_2": [self.hidden], "heads_norm": [self.hidden]}
        norms |= {"first_norm": [self.hidden]} if i == 0 else {}
        return {
            **norms,
            **biases(norms, *norms),
            **self.attention_shapes(),
            **self.pair_shapes(i),
            **self.mlp_shapes(i),
        }

    def attention_shapes(self) -> Shapes:
        square, vector = [self.hidden, self.hidden], [self.hidden]
        mixed = {f"x_{letter}": [1, 1, self.hidden] for letter in MIXED}
        own = {"k_k": vector, "k_a": vector, "r_k": [self.heads, self.head_dim]}
        return {**mixed, **own, **{f"{name}_proj": square for name in "rkvo"}}

    def pair_shapes(self, i: int) -> Shapes:
        keys = {"w": "decay", "a": "a", "v": "v", "g": "gate"}
        ranks = {name: self.config[f"{key}_low_rank_dim"] for name, key in keys.items() if i or name != "v"}
        downs = {f"{name}_down": [rank, self.hidden] for name, rank in ranks.items()}
        ups = {f"{name}_up": [self.hidden, rank] for name, rank in ranks.items()}
        return {**downs, **ups, **biases(ups, *(name for name in ups if name != "g_up"))}

    def mlp_shapes(self, _: int) -> Shapes:
        return {"ffn_x_k": [self.hidden], "key": [self.ffn, self.hidden], "value": [self.hidden, self.ffn]}


class Arwkv7(Rwkv7):
    """ARWKV-7 (arXiv 2501.15570): Qwen 2 with RWKV-7's time mix, whose heads may have no norm and no gate."""

    KEYS: ClassVar = {}
    NAMES: ClassVar = {
        **{f"x_{letter}": f"self_attn.time_mixer.x_{letter}" for letter in MIXED},
        **{f"{letter}{i}": f"self_attn.time_mixer.{letter}{i}" for letter in "wavg" for i in range(3)},
        **{name: f"self_attn.time_mixer.{name}" for name in ("k_k", "k_a", "r_k")},
        "r_proj": "self_attn.time_mixer.receptance",
        "k_proj": "self_attn.time_mixer.key",
        "v_proj": "self_attn.time_mixer.value",
        "o_proj": "self_attn.time_mixer.output",
        "heads_norm": "self_attn.time_mixer.ln_x",
    }
    BARE: ClassVar = (*(name for name in NAMES if name[-5:] not in ("_proj", "_norm")),)

    @property
    def head_dim(self) -> int:
        return self.config["head_size"]

    @property
    def heads_eps(self) -> float:
        return 1e-5 * self.config["head_size_divisor"] ** 2

    @property
    def letters(self) -> str:
        return MIXED if self.config["wkv_has_gate"] else MIXED[:-1]

    def embed(self, ids: Sequence[int]) -> Array:
        return Decoder.embed(self, ids)

    def norm(self, x: Array, name: str) -> Array:
        return Decoder.norm(self, x, name)

    def mlp(self, x: Array, i: int) -> Array:
        return Decoder.mlp(self, x, i)

    def norm_heads(self, y: Array, i: int) -> Array:
        return super().norm_heads(y, i) if self.config["wkv_has_group_norm"] else y

    def gated(self, y: Array, mixed: dict[str, Array], i: int) -> Array:
        return super().gated(y, mixed, i) if self.config["wkv_has_gate"] else y

    def pair(self, x: Array, i: int, name: str) -> Array:
        act = {"w": np.tanh, "g": sigmoid}.get(name, lambda y: y)
        y = act(x @ self.weights[self.of(i, f"{name}1")]) @ self.weights[self.of(i, f"{name}2")]
        return y if name == "g" else y + self.part(i, f"{name}0")

    def shapes(self) -> Shapes:
        return {name: shape for name, shape in super().shapes().items() if name != "model.norm.bias"}

    def layer_shapes(self, i: int) -> Shapes:
        shapes = {**self.norm_shapes(), **self.attention_shapes(), **Decoder.mlp_shapes(self, i)}
        if self.config["wkv_has_group_norm"]:
            shapes |= {"heads_norm": [self.hidden], "heads_norm.bias": [self.hidden]}
        return {**shapes, **self.pair_shapes(i)}

    def attention_shapes(self) -> Shapes:
        vector, shapes = [1, 1, self.hidden], super().attention_shapes()
        kept = {name: shape for name, shape in shapes.items() if name[2:] in self.letters or name[0] != "x"}
        return {**kept, "k_k": vector, "k_a": vector}

    def pair_shapes(self, _: int) -> Shapes:
        ranks = {"w": 64, "a": 64, "v": 32, **({"g": 128} if self.config["wkv_has_gate"] else {})}
        biases = {f"{name}0": [1, 1, self.hidden] for name in ranks if name != "g"}
        downs = {f"{name}1": [self.hidden, rank] for name, rank in ranks.items()}
        return {**biases, **downs, **{f"{name}2": [rank, self.hidden] for name, rank in ranks.items()}}


class Plamo2(Decoder):
    """PLaMo 2 (arXiv 2509.04897): layers of Mamba 2's scan, with normed B, C and time steps of low rank, and
    of attention in a window, with a gain for each head. Norms have offsets of their gains.
    """

    LAYER: ClassVar[str] = "model.layers.layers.{i}."
    OFFSETS: ClassVar = {
        "pre_mixer_norm": 1.0, "post_mixer_norm": 0.2, "pre_mlp_norm": 1.0, "post_mlp_norm": 5**-1.5,
    }  # fmt: skip
    HEAD_EPS = 1e-6

    @property
    def head_dim(self) -> int:
        return self.config["hidden_size_per_head"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Heads of the scan, columns of a state, rank of time steps."""
        return self.config["mamba_num_heads"], self.config["mamba_d_state"], max(64, self.hidden // 16)

    def has_attention(self, i: int) -> bool:
        step = self.config["mamba_step"]
        return i % step == step // 2

    def layer(self, x: Array, i: int) -> Array:
        mixer = self.attention if self.has_attention(i) else self.mamba
        x = x + self.offset(mixer(self.offset(x, i, "pre_mixer_norm"), i), i, "post_mixer_norm")
        return x + self.offset(self.mlp(self.offset(x, i, "pre_mlp_norm"), i), i, "post_mlp_norm")

    def head(self, x: Array) -> Array:
        return x @ self.weights["model.embed_tokens.weight"].T

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.eps) * (1.0 + self.weights[name + ".weight"])

    def offset(self, x: Array, i: int, name: str) -> Array:
        return rms_norm(x, self.eps) * (self.OFFSETS[name] + self.tensor(i, f"{name}.weight"))

    def tensor(self, i: int, name: str) -> Array:
        return self.weights[self.LAYER.format(i=i) + name]

    def attention(self, x: Array, i: int) -> Array:
        n_q, n_kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        rows = x @ self.tensor(i, "mixer.qkv_proj.weight").T
        q, k, v = (part.reshape(len(x), -1, self.head_dim) for part in np.split(rows, [n_q, n_q + n_kv], -1))
        q = rotate(rms_norm(q, self.HEAD_EPS) * self.tensor(i, "mixer.q_weight"), 10000.0)
        k = rotate(rms_norm(k, self.HEAD_EPS) * self.tensor(i, "mixer.k_weight"), 10000.0)
        window = self.config["attention_window_size"]
        return attend(q, k, v, window=window) @ self.tensor(i, "mixer.o_proj.weight").T

    def mamba(self, h: Array, i: int) -> Array:
        n_heads, n_state, _ = self.sizes
        zx = (h @ self.tensor(i, "mixer.in_proj.weight").T).reshape(len(h), n_heads, -1)
        z, x = np.split(zx, 2, axis=-1)  # [T, H, P] each
        x = self.convolved(x.reshape(len(h), -1), self.tensor(i, "mixer.conv1d.weight")[:, 0])
        bcdt = x @ self.tensor(i, "mixer.bcdt_proj.weight").T
        parts = np.split(bcdt, [n_state, 2 * n_state], axis=-1)
        b, c, dt = (
            rms_norm(part, self.eps) * self.tensor(i, f"mixer.{name}_norm_weight")
            for part, name in zip(parts, ("B", "C", "dt"), strict=True)
        )
        dt = np.logaddexp(
            0.0, dt @ self.tensor(i, "mixer.dt_proj.weight").T + self.tensor(i, "mixer.dt_bias")
        )
        y = self.scanned(x.reshape(len(h), n_heads, -1), b, c, dt, i) * silu(z)
        return y.reshape(len(h), -1) @ self.tensor(i, "mixer.out_proj.weight").T

    @staticmethod
    def convolved(x: Array, kernel: Array) -> Array:
        """silu of the causal convolution of each column; x [T, I], kernel [I, W]."""
        width = kernel.shape[1]
        padded = np.concatenate([np.zeros((width - 1, x.shape[1])), x])
        return silu(np.stack([(padded[t : t + width].T * kernel).sum(1) for t in range(len(x))]))

    def scanned(self, x: Array, b: Array, c: Array, dt: Array, i: int) -> Array:
        """State S [H, P, N] of each row: exp(dt a) S + dt x b; the result is S c + D x."""
        decays, skip = -np.exp(self.tensor(i, "mixer.A_log")), self.tensor(i, "mixer.D")
        state, rows = np.zeros((*x.shape[1:], b.shape[1])), list[Array]()
        for row, b_t, c_t, dt_t in zip(x, b, c, dt, strict=True):
            state = state * np.exp(dt_t * decays)[:, None, None]
            state = state + np.einsum("h,hp,n->hpn", dt_t, row, b_t)
            rows.append(state @ c_t + skip[:, None] * row)
        return np.stack(rows)

    def mlp(self, x: Array, i: int) -> Array:
        gate, up = np.split(x @ self.tensor(i, "mlp.gate_up_proj.weight").T, 2, axis=-1)
        return (silu(gate) * up) @ self.tensor(i, "mlp.down_proj.weight").T

    def shapes(self) -> Shapes:
        shapes = {"model.embed_tokens.weight": [self.vocab, self.hidden], "model.norm.weight": [self.hidden]}
        for i in range(self.layers):
            own = self.attention_shapes() if self.has_attention(i) else self.mamba_shapes()
            inner = {f"mixer.{name}": shape for name, shape in own.items()}
            inner |= {f"{name}.weight": [self.hidden] for name in self.OFFSETS}
            inner["mlp.gate_up_proj.weight"] = [2 * self.ffn, self.hidden]
            inner["mlp.down_proj.weight"] = [self.hidden, self.ffn]
            shapes |= {self.LAYER.format(i=i) + name: shape for name, shape in inner.items()}
        return dict(sorted(shapes.items()))

    def attention_shapes(self) -> Shapes:
        n_q, n_kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "qkv_proj.weight": [n_q + 2 * n_kv, self.hidden],
            "o_proj.weight": [self.hidden, n_q],
            "q_weight": [self.heads, self.head_dim],
            "k_weight": [self.kv_heads, self.head_dim],
        }

    def mamba_shapes(self) -> Shapes:
        n_heads, n_state, rank = self.sizes
        inner = n_heads * self.head_dim
        return {
            "in_proj.weight": [2 * inner, self.hidden],
            "conv1d.weight": [inner, 1, self.config["mamba_d_conv"]],
            "bcdt_proj.weight": [rank + 2 * n_state, inner],
            "dt_proj.weight": [n_heads, rank],
            "out_proj.weight": [self.hidden, inner],
            **{name: [n_heads] for name in ("dt_bias", "A_log", "D")},
            "dt_norm_weight": [rank],
            "B_norm_weight": [n_state],
            "C_norm_weight": [n_state],
        }


RECURRENT: dict[str, type[Decoder]] = {"rwkv7": Rwkv7, "rwkv_hybrid": Arwkv7, "plamo2": Plamo2}
