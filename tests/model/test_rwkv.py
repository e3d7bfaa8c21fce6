"""RWKV: settings without a golden mutation, old GGUF files, and the size of a layer's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.support.hf_models import load_case, nmse, write_hf
from tests.support.model.file_runs import load_gguf, load_hf, reference_logits

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.loading.convert import convert
from camelid.model.decoder import declare_states

LERPS = "time_mix_lerp_fused.weight"


def separate(source: Path, target: Path, *, without: str = "", **changes: Any) -> None:
    """Writes the model with a tensor for each mix, as llama.cpp did before 2025."""
    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(target, "rwkv6")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", without):
            value = changes.get(name.rpartition(".")[2], field.contents())
            sub_type = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, value, field.types[0], sub_type)
    for t in reader.tensors:
        prefix = t.name.removesuffix(LERPS)
        rows = t.data.reshape(5, -1) if t.name.endswith(LERPS) else [t.data]
        names = [f"{prefix}time_mix_lerp_{x}.weight" for x in "wkvrg"] if len(rows) == 5 else [t.name]
        for name, values in zip(names, rows, strict=True):
            writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def converted(folder: Path, name: str = "rwkv6") -> Path:
    convert(write_hf(folder / "hf", load_case(name)), folder / "new.gguf", to="f32")
    return folder / "new.gguf"


def test_a_file_with_a_tensor_for_each_mix_has_the_same_logits(tmp_path: Path) -> None:
    separate(converted(tmp_path), tmp_path / "old.gguf")
    case = load_case("rwkv6")
    loaded = load_gguf(tmp_path / "old.gguf")
    assert nmse(reference_logits(loaded, case.token_ids), case.logits) <= 1e-10


def test_a_file_without_the_key_never_halves_its_stream(tmp_path: Path) -> None:
    """Matrices of the last layer are halved in the file, so that other logits are right for it."""
    source = converted(tmp_path)
    separate(source, tmp_path / "one.gguf", without="rwkv6.rescale_every_n_layers")
    separate(source, tmp_path / "none.gguf", rescale_every_n_layers=0)
    ids = load_case("rwkv6").token_ids
    one, none = (reference_logits(load_gguf(tmp_path / f"{name}.gguf"), ids) for name in ("one", "none"))
    assert nmse(one, none) == 0.0 < 1e-4 < nmse(one, load_case("rwkv6").logits)


@pytest.mark.parametrize(("key", "value"), [("wkv_version", 6), ("wkv_layers", [0, 1])])
def test_settings_that_arwkv7_lacks_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    directory = write_hf(tmp_path, load_case("arwkv7"), config_changes={key: value})
    with pytest.raises(UnsupportedModelError, match=key):
        load_hf(directory)


def test_heads_that_share_no_keys_evenly_are_refused(tmp_path: Path) -> None:
    directory = write_hf(tmp_path, load_case("rwkv6qwen2"), config_changes={"num_key_value_heads": 3})
    with pytest.raises(ModelFormatError, match=r"attention\.head_count_kv is 3, no divisor of 4 heads"):
        load_hf(directory)


@pytest.mark.parametrize(("name", "n_shifts"), [("rwkv6", 2), ("rwkv7", 2), ("rwkv6qwen2", 1), ("arwkv7", 1)])
def test_a_layer_keeps_the_last_inputs_of_its_mixes_alone(name: str, n_shifts: int, tmp_path: Path) -> None:
    spec = load_hf(write_hf(tmp_path, load_case(name))).model.spec
    tensors = dict(next(state.tensors for state in declare_states(spec) if state.name == "recurrent"))
    head_dim = {"rwkv6": 32, "rwkv6qwen2": 16}.get(name, 64)
    assert tensors == {"shift": n_shifts * spec.hidden_size, "scan": spec.hidden_size * head_dim}
