"""Directories in MLX's format read without Camelid: values from planes, and mlx-lm's names undone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

Values = dict[str, NDArray[np.float32]]
Raw = tuple[str, tuple[int, ...], bytes]  # dtype, shape, data
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
W_OF_PROJECTION = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
HALVES = (
    "granitemoe",
    "granitemoehybrid",
)  # families whose gates and up-projections are published as one matrix
NAMED_W = ("mixtral", "lfm2_moe")  # families whose projections are published as w1, w2 and w3
NORMS_PLUS_1 = (
    "input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight", "q_norm.weight",
    "k_norm.weight",
)  # fmt: skip
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def raw_tensors(folder: Path) -> dict[str, Raw]:
    """The tensors of model.safetensors, as the safetensors package reads them."""
    found = safetensors.deserialize((folder / "model.safetensors").read_bytes())
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in found}


def dequantized(folder: Path) -> Values:
    """Every tensor as float32, quantized ones by the formula of their mode."""
    tensors = raw_tensors(folder)
    stated = json.loads((folder / "config.json").read_text())["quantization"]
    return {
        name: matrix(tensors, name, {**stated, **stated.get(name.removesuffix(".weight"), {})})
        if name.removesuffix(".weight") + ".scales" in tensors
        else floats(tensors[name])
        for name in tensors
        if not name.endswith((".scales", ".biases"))
    }


def matrix(tensors: dict[str, Raw], name: str, setting: dict[str, Any]) -> NDArray[np.float32]:
    path, bits, size = name.removesuffix(".weight"), setting["bits"], setting["group_size"]
    _, shape, data = tensors[name]
    stream = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").reshape(-1, bits)
    q = (stream * (1 << np.arange(bits))).sum(axis=1).reshape(-1, size)  # [all groups, size]
    scales = tensors[f"{path}.scales"]
    if setting["mode"] == "affine":
        d, m = (floats(tensors[f"{path}.{plane}"]).reshape(-1, 1) for plane in ("scales", "biases"))
        values = q.astype(np.float32) * d + m
    else:
        codes = np.frombuffer(scales[2], np.uint8).reshape(-1, 1)
        values = of_mode(setting["mode"], q, codes)
    return values.astype(np.float32).reshape(*shape[:-1], -1)


def of_mode(mode: str, q: NDArray[Any], codes: NDArray[np.uint8]) -> NDArray[np.float64]:
    scales = e4m3(codes) if mode == "nvfp4" else 2.0 ** (codes.astype(np.float64) - 127)
    if mode == "mxfp8":
        return e4m3(q) * scales
    return np.where(q & 8, -1.0, 1.0) * E2M1[q & 7] * scales


def e4m3(codes: NDArray[Any]) -> NDArray[np.float64]:
    """Values of codes, by the definition: 1 sign, 4 exponent bits of bias 7, 3 mantissa bits."""
    exponent, mantissa = codes >> 3 & 15, (codes & 7) / 8
    exponents = np.maximum(exponent, 1).astype(np.float64) - 7
    sizes = (np.where(exponent == 0, 0.0, 1.0) + mantissa) * 2.0**exponents
    return np.where(codes & 128, -sizes, sizes)


def floats(raw: Raw) -> NDArray[np.float32]:
    dtype, shape, data = raw
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, {"F16": "<f2", "F32": "<f4"}[dtype]).astype(np.float32).reshape(shape)


def as_published(model_type: str, values: Values) -> Values:
    """Tensors by published names, with published shapes and values: `sanitize` of mlx-lm undone."""
    return {name: value for each in values for name, value in published(model_type, each, values)}


def published(model_type: str, name: str, values: Values) -> Iterator[tuple[str, NDArray[np.float32]]]:
    value = values[name]
    if ".switch_mlp." in name and model_type not in HALVES:
        path, projection, ending = name.replace("switch_mlp", "experts.{e}").rsplit(".", 2)
        word = W_OF_PROJECTION[projection] if model_type in NAMED_W else projection
        yield from ((f"{path}.{word}.{ending}".format(e=e), expert) for e, expert in enumerate(value))
    elif model_type in HALVES and ".gate_proj." in name:
        up = values[name.replace("gate_proj", "up_proj")]
        stem = name.replace("switch_mlp.", "").replace(".mlp.", ".shared_mlp.")
        yield stem.replace("gate_proj", "input_linear"), np.concatenate([value, up], axis=-2)
    elif model_type in HALVES and ".down_proj." in name:
        stem = name.replace("switch_mlp.", "").replace(".mlp.", ".shared_mlp.")
        yield stem.replace("down_proj", "output_linear"), value
    elif model_type in HALVES and ".up_proj." in name:
        return
    elif model_type == "lfm2_moe" and ".feed_forward." in name and "_proj." in name:
        path, projection, ending = name.rsplit(".", 2)
        yield f"{path}.{W_OF_PROJECTION[projection]}.{ending}", value
    elif name.endswith(("conv1d.weight", "conv.conv.weight")):
        yield name, np.moveaxis(value, 1, 2)
    elif model_type == "qwen3_next" and name.endswith(NORMS_PLUS_1):
        yield name, value - 1
    elif model_type == "gpt2":
        yield name, value.T if name.endswith(TRANSPOSED) else value
    else:
        yield name, value
