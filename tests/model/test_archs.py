"""Every architecture against transformers: tiny random models with all features, and mutations that must
show.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from tests.golden.cases import WRONG
from tests.golden.mutation import Mutation
from tests.support.exhaustive import every, first_of_each
from tests.support.hf_models import HfCase, load_case, load_cases, nmse, write_hf
from tests.support.model.file_runs import Loaded, Logits, load_hf, reference_logits

from camelid.errors import CamelidError, UnsupportedModelError

CASES = load_cases()
MAX_NMSE = 1e-10  # the goldens are exact to about 1e-12


def contexts(case: HfCase) -> list[int]:
    """The context length for each sequence: LongRoPE selects its factors by it."""
    return [len(ids) for ids in case.token_ids]


def alone(loaded: Loaded, case: HfCase) -> Logits:
    """Each sequence separately, with the model loaded for its length."""
    pairs = zip(case.token_ids, contexts(case), strict=True)
    return [reference_logits(loaded, [ids], context=n, types=[case.token_types(ids)])[0] for ids, n in pairs]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_logits_equal_those_of_transformers(case: HfCase, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / case.name, case))
    error = nmse(alone(loaded, case), case.logits)
    print(f"{case.name}: NMSE {error:.1e}")
    assert error <= MAX_NMSE


# Facts that no row supports are refused; every other wrong fact must show in the logits.
REFUSED = {
    "bloom-apply_residual_connection_post_layernorm",
    "falcon-parallel_attn",
    "falcon_h1-hidden_act",
    "falcon_h1-time_step_limit",
    "falcon_h1_norm-mamba_norm_before_gate",
    "gemma_embedding-use_bidirectional_attention",
    "modernbert_ranking-classifier_activation",
    "modernbert_ranking-classifier_pooling",
    "falcon_rw-parallel_attn",
    "gpt_bigcode-scale_attn_weights",
    "opt-do_layer_norm_before",
    "granitemoehybrid-hidden_act",
    "granitemoehybrid-time_step_limit",
    "gpt2-scale_attn_by_inverse_layer_idx",
    "mamba-hidden_act",
    "phimoe-router_jitter_noise",
    "jais-mup_scale_qk_dot_by_d",
    "mamba2-hidden_act",
    "mamba2-time_step_limit",
    "qwen3_5-hidden_act",
    "qwen3_next-hidden_act",
    "olmo3-rope_parameters_sliding_attention",
    "stablelm-use_parallel_residual",
    "starcoder2-tie_word_embeddings",
}


@pytest.mark.parametrize("mutation", first_of_each(WRONG, attrgetter("case")), ids=str)
def test_a_wrong_fact_changes_the_logits(mutation: Mutation, tmp_path: Path) -> None:
    case = load_case(mutation.case)
    path = write_hf(tmp_path / "m", case, config_changes=mutation.config, neutral=mutation.neutral)
    if mutation.is_refused or str(mutation) in REFUSED:
        with pytest.raises(CamelidError):
            load_hf(path)
        return
    assert nmse(alone(load_hf(path), case), case.logits) > MAX_NMSE


@pytest.mark.parametrize("case", every(8, CASES), ids=str)
def test_batches_and_chunks_change_no_bit(case: HfCase, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / case.name, case, n_shards=2, dtype="bf16"))
    longest = max(contexts(case))
    together = reference_logits(loaded, case.token_ids, context=longest)
    for chunk in (1, 7):
        chunked = reference_logits(loaded, case.token_ids, chunk, context=longest)
        assert all(np.array_equal(a, b) for a, b in zip(chunked, together, strict=True))
    solo = [reference_logits(loaded, [ids], context=longest)[0] for ids in case.token_ids]
    assert all(np.array_equal(a, b) for a, b in zip(solo, together, strict=True))


def test_a_stored_output_matrix_is_used(tmp_path: Path) -> None:
    """transformers ties two stored matrices only if they are equal, so the flag has no effect here."""
    case = load_case("mistral")
    assert "lm_head.weight" in case.tensors
    folder = write_hf(tmp_path / "m", case, config_changes={"tie_word_embeddings": True})
    assert nmse(alone(load_hf(folder), case), case.logits) <= MAX_NMSE


@pytest.mark.parametrize("name", ["gpt_neox", "mt5", "t5", "t5encoder", "umt5"])
def test_save_pretrained_writes_that_a_model_is_no_decoder(name: str, tmp_path: Path) -> None:
    """The classes of these models read the key in no layer, or set it for each stack."""
    case = load_case(name)
    folder = write_hf(tmp_path / "m", case, config_changes={"is_decoder": False})
    assert nmse(alone(load_hf(folder), case), case.logits) <= MAX_NMSE


def without_modules(folder: Path, **facts: object) -> Path:
    """llama_bidirec with config.json's pooling alone, or with none."""
    case = load_case("llama_bidirec")
    config = {name: value for name, value in case.config.items() if name != "pooling"}
    path = write_hf(folder, replace(case, config=config | facts))
    (path / "modules.json").unlink()
    return path


@pytest.mark.parametrize(
    ("facts", "pooling"),
    [({}, "mean"), ({"pooling": "avg"}, "mean"), ({"pooling": "cls"}, "cls"), ({"pooling": "last"}, "last")],
)
def test_config_json_states_a_pooling(facts: dict[str, object], pooling: str, tmp_path: Path) -> None:
    loaded, case = load_hf(without_modules(tmp_path / "m", **facts)), load_case("llama_bidirec")
    assert loaded.model.spec.encoder and loaded.model.spec.encoder.pooling == pooling
    assert (nmse(alone(loaded, case), case.logits) <= MAX_NMSE) == (pooling == "mean")


def test_an_unknown_pooling_of_config_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"pooling is 'weighted_avg'.*: avg, cls, last"):
        load_hf(without_modules(tmp_path / "m", pooling="weighted_avg"))
