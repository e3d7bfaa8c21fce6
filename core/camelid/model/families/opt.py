"""OPT: learned positions from row 2 on, and ReLU. llama.cpp has no name for it; `opt` is ours."""

from __future__ import annotations

from dataclasses import replace

from camelid.model import hf_rows as hf
from camelid.model.arch import BARE_GPT, Arch

ARCHS: dict[str, Arch] = {
    "opt": replace(BARE_GPT, act="relu", has_positions=True),
}

HF_ROWS: dict[str, hf.HfRow] = {
    # 350M norms after the sums and projects its embeddings (`do_layer_norm_before`).
    "opt": hf.HfRow(
        arch="opt",
        names={
            "attn_norm": "self_attn_layer_norm",
            **hf.ATTENTION,
            "attn_output": "self_attn.out_proj",
            "ffn_norm": "final_layer_norm",
            "ffn_up": "fc1",
            "ffn_down": "fc2",
        },
        outer={
            **hf.outer("model.decoder.embed_tokens", "model.decoder.final_layer_norm"),
            "position_embd": "model.decoder.embed_positions",
        },
        layer="model.decoder.layers.{i}.",
        folds={"position_embd": "without_offset"},
        keys={
            **hf.LAYER_KEYS,
            "feed_forward_length": "ffn_dim",
            "hidden_activation": "activation_function",
        },
        defaults={"max_position_embeddings": 2048, "activation_function": "relu"},
        refused={
            **hf.only(True, "do_layer_norm_before", "layer_norm_elementwise_affine"),
            **hf.only(False, "_remove_final_layer_norm"),
        },
        is_tied=True,
    ),
}
