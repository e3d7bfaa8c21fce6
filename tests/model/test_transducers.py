"""Files of models with an encoder and a decoder: old and damaged ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.hf_models import load_case, nmse, write_hf
from tests.support.model.file_runs import Loaded, load_hf, reference_logits

from camelid.errors import CamelidError, ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.formats.source import drive
from camelid.loading.convert import convert
from camelid.model.checkpoint import Checkpoint, checkpoint_of_gguf
from camelid.model.read import read_model


def checkpoint(folder: Path, name: str, **config: Any) -> Checkpoint:
    """The checkpoint of a golden model's GGUF."""
    convert(write_hf(folder / "hf", load_case(name), config_changes=config), folder / "m.gguf", to="f32")
    return checkpoint_of_gguf(open_gguf(folder / "m.gguf"))


def without(source: Checkpoint, *keys: str) -> Checkpoint:
    left = {key: value for key, value in source.header.metadata.items() if key.partition(".")[2] not in keys}
    return replace(source, header=replace(source.header, metadata=left))


def loaded(source: Checkpoint, folder: Path) -> Loaded:
    return Loaded(drive(read_model(source), lambda *_: b""), {"model": str(folder / "m.gguf")})


@pytest.mark.parametrize("name", ["t5", "flan_t5"])
def test_files_of_llama_cpp_state_fewer_keys(name: str, tmp_path: Path) -> None:
    """Neither activation nor the scale of logits; old files no layers of the decoder where both stacks are
    alike.
    """
    case = load_case(name)
    source = without(checkpoint(tmp_path, name), "logit_scale", "hidden_activation")
    assert nmse(reference_logits(loaded(source, tmp_path), case.token_ids), case.logits) <= 1e-10
    with pytest.raises(TensorShapeError, match=r"dec\.blk\.2\.attn_norm\.weight: found nothing"):
        loaded(without(source, "decoder_block_count"), tmp_path)


def test_a_bias_of_cross_attention_is_not_read(tmp_path: Path) -> None:
    """Files of 2024 have it, as the published ones do."""
    case, source = load_case("flan_t5"), checkpoint(tmp_path, "flan_t5")
    extra = source.tensors["dec.blk.0.attn_rel_b.weight"]
    name = "dec.blk.0.cross_attn_rel_b.weight"
    more = replace(source, tensors={**source.tensors, name: replace(extra, name=name)})
    got = reference_logits(loaded(more, tmp_path), case.token_ids[1:])
    assert nmse(got, case.logits[1:]) <= 1e-10


DAMAGED: list[tuple[str, Any, type[CamelidError], str]] = [
    ("decoder_start_token_id", 96, ModelFormatError, "decoder_start_token_id must be in the vocabulary"),
    ("num_decoder_layers", 10**6, UnsupportedModelError, "decoder layers is 1000000"),
    ("num_decoder_layers", 1, TensorShapeError, "tensor decoder.block.1"),
    ("num_decoder_layers", 3, TensorShapeError, r"dec\.blk\.2.*found nothing"),
    ("num_layers", 2, TensorShapeError, "tensor encoder.block.2"),
    ("feed_forward_proj", "relu", TensorShapeError, r"DenseReluDense\.wi_0"),
    ("feed_forward_proj", "gated-swish", UnsupportedModelError, "feed_forward_proj"),
    ("relative_attention_num_buckets", 16, TensorShapeError, r"attn_rel_b\.weight: found \(32, 3\)"),
    ("relative_attention_max_distance", 64, UnsupportedModelError, "relative_attention_max_distance is 64"),
]


@pytest.mark.parametrize(("key", "value", "error", "words"), DAMAGED)
def test_damaged_settings_are_errors(
    key: str, value: Any, error: type[CamelidError], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        load_hf(write_hf(tmp_path, load_case("flan_t5"), config_changes={key: value}))


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("decoder_block_count", 10**6, ModelFormatError, "but the file has 61 tensors"),
        ("decoder_start_token_id", None, ModelFormatError, "decoder_start_token_id"),
        ("attention.relative_buckets_count", 1, ModelFormatError, "relative_buckets_count is 1"),
    ],
)
def test_damaged_metadata_are_errors(
    key: str, value: Any, error: type[CamelidError], words: str, tmp_path: Path
) -> None:
    source = without(checkpoint(tmp_path, "flan_t5"), key)
    stated = {} if value is None else {f"t5.{key}": value}
    source = replace(source, header=replace(source.header, metadata=source.header.metadata | stated))
    with pytest.raises(error, match=words):
        loaded(source, tmp_path)
