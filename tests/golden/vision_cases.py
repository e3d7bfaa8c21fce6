"""Tiny models with vision towers, and the wrong facts that must move their rows or logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.golden.cases.gemma import GEMMA3
from tests.golden.mutation import Json, Mutation


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionRow:
    """A config, the sizes of the images, and the tokens around them: "image" stands for image rows."""

    name: str
    seed: int
    config: Json
    images: list[list[int]]
    prompt: list[int | str]
    processor: Json = field(default_factory=dict[str, Any])


TEXT = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-05,
}  # fmt: skip


def inner(config: Json, model_type: str, **facts: Any) -> Json:
    """A text model's config without the keys of its file."""
    left = ("architectures", "torch_dtype", "dtype", "transformers_version", "use_cache")
    return {k: v for k, v in config.items() if k not in left} | {"model_type": model_type} | facts


def rotation(*sections: int, **facts: Any) -> Json:
    """The rotation of Qwen's text models: pairs that turn by time, height and width."""
    return {"mrope_section": [*sections], "rope_theta": 100.0, "rope_type": "default"} | facts


# 8 x 8 patches become 16 rows; the sequence is longer than the window, and one image fills it.
GEMMA3_VISION: Json = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 90,
    "bos_token_id": 1,
    "dtype": "float32",
    "eoi_token_index": 91,
    "eos_token_id": 2,
    "image_token_index": 92,
    "mm_tokens_per_image": 16,
    "model_type": "gemma3",
    "text_config": inner(GEMMA3, "gemma3_text", max_position_embeddings=256, sliding_window=17),
    "transformers_version": "5.0.0",
    "vision_config": {
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 48,
        "image_size": 32,
        "intermediate_size": 80,
        "layer_norm_eps": 1e-06,
        "model_type": "siglip_vision_model",
        "num_attention_heads": 4,
        "num_channels": 3,
        "num_hidden_layers": 2,
        "patch_size": 4,
        "vision_use_head": True,
    },
}

QWEN_TEXT: Json = {
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "vocab_size": 96,
}
QWEN_TOKENS: Json = {
    "image_token_id": 92,
    "video_token_id": 93,
    "vision_start_token_id": 90,
    "vision_end_token_id": 91,
    "tie_word_embeddings": False,
    "dtype": "float32",
    "transformers_version": "5.0.0",
    "bos_token_id": 1,  # of the test's generation_config.json
    "eos_token_id": 2,
}
QWEN_VISION: Json = {
    "depth": 4,
    "hidden_size": 48,
    "in_channels": 3,
    "intermediate_size": 80,
    "num_heads": 4,
    "out_hidden_size": 64,
    "patch_size": 4,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "axial"},
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
# Windows of 2 x 2 squares; images of 4 x 5 and 3 x 2 squares have whole and cut windows.
QWEN25: Json = {
    **QWEN_TOKENS,
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "text_config": {
        **QWEN_TEXT,
        "model_type": "qwen2_5_vl_text",
        "rope_parameters": rotation(2, 3, 3),
        "use_sliding_window": False,
    },
    "vision_config": {
        **QWEN_VISION,
        "fullatt_block_indexes": [1, 3],
        "hidden_act": "silu",
        "model_type": "qwen2_5_vl_vision",
        "window_size": 16,
    },
}
QWEN3: Json = {
    **QWEN_TOKENS,
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "text_config": {
        **QWEN_TEXT,
        "head_dim": 16,
        "model_type": "qwen3_vl_text",
        "rope_parameters": rotation(4, 2, 2),
    },
    "vision_config": {
        **QWEN_VISION,
        "deepstack_visual_indexes": [0, 2],
        "hidden_act": "gelu_pytorch_tanh",
        "model_type": "qwen3_vl_vision",
        "num_position_embeddings": 36,
    },
}
QWEN3_MOE: Json = {
    **QWEN3,
    "architectures": ["Qwen3VLMoeForConditionalGeneration"],
    "model_type": "qwen3_vl_moe",
    "text_config": {
        **QWEN3["text_config"],
        "model_type": "qwen3_vl_moe_text",
        "moe_intermediate_size": 96,
        "num_experts": 5,
        "num_experts_per_tok": 2,
    },
    "vision_config": {**QWEN3["vision_config"], "model_type": "qwen3_vl_moe_vision"},
}
QWEN_PROCESSOR: Json = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "size": {"shortest_edge": 64, "longest_edge": 4096},
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
}
QWEN_PROMPT: list[int | str] = [7, 17, 90, "image", 91, 8, 64, 41, 90, "image", 91, 12, 77, 3, 50, 21]

ROWS: tuple[VisionRow, ...] = (
    VisionRow(
        name="gemma3",
        seed=5011,
        config=GEMMA3_VISION,
        images=[[32, 32], [32, 32]],
        prompt=[2, 17, 33, 5, 90, "image", 91, 8, 64, 41, 90, "image", 91, 12, 77, 3, 50, 21],
        processor={"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 32, "width": 32}},
    ),
    VisionRow(
        name="qwen2_5_vl",
        seed=5101,
        config=QWEN25,
        images=[[32, 40], [24, 16]],
        prompt=QWEN_PROMPT,
        processor=QWEN_PROCESSOR,
    ),
    VisionRow(
        name="qwen3_vl",
        seed=5201,
        config=QWEN3,
        images=[[24, 32], [16, 8]],
        prompt=QWEN_PROMPT,
        processor=QWEN_PROCESSOR,
    ),
    VisionRow(
        name="qwen3_vl_moe",
        seed=5301,
        config=QWEN3_MOE,
        images=[[24, 32], [16, 8]],
        prompt=QWEN_PROMPT,
        processor=QWEN_PROCESSOR,
    ),
)


def vision(case: str, **changes: Any) -> Mutation:
    config = next(row.config for row in ROWS if row.name == case)["vision_config"]
    return Mutation(case, f"vision {' '.join(changes)}", {"vision_config": config | changes})


def text(case: str, **changes: Any) -> Mutation:
    config = next(row.config for row in ROWS if row.name == case)["text_config"]
    return Mutation(case, f"text {' '.join(changes)}", {"text_config": config | changes})


WRONG: tuple[Mutation, ...] = (
    vision("gemma3", layer_norm_eps=0.05),
    vision("gemma3", num_attention_heads=2),
    text("gemma3", sliding_window=40),
    text("gemma3", rope_theta=300.0),
    Mutation("gemma3", "position table", {}, ("position_embedding.weight",)),
    Mutation("gemma3", "patch bias", {}, ("patch_embedding.bias",)),
    Mutation("gemma3", "post norm", {}, ("post_layernorm.bias",)),
    Mutation("gemma3", "soft embedding norm", {}, ("mm_soft_emb_norm.weight",)),
    Mutation("gemma3", "second map's bias", {}, ("fc2.bias",)),
    vision("qwen2_5_vl", window_size=32),
    vision("qwen2_5_vl", fullatt_block_indexes=[3]),
    text("qwen2_5_vl", rope_parameters=rotation(4, 2, 2)),
    text("qwen2_5_vl", rope_parameters=rotation(2, 3, 3, rope_theta=300.0)),
    Mutation("qwen2_5_vl", "merger's norm", {}, ("ln_q.weight",)),
    Mutation("qwen2_5_vl", "bias of the gate", {}, ("gate_proj.bias",)),
    Mutation("qwen2_5_vl", "bias of values", {}, ("attn.qkv.bias",)),
    text("qwen3_vl", rope_parameters=rotation(2, 3, 3)),
    text("qwen3_vl_moe", num_experts_per_tok=1),
    text("qwen3_vl_moe", rope_parameters=rotation(2, 3, 3)),
    text("qwen3_vl_moe", rms_norm_eps=0.05),
    text("qwen3_vl_moe", hidden_act="relu"),
    Mutation("qwen3_vl_moe", "router", {}, ("mlp.gate.weight",)),
    Mutation("qwen3_vl_moe", "experts", {}, ("experts.down_proj",)),
    Mutation("qwen3_vl_moe", "norm of keys", {}, ("k_norm.weight",)),
    Mutation("qwen3_vl_moe", "first tap", {}, ("deepstack_merger_list.0.linear_fc2.weight",)),
    Mutation("qwen3_vl", "position table", {}, ("pos_embed.weight",)),
    Mutation("qwen3_vl", "patch bias", {}, ("patch_embed.proj.bias",)),
    Mutation("qwen3_vl", "first tap", {}, ("deepstack_merger_list.0.linear_fc2.weight",)),
    Mutation("qwen3_vl", "second tap's norm", {}, ("deepstack_merger_list.1.norm.weight",)),
    Mutation("qwen3_vl", "merger's norm", {}, ("merger.norm.bias",)),
)
