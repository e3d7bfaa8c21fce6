"""Readers of adapters on settings and tensors: what is refused, by name, and what a pattern matches."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.support import crafted_gguf as crafted

from camelid.errors import CamelidError, ModelFormatError, UnsupportedModelError
from camelid.formats.adapters.gguf_lora import read_gguf_adapter
from camelid.formats.adapters.mlx_lm import read_mlx_lm
from camelid.formats.adapters.pairs import AdapterFile
from camelid.formats.adapters.patterns import check_work, matches
from camelid.formats.adapters.peft import read_peft
from camelid.formats.gguf import read_gguf
from camelid.formats.safetensors import SafeTensor, Safetensors
from camelid.formats.source import drive

Q = "base_model.model.model.layers.0.self_attn.q_proj"
Shapes = dict[str, tuple[int, ...]]
PLAIN: Shapes = {f"{Q}.lora_A.weight": (4, 8), f"{Q}.lora_B.weight": (6, 4)}


def weights(shapes: Shapes, type_name: str = "f32") -> Safetensors:
    tensors = {name: SafeTensor(name, type_name, shape, 8, 0) for name, shape in shapes.items()}
    return Safetensors({}, tensors, "x", 8)


def peft(shapes: Shapes | None = None, type_name: str = "f32", **facts: Any) -> AdapterFile:
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, **facts}
    text = json.dumps(config).encode()
    return read_peft(text, weights(PLAIN if shapes is None else shapes, type_name), "dir")


def mlx(shapes: Shapes, **facts: Any) -> AdapterFile:
    config = {"lora_parameters": {"rank": 4, "scale": 2.0}, **facts}
    return read_mlx_lm(json.dumps(config).encode(), weights(shapes), "dir")


def test_scales() -> None:
    name = "model.layers.0.self_attn.q_proj"
    assert peft().pairs[name].scale == 1.5
    assert peft(use_rslora=True).pairs[name].scale == 3.0
    assert peft(alpha_pattern={"q_proj": 2.5}).pairs[name].scale == 0.625
    assert peft(r=8, rank_pattern={"layers.0.self_attn.q_proj": 4}).pairs[name].scale == 1.5
    assert peft(lora_alpha=None, r=4).pairs[name].scale == 2.0


def test_facts() -> None:
    found = peft(base_model_name_or_path="a/b", alora_invocation_tokens=[1, 2], peft_version="0.21.2")
    assert found.facts["base"] == "a/b" and found.invocation == (1, 2)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"use_dora": True}, "use_dora is True: DoRA"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"layer_replication": [[0, 4]]}, "layer_replication"),
        ({"megatron_config": {"x": 1}}, "megatron_config"),
        ({"use_qalora": True}, "use_qalora"),
        ({"use_bdlora": {"nblocks": 2}}, "use_bdlora"),
        ({"init_lora_weights": "pissa"}, "path_initial_model_for_weight_conversion"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights"),
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA': supported is LORA"),
        ({"some_new_method": 3}, "some_new_method is 3: an unknown setting"),
        ({"rank_pattern": {"(a+)+": 4}}, "pattern"),
    ],
)
def test_settings_are_refused_by_name(facts: dict[str, Any], text: str) -> None:
    with pytest.raises(UnsupportedModelError, match=re.escape(text)):
        peft(**facts)


@pytest.mark.parametrize("value", [None, False, [], {}, "", 0])
def test_a_setting_that_is_off_is_no_setting(value: object) -> None:
    assert peft(use_dora=value, some_new_method=value, modules_to_save=value).pairs


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"r": 0}, "r is 0"),
        ({"r": 1 << 40}, "r is 1099511627776"),
        ({"r": 5}, "r is 5 in adapter_config.json, but its factors are (4, 8)"),
        ({"lora_alpha": "much"}, "lora_alpha is 'much'"),
        ({"lora_alpha": 10**39}, "lora_alpha is"),
        ({"use_rslora": 1}, "use_rslora is 1"),
        ({"rank_pattern": [4]}, "rank_pattern is"),
        ({"alora_invocation_tokens": [1, -2]}, "alora_invocation_tokens"),
        ({"alora_invocation_tokens": [1] * 5000}, "5000 invocation tokens"),
    ],
)
def test_malformed_settings_are_refused(facts: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelFormatError, match=re.escape(text)):
        peft(**facts)


@pytest.mark.parametrize(
    ("shapes", "error", "text"),
    [
        ({f"{Q}.lora_magnitude_vector": (6,), **PLAIN}, UnsupportedModelError, "a magnitude of DoRA"),
        ({f"{Q}.lora_embedding_A": (4, 8)}, UnsupportedModelError, "an adapter of an embedding"),
        ({f"{Q}.lora_B.bias": (6,), **PLAIN}, UnsupportedModelError, "a bias of a factor"),
        ({"base_model.model.lm_head.weight": (6, 8), **PLAIN}, UnsupportedModelError, "no factor of LoRA"),
        ({f"{Q}.lora_A.default.weight": (4, 8)}, UnsupportedModelError, "no factor of LoRA"),
        ({f"{Q}.base_layer.lora_A.weight": (4, 8), f"{Q}.base_layer.lora_B.weight": (6, 4)},
         UnsupportedModelError, "a wrapped parameter"),
        ({f"{Q}.lora_A.weight": (4, 8)}, ModelFormatError, "has no other half"),
        ({}, ModelFormatError, "no low-rank factors"),
        ({**PLAIN, f"{Q}.lora_B.weight": (6, 3)}, ModelFormatError, "do not fit each other"),
        ({**PLAIN, f"{Q}.lora_B.weight": (0, 4)}, ModelFormatError, "do not fit each other"),
        ({f"{Q}.lora_A.weight": (4, 8, 1), f"{Q}.lora_B.weight": (6, 4)}, ModelFormatError, "do not fit"),
        ({**PLAIN, **{name[17:]: shape for name, shape in PLAIN.items()}}, ModelFormatError, "occurs twice"),
    ],
)  # fmt: skip
def test_tensors_are_refused_by_name(shapes: Shapes, error: type[CamelidError], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        peft(shapes)


def test_other_types_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="type i8, expected one of f32, f16, bf16"):
        peft(type_name="i8")


def test_stacks_of_experts() -> None:
    module = "model.layers.0.mlp.experts"
    shapes = {
        f"{module}.base_layer.lora_A.weight": (12, 8),
        f"{module}.base_layer.lora_B.weight": (20, 12),
        f"{module}.lora_A.weight": (12, 10),
        f"{module}.lora_B.weight": (8, 12),
    }
    targets = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    pairs = peft(shapes, target_parameters=targets).pairs
    first, second = pairs[f"{module}.gate_up_proj"], pairs[f"{module}.down_proj"]
    assert (first.experts, first.rank, first.n_out, first.n_in) == (3, 4, 20, 8)
    assert (second.experts, second.rank, second.n_out, second.n_in) == (3, 4, 8, 10)
    with pytest.raises(ModelFormatError, match="r is 5"):
        peft(shapes, target_parameters=targets, r=5)
    with pytest.raises(UnsupportedModelError, match="a wrapped parameter"):
        peft(shapes, target_parameters=targets[:1])


def test_mlx_settings_and_tensors() -> None:
    plain: Shapes = {"a.lora_a": (8, 4), "a.lora_b": (4, 6)}
    pair = mlx(plain).pairs["a"]
    assert (pair.rank, pair.n_in, pair.n_out, pair.scale, pair.layout) == (4, 8, 6, 2.0, "columns")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: mlx(plain, fine_tune_type="dora"), "fine_tune_type is 'dora'"),
        (lambda: mlx(plain, fine_tune_type="full"), "fine_tune_type is 'full'"),
        (lambda: mlx({**plain, "a.m": (6,)}), "a magnitude of DoRA"),
        (lambda: mlx({**plain, "a.weight": (6, 8)}), "no factor of LoRA"),
        (lambda: mlx(plain, lora_parameters={"rank": 4}), "lora_parameters.scale is missing"),
        (lambda: mlx({"a.lora_a": (8, 4), "a.lora_b": (5, 6)}), "do not fit each other"),
    ]
    for refuse, text in refused:
        with pytest.raises(CamelidError, match=re.escape(text)):
            refuse()


def gguf_file(*entries: bytes, names: tuple[bytes, bytes] = (b"w.lora_a", b"w.lora_b")) -> bytes:
    tensors = [crafted.tensor(names[0], 4, 2), crafted.tensor(names[1], 2, 6, offset=32)]
    return crafted.file([*entries], tensors, bytes(96))


def text_entry(key: str, value: str) -> bytes:
    return crafted.entry(key.encode(), crafted.STRING, crafted.text(value.encode()))


def alpha(value: float) -> bytes:
    return crafted.entry(b"adapter.lora.alpha", crafted.FLOAT32, struct.pack("<f", value))


GENERAL, KIND = text_entry("general.type", "adapter"), text_entry("adapter.type", "lora")


def read(data: bytes) -> AdapterFile:
    header = drive(read_gguf(len(data), path="a.gguf"), lambda offset, n: data[offset : offset + n])
    return read_gguf_adapter(header)


def test_gguf_settings_and_tensors() -> None:
    pair = read(gguf_file(GENERAL, KIND, alpha(3.0))).pairs["w"]
    assert (pair.rank, pair.n_in, pair.n_out, pair.scale) == (2, 4, 6, 1.5)
    assert read(gguf_file(GENERAL, KIND, alpha(0.0))).pairs["w"].scale == 1.0
    dora, whole = text_entry("adapter.dora", "x"), (GENERAL, KIND, alpha(3.0))
    refused = [
        (gguf_file(KIND, alpha(3.0)), "general.type is None"),
        (gguf_file(GENERAL, alpha(3.0)), "adapter.type"),
        (gguf_file(GENERAL, text_entry("adapter.type", "ia3"), alpha(3.0)), "adapter.type is 'ia3'"),
        (gguf_file(GENERAL, KIND), "adapter.lora.alpha"),
        (gguf_file(GENERAL, KIND, alpha(float("inf"))), "adapter.lora.alpha is inf"),
        (gguf_file(*whole, dora), "adapter.dora: an unknown setting"),
        (gguf_file(*whole, names=(b"w.lora_a", b"w.bias")), "tensor w.bias is no factor"),
        (gguf_file(*whole, names=(b"w.lora_a", b"v.lora_b")), "has no other half"),
    ]
    for data, text in refused:
        with pytest.raises(CamelidError, match=re.escape(text)):
            read(data)


PATTERNS = [
    "q_proj", "^model.layers.0.self_attn.q_proj", "self_attn.q_proj", r"\w+_proj", "(?:q|k)_proj", "q.*",
    r"model\.layers\.\d+\.mlp\.(up|down)_proj", r".*layers\.(0|1)\..*q_proj", "layers.1?.x", r".*\.q_proj",
    "layers.[0-3].self_attn.q_proj$", "layers.[02].x", "a?b",
]  # fmt: skip
NAMES = [
    "model.layers.0.self_attn.q_proj", "q_proj", "xq_proj", "model.layers.12.mlp.up_proj", "b", "ab", "cab",
    "model.layers.1.mlp.down_proj", "model.layers.3.self_attn.k_proj", "c.ab", "layers.1.x", "layers..x",
    "layers.2x", "layers.2.x",
]  # fmt: skip
BEYOND = ["(a+)+", "a{3}", "[^a]", "a|b", "(?=x)", "\\1", "((((", "[z-a]", "x" * 600 + "+"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_in_peft(pattern: str) -> None:
    """The expression of PEFT 0.21."""
    for name in NAMES:
        assert matches(pattern, name) == bool(re.match(rf"(.*\.)?({pattern})$", name)), name


@pytest.mark.parametrize("pattern", BEYOND)
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedModelError, match="syntax beyond names"):
        matches(pattern, "a")


def test_the_work_of_patterns_is_bounded() -> None:
    assert not matches(".*" * 200 + "x", "a" * 255)
    with pytest.raises(UnsupportedModelError, match="too many to compare"):
        check_work(["a"] * 5000, 5000)
    check_work(["a"] * 300, 300)
