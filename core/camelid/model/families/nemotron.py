"""Nemotron and Arcee: a squared ReLU without gate."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, PLAIN_MLP, PRE_NORMS, Arch

ARCHS: dict[str, Arch] = {
    "nemotron": Arch(
        rope_style="neox",
        norm_kind="layer",
        mlp="mlp",
        act="relu2",
        biases=(*PRE_NORMS, "output_norm"),
        optional_biases=(*ATTENTION, *PLAIN_MLP),
    ),
    "arcee": Arch(mlp="mlp", act="relu2", optional_biases=(*ATTENTION, *PLAIN_MLP)),
}

HF_ROWS: dict[str, hf.HfRow] = {
    # LayerNorm1P: norms are stored less 1.
    "nemotron": hf.HfRow(
        arch="nemotron",
        folds=dict.fromkeys((*hf.PRE_NORMS, "output_norm"), "add_one"),
        keys={**hf.KEYS, "norm_eps": "norm_eps"},
        defaults={"max_position_embeddings": 4096, "partial_rotary_factor": 0.5, "hidden_act": "relu2"},
    ),
    "arcee": hf.HfRow(
        arch="arcee",
        folds=hf.PAIRS,
        defaults={"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "relu2"},
    ),
}
