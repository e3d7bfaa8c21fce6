"""Adapters of tiny random models (golden/adapters/), with numbers made from their names."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.support.hf_models import HfCase, load_case, write_safetensors
from tests.support.model.file_runs import Loaded, Logits, reference_logits

from camelid.backends.common.load_ops import load_rows
from camelid.backends.common.part_reader import PartReader
from camelid.loading.model_file import ModelFile
from camelid.model.adapter import Adapter, LowRank
from camelid.plan.weights import inline_f32

FOLDER = Path(__file__).parents[1] / "golden" / "adapters"
ROWS = 6  # of logits of each sequence that a golden file holds


@dataclass(frozen=True)
class AdapterCase:
    """An adapter of the model `base`: PEFT's settings, shapes of tensors, and the logits of the last rows."""

    name: str
    base: str
    spread: float
    config: dict[str, Any]
    tensors: dict[str, list[int]]
    logits: list[NDArray[np.float32]]

    def __str__(self) -> str:
        return self.name

    @property
    def model(self) -> HfCase:
        return load_case(self.base)

    def numbers(self) -> dict[str, NDArray[np.float32]]:
        return {
            name: numbers(f"{self.name}/{name}", shape, self.spread) for name, shape in self.tensors.items()
        }


def numbers(key: str, shape: tuple[int, ...] | list[int], spread: float) -> NDArray[np.float32]:
    """Bell-shaped numbers in steps of 2**-10, equal on every machine; exact in float32."""
    raw = np.random.PCG64(zlib.crc32(key.encode())).random_raw(int(np.prod(shape)))
    total = sum((raw >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    values = (np.asarray(total, np.float64) - 2 * 65535) * (float(np.sqrt(3.0)) / 65536 * spread)
    return (np.round(values * 1024) / 1024).astype(np.float32).reshape(shape)


def load_adapter_case(name: str) -> AdapterCase:
    stored = json.loads((FOLDER / f"{name}.json").read_text())
    vocab = stored.pop("width")
    logits = [np.frombuffer(b64decode(each), "<f4").reshape(-1, vocab) for each in stored.pop("logits")]
    return AdapterCase(name=name, logits=logits, **stored)


def adapter_cases() -> list[AdapterCase]:
    return [load_adapter_case(path.stem) for path in sorted(FOLDER.glob("*.json")) if path.stem != "composed"]


def write_peft(
    folder: Path, tensors: Mapping[str, NDArray[Any]], config: Mapping[str, Any], dtype: str = "f32"
) -> Path:
    """An adapter directory as PEFT writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    write_safetensors(folder / "adapter_model.safetensors", tensors, dtype=dtype)
    return folder


def write_case(folder: Path, case: AdapterCase) -> Path:
    return write_peft(folder, case.numbers(), case.config)


def delta(term: LowRank) -> NDArray[np.float64]:
    """scale * B A of a term, [out, in] or [experts, out, in], from the definition."""
    n = max(term.experts, 1)
    a = np.array(term.a, np.float64).reshape(n, term.rank, term.n_in)
    b = np.array(term.b, np.float64).reshape(n, term.n_out, term.rank)
    product = term.scale * np.einsum("eor,eri->eoi", b, a)
    return product if term.experts else product[0]


def merged(file: ModelFile, adapter: Adapter) -> Loaded:
    """The model with the adapter's products added to its weights, in float64, then float32."""
    weights = dict(file.model.weights)
    with PartReader(file.sources) as reader:
        for name, term in adapter.terms.items():
            own = weights[name]
            values = load_rows(own, reader.read, 0, own.rows).reshape(own.shape).astype(np.float64)
            total = (values + delta(term).reshape(own.shape)).astype(np.float32)
            weights[name] = inline_f32(name, total.ravel().tolist(), own.shape)
    return Loaded(replace(file.model, weights=weights), file.sources)


def last_rows(loaded: Loaded, case: HfCase) -> Logits:
    """The last rows of the logits of each sequence."""
    runs = [
        reference_logits(loaded, [ids], context=len(ids), types=[case.token_types(ids)])[0]
        for ids in case.token_ids
    ]
    return [run[-ROWS:] for run in runs]
