"""Shapes of models for tests of mixes: names and shapes of tensors and the metadata that rules read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]
HIDDEN, INNER, ROWS, VOCAB = 256, 512, 2, 32


@dataclass(frozen=True, slots=True)
class MixModel:
    """A model of `layers` layers with the tensors of `block` in each; rows are few, as only columns count."""

    arch: str
    layers: int
    block: Shapes
    heads: int = 8
    kv_heads: int | list[int] = 2
    experts: int = 0
    top: Shapes = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    hidden: int = HIDDEN

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Row-major shapes by name."""
        layers = {f"blk.{i}.{name}": shape for i in range(self.layers) for name, shape in self.block.items()}
        return {
            "token_embd.weight": (VOCAB, self.hidden),
            "output_norm.weight": (self.hidden,),
            **self.top,
            **layers,
        }

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata under the architecture's name, without `general.architecture`."""
        keys: dict[str, Any] = {
            "block_count": self.layers, "context_length": 256, "embedding_length": self.hidden,
            "feed_forward_length": INNER, "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads, "vocab_size": VOCAB,
            "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5,
            "rope.dimension_count": self.hidden // self.heads,
        }  # fmt: skip
        if self.experts:
            keys |= {
                "expert_count": self.experts,
                "expert_used_count": 2,
                "expert_feed_forward_length": INNER,
            }
        return keys | dict(self.more)


def _attention(d: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    split: dict[str, tuple[int, ...]] = {
        f"attn_{name}.weight": (ROWS, d) for name in ("q", "k", "v", "output")
    }
    return {"attn_norm.weight": (d,), **split}


def _fused(d: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    return {"attn_norm.weight": (d,), "attn_qkv.weight": (3 * ROWS, d), "attn_output.weight": (ROWS, d)}


def _mlp(d: int = HIDDEN, ffn: int = INNER, *, gate: bool = True) -> dict[str, tuple[int, ...]]:
    gated: dict[str, tuple[int, ...]] = {"ffn_gate.weight": (ROWS, d)} if gate else {}
    return {**gated, "ffn_up.weight": (ROWS, d), "ffn_down.weight": (ROWS, ffn)}


def _experts(n: int, *, shared: bool = False) -> dict[str, tuple[int, ...]]:
    own: dict[str, tuple[int, ...]] = {
        "ffn_gate_inp.weight": (n, HIDDEN), "ffn_gate_exps.weight": (n, 1, HIDDEN),
        "ffn_up_exps.weight": (n, 1, HIDDEN), "ffn_down_exps.weight": (n, 1, INNER),
    }  # fmt: skip
    both: dict[str, tuple[int, ...]] = {
        "ffn_gate_shexp.weight": (ROWS, HIDDEN), "ffn_up_shexp.weight": (ROWS, HIDDEN),
        "ffn_down_shexp.weight": (ROWS, INNER),
    }  # fmt: skip
    return own | (both if shared else {})


def _untied(d: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    return {"output.weight": (VOCAB, d)}


DENSE = {**_attention(), **_mlp()}
MLA = {
    "attn_norm.weight": (HIDDEN,), "attn_q_a.weight": (ROWS, HIDDEN), "attn_q_b.weight": (ROWS, HIDDEN),
    "attn_kv_a_mqa.weight": (ROWS, HIDDEN), "attn_kv_b.weight": (ROWS, HIDDEN),
    "attn_output.weight": (ROWS, HIDDEN),
}  # fmt: skip
MLA_KEYS = {
    "leading_dense_block_count": 1, "attention.q_lora_rank": 256, "attention.kv_lora_rank": 256,
    "expert_shared_count": 1, "expert_weights_scale": 1.0, "attention.key_length": 64,
    "attention.value_length": 64,
}  # fmt: skip
SSM = {
    "attn_norm.weight": (HIDDEN,), "ssm_in.weight": (ROWS, HIDDEN), "ssm_conv1d.weight": (INNER, 4),
    "ssm_x.weight": (ROWS, INNER), "ssm_dt.weight": (ROWS, 64), "ssm_a": (INNER, 16),
    "ssm_out.weight": (ROWS, INNER),
}  # fmt: skip
SSM_KEYS = {"ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 16, "ssm.time_step_rank": 16}
ALTUP = {
    "altup_proj.weight": (ROWS, HIDDEN), "laurel_l.weight": (ROWS, HIDDEN), "inp_gate.weight": (ROWS, HIDDEN),
    "proj.weight": (ROWS, HIDDEN),
}  # fmt: skip
PER_LAYER = {"per_layer_token_embd.weight": (VOCAB, HIDDEN), "per_layer_model_proj.weight": (ROWS, HIDDEN)}
GEMMA3N_KEYS = {
    "attention.sliding_window": 64, "embedding_length_per_layer_input": 256,
    "altup.num_inputs": 4, "altup.active_idx": 0,
}  # fmt: skip

MODELS: Mapping[str, MixModel] = {
    "llama": MixModel("llama", 4, DENSE, top=_untied()),
    "no_gqa": MixModel("llama", 12, DENSE, kv_heads=8, top=_untied()),
    "gqa4": MixModel("llama", 32, DENSE, top=_untied()),
    "gqa8": MixModel("llama", 17, DENSE, kv_heads=1, top=_untied()),
    "tied": MixModel("llama", 10, DENSE, kv_heads=4),
    "eight_experts": MixModel("llama", 16, {**_attention(), **_experts(8)}, experts=8, top=_untied()),
    "eight_experts_80": MixModel("llama", 80, {**_attention(), **_experts(8)}, experts=8, top=_untied()),
    "four_experts": MixModel(
        "llama", 9, {**_attention(), **_experts(4)}, kv_heads=4, experts=4, top=_untied()
    ),
    "many_experts": MixModel("qwen3moe", 9, {**_attention(), **_experts(128)}, experts=128, top=_untied()),
    "shared_expert": MixModel(
        "qwen2moe", 11, {**_attention(), **_experts(60, shared=True)}, kv_heads=8, experts=60, top=_untied()
    ),
    "mla": MixModel(
        "deepseek2", 13, {**MLA, **_experts(64, shared=True)}, kv_heads=8, experts=64, top=_untied(),
        more=MLA_KEYS,
    ),
    "falcon": MixModel("falcon", 32, {**_fused(), **_mlp(gate=False)}, kv_heads=1, top=_untied()),
    "fused": MixModel("phi3", 20, {**_fused(), **_mlp(gate=False)}, kv_heads=8, top=_untied()),
    "gpt2": MixModel(
        "gpt2", 12, {**_fused(), **_mlp(gate=False)}, kv_heads=8,
        top={**_untied(), "position_embd.weight": (64, HIDDEN)},
    ),
    "seventy": MixModel("llama", 80, DENSE, kv_heads=1, top=_untied()),
    "sixty_five": MixModel("llama", 80, DENSE, kv_heads=8, top=_untied()),
    "qwen2_80": MixModel("qwen2", 80, DENSE, kv_heads=1, top=_untied()),
    "forty": MixModel("llama", 40, DENSE, kv_heads=8, top=_untied()),
    "columns_96": MixModel(
        "llama", 6, {**_attention(96), **_mlp(96, 160)}, heads=3, kv_heads=3, top=_untied(96), hidden=96
    ),
    "columns_288": MixModel(
        "llama", 6, {**_attention(288), **_mlp(288, 200)}, heads=2, kv_heads=2, top=_untied(288), hidden=288
    ),
    "columns_50": MixModel(
        "llama", 6, {**_attention(50), **_mlp(50, 70)}, heads=2, kv_heads=2, top=_untied(50), hidden=50
    ),
    "mamba": MixModel("mamba", 9, SSM, top=_untied(), more=SSM_KEYS),
    "gemma2": MixModel("gemma2", 26, DENSE, kv_heads=4, more={"attention.sliding_window": 64}),
    "gemma3n": MixModel("gemma3n", 10, {**DENSE, **ALTUP}, top=PER_LAYER, more=GEMMA3N_KEYS),
    "bert": MixModel(
        "bert", 6, {**_attention(), **_mlp(gate=False)}, kv_heads=8,
        top={"token_types.weight": (2, HIDDEN), "position_embd.weight": (64, HIDDEN)},
        more={"attention.causal": False},
    ),
    "granite": MixModel("granite", 40, DENSE, top={}, more={"logit_scale": 8.0}),
    "grok": MixModel("grok", 64, {**_attention(), **_experts(8)}, kv_heads=1, experts=8, top=_untied()),
    "one_head_array": MixModel("llama", 9, DENSE, kv_heads=[8, 2, 2, 2, 2, 2, 2, 2, 2], top=_untied()),
}  # fmt: skip
