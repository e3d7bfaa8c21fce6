"""Numbers of single layers that a model of different layers cannot have are refused with the number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hf_models import load_case, write_hf

from camelid.errors import ModelFormatError
from camelid.formats.gguf import open_gguf
from camelid.formats.hf_config import open_hf
from camelid.formats.source import drive
from camelid.loading.convert import convert
from camelid.model.checkpoint import checkpoint_of_gguf
from camelid.model.hf import read_settings
from camelid.model.hf_metadata import hf_metadata
from camelid.model.read import read_model

# Of gemma4's golden model: windows in layers 0, 2 and 3; the last two layers read keys of layers before.
IMPOSSIBLE = [
    ("feed_forward_length", [0, 96, 96, 192, 192], "feed_forward_length is 0"),
    ("attention.head_count_kv", [2, 0, 2, 2, 2], "head_count_kv is 0"),
    ("attention.head_count_kv", [1, 2, 2, 2, 2], "is 1 in a layer with a window, expected 2 in each"),
    ("attention.head_count_kv", [2, 2, 2, 2, 1], "is 1 in a layer, expected 2 as in layer 1"),
]


@pytest.mark.faults
@pytest.mark.parametrize(("key", "numbers", "why"), IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_numbers_of_a_layer_that_do_not_fit_are_refused(
    key: str, numbers: list[int], why: str, tmp_path: Path
) -> None:
    convert(write_hf(tmp_path / "hf", load_case("gemma4")), tmp_path / "m.gguf")
    header = open_gguf(tmp_path / "m.gguf")
    changed = replace(header, metadata={**header.metadata, f"gemma4.{key}": numbers})
    data = (tmp_path / "m.gguf").read_bytes()
    with pytest.raises(ModelFormatError, match=why):
        drive(read_model(checkpoint_of_gguf(changed)), lambda offset, n: data[offset : offset + n])


@pytest.mark.faults
def test_layers_without_tensors_are_refused_before_lists_of_so_many_numbers(tmp_path: Path) -> None:
    facts = {"num_hidden_layers": 2**31 - 1}
    folder = write_hf(tmp_path / "m", load_case("gemma4"), config_changes=facts)
    with pytest.raises(ModelFormatError, match="num_hidden_layers"):
        hf_metadata(read_settings(open_hf(folder)), name="m")
