"""RWKV-6 and 7, whose layers have a state in place of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import MIXED, OUTER, PRE_NORMS, Arch

NORMS = ("token_embd_norm", "output_norm", *PRE_NORMS, "time_mix_ln")
SECOND_NORM = {"attn_norm_2": (("ffn_norm", "C"),)}  # llama.cpp's name
MIXES = {
    "time_mix_lerp_fused": tuple((f"time_mix_lerp_{letter}", "1") for letter in MIXED),
    "time_mix_w2": tuple((f"time_mix_w2_{letter}", "1") for letter in MIXED),
}
ARCHS: dict[str, Arch] = {
    "rwkv6": Arch(
        rope_style="",
        norm_kind="layer",
        outer={**OUTER, "token_embd_norm": "C"},
        mixers=("rwkv6",),
        ones=("one",),
        mlp="channel_mix6",
        act="relu2",
        biases=NORMS,
        splits={**SECOND_NORM, **MIXES},
        refused={"token_shift_count": (2,)},
    ),
    "rwkv6qwen2": Arch(
        rope_style="", mixers=("gated_rwkv6",), ones=("one",), splits=MIXES,
        optional_biases=("time_mix_receptance", "time_mix_key", "time_mix_value"),
        refused={"token_shift_count": (1,), "rescale_every_n_layers": (0,)},
    ),
    "rwkv7": Arch(
        rope_style="",
        norm_kind="layer",
        tensors={**PRE_NORMS, "time_mix_ln": "C"},
        outer={**OUTER, "token_embd_norm": "C"},
        mixers=("rwkv7_first", "rwkv7"),
        opens=True,
        mlp="channel_mix",
        act="relu2",
        biases=NORMS,
        splits=SECOND_NORM,
        refused={"token_shift_count": (2,)},
    ),
    "arwkv7": Arch(
        rope_style="", mixers=("rwkv7_first", "rwkv7"), opens=True, refused={"token_shift_count": (1,)},
        optional={"time_mix_ln": "C"}, optional_biases=("time_mix_ln",),
    ),
}  # fmt: skip


def _pair(letter: str, published: str) -> hf.Names:
    """Two matrices of low rank and their bias, by the letter of their input."""
    return {
        f"time_mix_{letter}{i}.weight": f"attn.{published}_lora.lora.{inner}"
        for i, inner in enumerate(("2.bias", "0.weight", "2.weight"))
    }


GATE: hf.Names = {name: inner for name, inner in _pair("g", "g").items() if not inner.endswith("bias")}
RWKV6: hf.Names = {
    "time_mix_lerp_x.weight": "time_maa_x", "time_mix_lerp_fused.weight": f"time_maa_{{{MIXED}}}",
    "time_mix_w1.weight": "time_maa_w1", "time_mix_w2.weight": "time_maa_w2",
    "time_mix_decay.weight": "time_decay", "time_mix_decay_w1.weight": "time_decay_w1",
    "time_mix_decay_w2.weight": "time_decay_w2",
}  # fmt: skip
RWKV6_FOLDS: hf.Names = {
    "time_mix_lerp_x": "flat", "time_mix_w1": "transpose", "time_mix_w2": "transpose_each",
    "time_mix_decay": "flat", "time_mix_decay_w1": "transpose", "time_mix_decay_w2": "transpose",
}  # fmt: skip
OF_RKVWG = {"time_mix_w1": "transpose of_rkvwg", "time_mix_w2": "transpose_each of_rkvwg"}
NO_CONTEXT: Mapping[str, Callable[[Config], MetadataValue]] = {
    "attention.head_count": lambda _: 0, "context_length": lambda _: 1 << 20,
}  # fmt: skip


def _ffn_size(config: Config) -> int:
    """The stated width, or 3.5 times the hidden size in whole blocks of 32."""
    return config.count("intermediate_size", config.count("hidden_size") * 7 // 64 * 32)


def _rank(key: str, default: int) -> Callable[[Config], MetadataValue]:
    """The stated rank, or the default, twice as much for wide models."""
    return lambda config: config.count(key, default * (1 + (config.count("hidden_size") >= 4096)))


QWEN2: hf.Names = {
    "time_mix_receptance": "q_proj", "time_mix_key": "k_proj", "time_mix_value": "v_proj",
    "time_mix_output": "o_proj", "time_mix_gate": "gate",
}  # fmt: skip
RWKV7_PARTS = ("w0", "w1", "w2", "a0", "a1", "a2", "v0", "v1", "v2", "k_k", "k_a", "r_k")
ARWKV7: hf.Names = {
    **{f"time_mix_{name}.weight": name for name in RWKV7_PARTS},
    **{f"time_mix_{name}": name for name in ("receptance", "key", "value", "output")},
    "time_mix_ln": "ln_x", "time_mix_g1.weight": "g1", "time_mix_g2.weight": "g2",
}  # fmt: skip
TURNED = dict.fromkeys((f"time_mix_{letter}{i}" for letter in "wavg" for i in (1, 2)), "transpose")
FLAT = dict.fromkeys((f"time_mix_{name}" for name in ("w0", "a0", "v0", "k_k", "k_a", "r_k")), "flat")


def _arwkv7_mixes(config: Config) -> hf.Names:
    letters = "rwkvag" if config.flag("wkv_has_gate", True) else "rwkva"
    return {"time_mix_lerp_fused.weight": f"self_attn.time_mixer.x_{{{letters}}}"}


HF_ROWS: dict[str, hf.HfRow] = {
    "rwkv6": hf.HfRow(
        arch="rwkv6",
        layer="rwkv.blocks.{i}.",
        names={
            "attn_norm": "ln1", "attn_norm_2": "ln2",
            **hf.prefixed(RWKV6, "attention."), "time_mix_first.weight": "attention.time_faaaa",
            **{f"time_mix_{name}": f"attention.{name}" for name in ("receptance", "key", "value", "gate")},
            "time_mix_output": "attention.output", "time_mix_ln": "attention.ln_x",
            **{f"channel_mix_lerp_{x}.weight": f"feed_forward.time_maa_{x}" for x in "kr"},
            **{f"channel_mix_{name}": f"feed_forward.{name}" for name in ("receptance", "key", "value")},
        },
        outer={
            **hf.outer("rwkv.embeddings", "rwkv.ln_out", "head"), "token_embd_norm": "rwkv.blocks.0.pre_ln"
        },
        folds={
            **RWKV6_FOLDS, "channel_mix_lerp_k": "flat", "channel_mix_lerp_r": "flat",
            "time_mix_output": "rescaled", "channel_mix_value": "rescaled",
        },
        keys={**hf.KEYS, "norm_eps": "layer_norm_epsilon"},
        counts={"wkv.head_size": "head_size", "rescale_every_n_layers": "rescale_every"},
        derived={
            **NO_CONTEXT,
            "feed_forward_length": _ffn_size,
            "time_mix_extra_dim": lambda c: 64 if c.count("hidden_size") == 4096 else 32,
            "time_decay_extra_dim": lambda c: 128 if c.count("hidden_size") == 4096 else 64,
        },
        defaults={
            "hidden_size": 768, "num_hidden_layers": 24, "head_size": 64, "rescale_every": 6,
            "layer_norm_epsilon": 1e-5,
        },
        refused={"head_size_divisor": (8,)},
    ),
    "rwkv6qwen2": hf.HfRow(
        arch="rwkv6qwen2",
        names={**hf.PRE_NORMS, **hf.GLU, **hf.prefixed({**RWKV6, **QWEN2}, "self_attn.")},
        folds={**RWKV6_FOLDS, **OF_RKVWG},
        counts={"attention.head_count_kv": "num_key_value_heads"},
        derived={
            **NO_CONTEXT, "token_shift_count": lambda _: 1,
            "wkv.head_size": lambda c: c.count("hidden_size") // c.count("num_attention_heads"),
            "time_mix_extra_dim": _rank("lora_rank_tokenshift", 32),
            "time_decay_extra_dim": _rank("lora_rank_decay", 64),
        },
        refused={
            "use_rope": (False,), "use_tokenshift": (True, 1), "balance_state": (True, 1),
            "groupnorm_att": (False, 0), "gate_rank_type": (1,),
        },
        has_window_switch=True,
    ),
    "rwkv7": hf.HfRow(
        arch="rwkv7",
        names={
            "attn_norm": "attn_norm",
            "attn_norm_2": "ffn_norm",
            "time_mix_lerp_fused.weight": "attn.x_{rwkvag}",
            "time_mix_receptance": "attn.r_proj",
            "time_mix_key": "attn.k_proj",
            "time_mix_value": "attn.v_proj",
            "time_mix_output": "attn.o_proj",
            "time_mix_ln": "attn.g_norm",
            **{f"time_mix_{name}.weight": f"attn.{name}" for name in ("k_k", "k_a", "r_k")},
            **{name: inner for letter in "wav" for name, inner in _pair(letter, letter).items()},
            **GATE,
            "channel_mix_lerp_k.weight": "ffn.x_k",
            "channel_mix_key": "ffn.key",
            "channel_mix_value": "ffn.value",
        },
        first=_pair("v", "a"),  # as in llama.cpp's files
        outer={
            **hf.outer("model.embeddings", "model.norm"),
            "token_embd_norm": "model.layers.0.pre_norm",
        },
        ignored=("model.layers.0.attn.v_lora.",),
        folds={"time_mix_r_k": "flat", "channel_mix_lerp_k": "flat"},
        keys={**hf.KEYS, "norm_eps": "norm_eps"},
        counts={
            "wkv.head_size": "head_dim",
            "attention.decay_lora_rank": "decay_low_rank_dim",
            "attention.iclr_lora_rank": "a_low_rank_dim",
            "attention.value_residual_mix_lora_rank": "v_low_rank_dim",
            "attention.gate_lora_rank": "gate_low_rank_dim",
        },
        derived=NO_CONTEXT,
        acts={"sqrelu": "relu2"},
        defaults={
            "hidden_size": 2048, "num_hidden_layers": 24, "head_dim": 64, "decay_low_rank_dim": 64,
            "gate_low_rank_dim": 128, "a_low_rank_dim": 64, "v_low_rank_dim": 16, "norm_eps": 1e-5,
            "hidden_act": "sqrelu",
        },
        refused={"attn": (), "norm_bias": (True,), "norm_first": (True,)},
    ),
    "rwkv_hybrid": hf.HfRow(
        arch="arwkv7",
        names={**hf.PRE_NORMS, **hf.GLU, **hf.prefixed(ARWKV7, "self_attn.time_mixer.")},
        named_by=_arwkv7_mixes,
        first={f"time_mix_v{i}.weight": f"self_attn.time_mixer.a{i}" for i in range(3)},
        ignored=(*(f"model.layers.0.self_attn.time_mixer.v{i}" for i in range(3)), ".time_mixer.x_g"),
        folds={**TURNED, **FLAT},
        counts={"wkv.head_size": "head_size"},
        derived={
            **NO_CONTEXT, "token_shift_count": lambda _: 1,
            **{f"attention.{name}_lora_rank": lambda _: 64 for name in ("decay", "iclr")},
            "attention.value_residual_mix_lora_rank": lambda _: 32,
            "attention.gate_lora_rank": lambda c: 128 if c.flag("wkv_has_gate", True) else 0,
        },
        refused={"wkv_version": (7,), "wkv_layers": ("full",), "head_size_divisor": (8,)},
    ),
}  # fmt: skip
