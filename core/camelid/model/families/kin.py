"""Models with Llama's layers under other names: InternLM, Orion, Baichuan, MiniCPM, Qwen, ChatGLM, PLaMo."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import (
    ATTENTION,
    FUSED_GATE_UP,
    FUSED_QKV,
    GLU_NAMES,
    HEAD_NORMS,
    PRE_NORMS,
    QKV,
    Arch,
)

BAICHUAN2_VOCAB = 125696
MINICPM_DEPTH = (12.0, 1.4, 256.0)  # of files of before November 2024

QWEN1_KEYS: hf.Names = {
    **hf.KEYS,
    "attention.key_length": "kv_channels",
    "attention.head_count_kv": "num_attention_heads",
    "context_length": "seq_length",  # longer contexts scale attention by the length
    "norm_eps": "layer_norm_epsilon",
    "rope.freq_base": "rotary_emb_base",
}
EXAONE_KEYS: hf.Names = {
    **hf.KEYS,
    "block_count": "num_layers",
    "norm_eps": "layer_norm_epsilon",
    "hidden_activation": "activation_function",
}
CHATGLM_OUTER = hf.outer(
    "transformer.embedding.word_embeddings", "transformer.encoder.final_layernorm", "transformer.output_layer"
)
CHATGLM_KEYS: hf.Names = {
    **hf.KEYS,
    "block_count": "num_layers",
    "feed_forward_length": "ffn_hidden_size",
    "attention.head_count_kv": "multi_query_group_num",
    "attention.key_length": "kv_channels",
    "context_length": "seq_length",
    "norm_eps": "layernorm_epsilon",
}
CHATGLM_REFUSED: hf.Refused = {
    "multi_query_attention": (True,), "rmsnorm": (True,), "post_layer_norm": (True,),
    "original_rope": (True,), "apply_residual_connection_post_layernorm": (False,),
    "add_bias_linear": (False,), "quantization_bit": (0,), "pre_seq_len": (),
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "internlm2": Arch(optional_biases=(*ATTENTION,)),
    "orion": Arch(rope_style="neox", norm_kind="layer", biases=(*PRE_NORMS, "output_norm")),
    "xverse": Arch(),
    "baichuan": Arch(max_alibi_bias=8.0, alibi_layers=40),  # the 13B, which has no rotation
    "maincoder": Arch(added={"attention": HEAD_NORMS}, norms_rotated=True),
    "minicpm": Arch(optional_biases=(*ATTENTION, *GLU_NAMES), depth_scales=MINICPM_DEPTH),
    # The first Qwen: feed_forward_length counts gate and up.
    "qwen": Arch(rope_style="neox", biases=QKV, splits=FUSED_QKV, ffn_matrices=2),
    "chatglm": Arch(optional_biases=QKV, splits={**FUSED_QKV, **FUSED_GATE_UP}),
    "exaone": Arch(rope_style="neox", optional_biases=(*ATTENTION, *GLU_NAMES)),
    "pangu-embedded": Arch(rope_style="neox", optional_biases=(*ATTENTION,)),
    "plamo": Arch(rope_style="neox", tensors={"attn_norm": "C"}, residual="parallel"),
}


def _residual_scale(config: Config) -> float:
    return config.number("scale_depth") / config.count("num_hidden_layers") ** 0.5


def _logit_scale(config: Config) -> float:
    return config.count("hidden_size") / config.count("dim_model_base")


def _baichuan_context(config: Config) -> int:
    """The 13B states no max_position_embeddings; the matrix of Baichuan 2's logits, normed, is refused."""
    if config.count("vocab_size") == BAICHUAN2_VOCAB:
        raise UnsupportedModelError(
            f"config.json: vocab_size is {BAICHUAN2_VOCAB}, that of Baichuan 2, which norms the rows of its "
            "output matrix; supported: Baichuan 1",
            kind="vocab_size",
            name=str(BAICHUAN2_VOCAB),
        )
    stated = config.has("max_position_embeddings")
    return config.count("max_position_embeddings" if stated else "model_max_length")


def _plamo_kv_heads(config: Config) -> int:
    """n_shared_head query heads share a key head, whatever num_key_value_heads states."""
    n_heads, shared = config.count("num_attention_heads"), config.count("n_shared_head")
    n_kv_heads = -(-n_heads // shared)
    if n_heads % n_kv_heads:
        raise UnsupportedModelError(
            f"config.json: n_shared_head is {shared}, so that {n_heads} query heads share {n_kv_heads} "
            "key heads unequally; supported: a divisor of num_attention_heads",
            kind="n_shared_head",
            name=str(shared),
        )
    return n_kv_heads


MINICPM_SCALES: Mapping[str, Callable[[Config], MetadataValue]] = {
    "residual_scale": _residual_scale, "logit_scale": _logit_scale,
}  # fmt: skip
HF_ROWS: dict[str, hf.HfRow] = {
    "internlm2": hf.HfRow(
        arch="internlm2",
        names={
            "attn_norm": "attention_norm",
            "ffn_norm": "ffn_norm",
            **dict.fromkeys(QKV, "attention.wqkv"),
            "attn_output": "attention.wo",
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
        },
        outer=hf.outer("model.tok_embeddings", "model.norm", "output"),
        folds={
            "attn_q": "q_of_groups pairs_of_q",
            "attn_k": "k_of_groups pairs_of_k",
            "attn_v": "v_of_groups",
        },
    ),
    "internlm3": hf.HfRow(arch="llama", folds=hf.PAIRS),
    "orion": hf.HfRow(arch="orion", refused={"attention_bias": (False,)}),
    "xverse": hf.HfRow(arch="xverse", folds=hf.PAIRS),
    "baichuan": hf.HfRow(
        arch="baichuan",
        names={**hf.LLAMA, **dict.fromkeys(QKV, "self_attn.W_pack")},
        folds={"attn_q": "q_of_stack pairs_of_q", "attn_k": "k_of_stack pairs_of_k", "attn_v": "v_of_stack"},
        derived={"context_length": _baichuan_context},
        refused={"z_loss_weight": ()},  # Baichuan 2 norms the rows of its output matrix
    ),
    "maincoder": hf.HfRow(arch="maincoder", names={**hf.LLAMA, **hf.HEAD_NORMS}),
    "minicpm": hf.HfRow(
        arch="minicpm",
        folds=hf.PAIRS,
        numbers={"embedding_scale": "scale_emb"},
        derived=MINICPM_SCALES,
        defaults={"scale_emb": 1, "scale_depth": 1, "dim_model_base": 1},
        is_tied=True,
    ),
    "mimo": hf.HfRow(  # layers that predict further tokens are not used
        arch="qwen2",
        defaults=hf.QWEN_DEFAULTS,
        ignored=(".rotary_emb.inv_freq", "model.mtp_layers."),
        has_window_switch=True,
    ),
    "exaone": hf.HfRow(
        arch="exaone",
        names={
            "attn_norm": "ln_1",
            "ffn_norm": "ln_2",
            **{name: f"attn.attention.{part}_proj" for name, part in zip(QKV, "qkv", strict=True)},
            "attn_output": "attn.attention.out_proj",
            "ffn_gate": "mlp.c_fc_0",
            "ffn_up": "mlp.c_fc_1",
            "ffn_down": "mlp.c_proj",
        },
        outer=hf.GPT_OUTER,
        layer="transformer.h.{i}.",
        keys=EXAONE_KEYS,
        defaults={"num_key_value_heads": 8, "rope_theta": 500000.0, "layer_norm_epsilon": 1e-5},
        ignored=(".rotary_emb.inv_freq", "transformer.rotary.inv_freq"),
    ),
    "PanguEmbedded": hf.HfRow(arch="pangu-embedded"),
    "plamo": hf.HfRow(
        arch="plamo",
        names={"attn_norm": "norm", **hf.ATTENTION, **hf.GLU},
        layer="model.layers.layers.{i}.",
        folds={"attn_q": "by_key_head", "attn_output": "columns_by_key_head"},
        derived={"attention.head_count_kv": _plamo_kv_heads},
        defaults={"n_shared_head": 8, "max_position_embeddings": 2048},
        refused={"rope_traditional": (False,)},  # a key of mlx-lm
    ),
    "qwen": hf.HfRow(
        arch="qwen",
        names={
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_gate": "mlp.w2",
            "ffn_up": "mlp.w1",
            "ffn_down": "mlp.c_proj",
        },
        outer=hf.GPT_OUTER,
        layer="transformer.h.{i}.",
        keys=QWEN1_KEYS,
        refused={"no_bias": (True,), "rotary_pct": (1.0,), "scale_attn_weights": (True,)},
    ),
    "chatglm": hf.HfRow(
        arch="chatglm",
        names={**hf.PRE_NORMS, **hf.neox_names("self_attention")},
        outer=CHATGLM_OUTER,
        layer="transformer.encoder.layers.{i}.",
        keys=CHATGLM_KEYS,
        defaults={"partial_rotary_factor": 0.5, "layernorm_epsilon": 1e-5},
        refused=CHATGLM_REFUSED,
        ignored=(".rotary_pos_emb.inv_freq",),
    ),
}
