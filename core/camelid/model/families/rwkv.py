"""RWKV-7, whose layers have a state in place of attention."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import OUTER, PRE_NORMS, Arch

ARCHS: dict[str, Arch] = {
    "rwkv7": Arch(
        rope_style="",
        norm_kind="layer",
        outer={**OUTER, "token_embd_norm": "C"},
        mixers=("rwkv7_first", "rwkv7"),
        opens=True,
        mlp="channel_mix",
        act="relu2",
        biases=("token_embd_norm", "output_norm", *PRE_NORMS, "time_mix_ln"),
        splits={"attn_norm_2": (("ffn_norm", "C"),)},  # llama.cpp's name of the second norm
        refused={"token_shift_count": (2,)},
    ),
}


def _pair(letter: str, published: str) -> hf.Names:
    """Two matrices of low rank and their bias, by the letter of their input."""
    return {
        f"time_mix_{letter}{i}.weight": f"attn.{published}_lora.lora.{inner}"
        for i, inner in enumerate(("2.bias", "0.weight", "2.weight"))
    }


GATE: hf.Names = {name: inner for name, inner in _pair("g", "g").items() if not inner.endswith("bias")}
HF_ROWS: dict[str, hf.HfRow] = {
    "rwkv7": hf.HfRow(
        arch="rwkv7",
        names={
            "attn_norm": "attn_norm",
            "attn_norm_2": "ffn_norm",
            "time_mix_lerp_fused.weight": "attn.x_{x}",
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
        derived={"attention.head_count": lambda _: 0, "context_length": lambda _: 1 << 20},
        acts={"sqrelu": "relu2"},
        defaults={
            "hidden_size": 2048, "num_hidden_layers": 24, "head_dim": 64, "decay_low_rank_dim": 64,
            "gate_low_rank_dim": 128, "a_low_rank_dim": 64, "v_low_rank_dim": 16, "norm_eps": 1e-5,
            "hidden_act": "sqrelu",
        },
        refused={"attn": (), "norm_bias": (True,), "norm_first": (True,)},
    ),
}  # fmt: skip
