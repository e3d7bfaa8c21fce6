"""Directories that mlx-lm wrote: the committed ones, values of their matrices, and logits of a directory."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden.mlx_cases import MlxCase
from tests.support.hf_models import HfCase, load_case

import camelid
from camelid.backends.common.codecs import decode
from camelid.backends.common.load_ops import load_rows
from camelid.backends.common.part_reader import PartReader
from camelid.backends.common.stored_rows import stored_rows
from camelid.formats.hf_config import HfTensor, open_hf
from camelid.formats.mlx_quant import fold_planes, read_quantization
from camelid.plan.weights import Part, Weight

FOLDER = Path(__file__).parents[1] / "golden" / "mlx"
F32 = NDArray[np.float32]


def source_of(row: MlxCase) -> HfCase:
    """The unquantized model of a row."""
    case = load_case(row.arch)
    case = replace(case, token_ids=[ids[: row.most_tokens] for ids in case.token_ids])
    shapes = {
        name: [row.sizes.get(n, n) for n in shape] if row.within in name else shape
        for name, shape in case.tensors.items()
    }
    return replace(case, config=case.config | row.config, tensors=shapes)


def stored_ids(name: str) -> list[list[int]]:
    return json.loads((FOLDER / name / "logits.json").read_text())["token_ids"]


def stored_logits(name: str) -> list[F32]:  # each [T, V]
    """Logits that mlx-lm computed for a committed directory."""
    table: dict[str, Any] = json.loads((FOLDER / name / "logits.json").read_text())
    flat = [np.frombuffer(base64.b64decode(text), "<f4") for text in table["logits"]]
    return [run.reshape(len(ids), -1) for run, ids in zip(flat, table["token_ids"], strict=True)]


def logits_of(folder: Path, token_ids: list[list[int]], **options: Any) -> list[F32]:
    """Camelid's logits of each sequence, [T, V]; on the reference by default."""
    with camelid.load(folder, **{"backend": "reference", **options}) as llm:
        return [np.array(llm.logits(ids)) for ids in token_ids]


def matrices(folder: Path) -> Mapping[str, HfTensor]:
    """The quantized matrices of a directory by published name."""
    directory = open_hf(folder)
    folded = fold_planes(directory.tensors, read_quantization(directory.settings))
    return {name: tensor for name, tensor in folded.items() if tensor.planes}


def weight_of(tensor: HfTensor) -> Weight:
    """A quantized matrix as a weight, without folds."""
    parts = tuple(Part(plane.file, plane.offset, plane.n_bytes) for plane in tensor.planes)
    weight = Weight(name=tensor.name, type=tensor.type, shape=tensor.shape, parts=parts)
    return weight.then("join_groups", *tensor.groups)


def values_of(tensor: HfTensor, folder: Path) -> Iterator[F32]:
    """Values of a quantized matrix: by its load op, and decoded from the blocks that backends get."""
    weight = weight_of(tensor)
    with PartReader({plane.file: folder / plane.file for plane in tensor.planes}) as reader:
        yield load_rows(weight, reader.read, 0, weight.rows)
        blocks = stored_rows(weight, reader.read)(0, weight.rows)
        yield decode(weight.type, blocks, weight.rows * weight.cols)
