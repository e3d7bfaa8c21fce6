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

ROWS: tuple[VisionRow, ...] = (
    VisionRow(
        name="gemma3",
        seed=5011,
        config=GEMMA3_VISION,
        images=[[32, 32], [32, 32]],
        prompt=[2, 17, 33, 5, 90, "image", 91, 8, 64, 41, 90, "image", 91, 12, 77, 3, 50, 21],
        processor={"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 32, "width": 32}},
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
)
