"""A row of the tiny models, and configs with common defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """`lengths` are the lengths of the two sequences. `prefix` is cut from names; `masks` stores gpt2's masks
    too, `untied` a head of its own, which transformers saves only after it loaded one. `attention` is
    transformers' implementation. `pooling` pools a model's hidden states, and matrices of the shapes `dense`
    follow, as modules of sentence-transformers.
    """

    name: str
    seed: int
    config: Json
    lengths: tuple[int, int] = (40, 19)
    prefix: str = ""
    masks: bool = False
    untied: bool = False
    attention: str = "eager"
    pooling: str = ""
    dense: tuple[tuple[int, int], ...] = ()


def config(class_name: str, model_type: str, **facts: Any) -> Json:
    """A config with common defaults; `facts` replace keys, and None keeps a key with the value null."""
    return {
        "architectures": [class_name],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 64,
        "initializer_range": 0.02,
        "intermediate_size": 96,
        "max_position_embeddings": 128,
        "model_type": model_type,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.46.0",
        "use_cache": True,
        "vocab_size": 96,
    } | facts


def modern(config: Json, rope_parameters: Json, **facts: Any) -> Json:
    """The config in the format of transformers 5: one `rope_parameters`, and `dtype`."""
    old = {"rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern", "torch_dtype"}
    kept = {key: value for key, value in config.items() if key not in old}
    new = {"dtype": "float32", "rope_parameters": rope_parameters, "transformers_version": "5.0.0"}
    return dict(sorted((kept | new | facts).items()))
