"""Nemotron and Arcee: a squared ReLU without gate."""

from __future__ import annotations

from dataclasses import replace

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, BARE_GPT, PLAIN_MLP, Arch

ARCHS: dict[str, Arch] = {
    "nemotron": replace(BARE_GPT, rope_style="neox", act="relu2"),
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
