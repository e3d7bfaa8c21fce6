"""Rows of directories that mlx-lm wrote, where names or folds differ from the published ones.

mlx-lm stores a model's parameters after its `sanitize`: experts stacked, matrices of gpt2 transposed, norm
gains of qwen3_next already 1 + weight, and convolutions with their dimension of 1 at the end, which `squeeze`
drops anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from camelid.model import hf_rows as hf
from camelid.model.hf_rows import HfRow, Names


@dataclass(frozen=True, slots=True, kw_only=True)
class MlxForm:
    """Differences of a family: names inside and outside layers, the layer's prefix, folds already done.

    A directory has this form if a tensor's name contains one of `marks`.
    """

    marks: tuple[str, ...]
    names: Names = field(default_factory=dict[str, str])
    mlp_names: Mapping[str, Names] = field(default_factory=dict[str, Names])
    outer: Names = field(default_factory=dict[str, str])
    layer: str = ""
    folded: tuple[str, ...] = ()

    def row(self, row: HfRow) -> HfRow:
        return replace(
            row,
            names={**row.names, **self.names},
            mlp_names={kind: {**row.mlp_names[kind], **own} for kind, own in self.mlp_names.items()},
            outer={**row.outer, **self.outer},
            layer=self.layer or row.layer,
            folds={name: fold for name, fold in row.folds.items() if name not in self.folded},
        )


def _experts(prefix: str) -> Names:
    kinds = ("gate", "up", "down")
    return {f"ffn_{kind}_exps": f"{prefix}.switch_mlp.{kind}_proj" for kind in kinds}


MLX_FORMS: Mapping[str, MlxForm] = {
    "mixtral": MlxForm(marks=(".switch_mlp.",), names=_experts("block_sparse_moe")),
    "qwen3_moe": MlxForm(marks=(".switch_mlp.",), names=_experts("mlp")),
    "qwen3_next": MlxForm(
        marks=(".switch_mlp.",),
        names=_experts("mlp"),
        folded=("attn_norm", "post_attention_norm", *hf.HEAD_NORMS, "output_norm"),
    ),
    "ernie4_5_moe": MlxForm(marks=(".switch_mlp.",), names=_experts("mlp")),
    "granitemoe": MlxForm(
        marks=(".switch_mlp.",),
        mlp_names={"experts": _experts("block_sparse_moe")},
        folded=("ffn_gate_exps", "ffn_up_exps"),
    ),
    "lfm2_moe": MlxForm(
        marks=(".switch_mlp.",),
        names={
            **_experts("feed_forward"),
            **{f"ffn_{kind}": f"feed_forward.{kind}_proj" for kind in ("gate", "up", "down")},
        },
    ),
    "granitemoehybrid": MlxForm(
        marks=(".switch_mlp.", ".mlp.gate_proj."),
        mlp_names={"glu": hf.GLU, "experts": _experts("block_sparse_moe")},
        folded=("ffn_gate", "ffn_up", "ffn_gate_exps", "ffn_up_exps"),
    ),
    "gpt2": MlxForm(
        marks=("model.h.",),
        outer={"token_embd": "model.wte", "position_embd": "model.wpe", "output_norm": "model.ln_f"},
        layer="model.h.{i}.",
        folded=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
    ),
}

# Model types that mlx-lm 0.32 does not open; Camelid reads their directories in its form.
UNOPENED = frozenset({
    "PanguEmbedded", "arcee", "arctic", "baichuan", "bailing_moe_v2", "bloom", "chatglm", "codeshell",
    "cogvlm", "deci", "falcon", "gemma3n_text", "gpt_refact", "granitemoeshared", "grok-1", "grove_moe",
    "hunyuan_v1_moe", "jais", "maincoder", "ministral", "mpt", "opt", "orion", "plm", "smallthinker",
})  # fmt: skip


def row_of_mlx(model_type: str, row: HfRow, names: Iterable[str]) -> HfRow:
    """The row of a directory with tensors of these names: the published form's, or mlx-lm's."""
    form = MLX_FORMS.get(model_type)
    is_mlx = form and any(mark in name for name in names for mark in form.marks)
    return form.row(row) if form and is_mlx else row
