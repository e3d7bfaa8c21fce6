"""DeepSeek 2 and 3, Kimi K2: latent attention, experts in groups beside shared ones; and DeepSeek-OCR."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import ROUTER_BIAS, Arch

MLA_NAMES: hf.Names = {
    "attn_q": "self_attn.q_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_k_b": "self_attn.kv_b_proj",
    "attn_v_b": "self_attn.kv_b_proj",
    "attn_output": "self_attn.o_proj",
}
MLA_FOLDS: hf.Names = {"attn_k_b": "k_of_kv_b", "attn_v_b": "v_of_kv_b"}
MLA_COUNTS: hf.Names = {
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.value_length": "kv_lora_rank",
    "attention.value_length_mla": "v_head_dim",
}
# A cached row is one KV head of rank + rotated floats.
MLA_VALUES: Mapping[str, Callable[[Config], MetadataValue]] = {
    "attention.head_count_kv": lambda config: 1,
    "attention.key_length": lambda config: config.count("kv_lora_rank") + config.count("qk_rope_head_dim"),
    "attention.value_length": lambda config: config.count("kv_lora_rank"),
    "attention.key_length_mla": lambda config: (
        config.count("qk_nope_head_dim") + config.count("qk_rope_head_dim")
    ),
    "attention.q_lora_rank": lambda config: config.count("q_lora_rank") if config.has("q_lora_rank") else 0,
    "rope.dimension_count": lambda config: config.count("qk_rope_head_dim"),
}
MLA_DEFAULTS = {
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip
COUNTS: hf.Names = {
    **MLA_COUNTS,
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_shared_count": "n_shared_experts",
}
DEFAULTS2 = {
    **MLA_DEFAULTS, "first_k_dense_replace": 0, "n_routed_experts": 64, "n_shared_experts": 2,
    "moe_intermediate_size": 1407,
}  # fmt: skip
DEFAULTS3 = {
    **MLA_DEFAULTS, "first_k_dense_replace": 3, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5,
    "norm_topk_prob": True, "n_group": 8, "topk_group": 4,
}  # fmt: skip
NAMES: hf.Names = {
    **hf.PRE_NORMS,
    **MLA_NAMES,
    **hf.GLU,
    **hf.QWEN_EXPERTS,
    **hf.SHARED_EXPERTS,
    **hf.ROUTER_BIAS,
}
GROUPS: hf.Names = {"expert_group_count": "n_group", "expert_group_used_count": "topk_group"}
# transformers norms the latents with an epsilon of 1e-6, whatever config.json states.
EPSILON = {"rms_norm_eps": (1e-6,)}
ROUTING = {"rope_interleave": (True,), "scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)}
SCALE: hf.Names = {"expert_weights_scale": "routed_scaling_factor"}
# DeepSeek-VL2 has the same model_type, and its text model's settings in a section.
OCR_REFUSED: hf.Refused = {
    "architectures": (["DeepseekOCRForCausalLM"], ["DeepseekOCR2ForCausalLM"]),
    "attention_bias": (False,), "moe_layer_freq": (1,), "norm_topk_prob": (False,),
    "scoring_func": ("softmax",), "sliding_window": (), "sliding_window_size": (),
    "topk_method": ("greedy",), "use_mla": (False,),
}  # fmt: skip
# The tower beside the text model: SAM and CLIP, in DeepSeek-OCR 2 SAM and Qwen2.
OCR_TOWER = (
    "model.sam_model.", "model.vision_model.", "model.qwen2_model.", "model.projector.",
    "model.image_newline", "model.view_seperator",
)  # fmt: skip

ARCHS: dict[str, Arch] = {
    "deepseek2": Arch(
        mixers=("mla",),
        optional=ROUTER_BIAS,
        optional_biases=("attn_q_a", "attn_kv_a_mqa", "attn_output"),
        normalizes=False,
    ),
    # Plain attention; a window (Unlimited-OCR) would keep the prompt's rows, which no mixer does.
    "deepseek2-ocr": Arch(
        rope_style="neox",
        rotates_heads=True,
        normalizes=False,
        refused={"attention.sliding_window": (0,)},
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "deepseek_v2": hf.HfRow(
        arch="deepseek2",
        names=NAMES,
        folds=MLA_FOLDS,
        numbers=SCALE,
        counts=COUNTS,
        derived={**MLA_VALUES, **hf.SOFTMAX_GATE},
        defaults=DEFAULTS2,
        refused={**EPSILON, "norm_topk_prob": (False,), "topk_method": ("greedy",), "mlp_bias": (False,)},
    ),
    "deepseek_v3": hf.HfRow(
        arch="deepseek2",
        names=NAMES,
        folds=MLA_FOLDS,
        numbers=SCALE,
        counts={**COUNTS, **GROUPS},
        derived={**MLA_VALUES, **hf.SIGMOID_GATE},
        defaults=DEFAULTS3,
        refused={**EPSILON, **ROUTING},
    ),
    "deepseek_vl_v2": hf.HfRow(
        arch="deepseek2-ocr",
        names={**hf.LLAMA, **hf.QWEN_EXPERTS, **hf.SHARED_EXPERTS},
        numbers=SCALE,
        counts={
            "leading_dense_block_count": "first_k_dense_replace",
            "expert_shared_count": "n_shared_experts",
        },
        defaults={"first_k_dense_replace": 0, "n_shared_experts": 0, "use_mla": True},
        refused=OCR_REFUSED,
        ignored=(".rotary_emb.inv_freq", *OCR_TOWER),
    ),
}
