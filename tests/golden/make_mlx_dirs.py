"""Makes mlx/* with mlx-lm: golden models, quantized and saved, with the logits that mlx-lm computes.

Run through `make goldens`: it makes every directory again, compares bytes and logits with the committed ones,
and Camelid's weights and logits on the reference with mlx-lm's; so too for `FAMILIES` and `COMBINATIONS`,
which are not committed. Then mlx-lm opens what Camelid's own writer makes of each family in every type, and
both compute its logits. `--write` replaces committed files; further arguments select cases by name prefix.

mlx-lm loads each directory again and computes in float32, which holds every scale exactly.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.utils import load_model, quantize_model, save_config, save_model
from tests.golden.mlx_cases import COMBINATIONS, COMMITTED, FAMILIES, MlxCase
from tests.support.hf_models import nmse, write_hf
from tests.support.mlx_dirs import (
    FOLDER,
    logits_of,
    matrices,
    source_of,
    stored_logits,
    values_of,
)

from camelid.loading.convert_mlx import MLX_TYPES, convert_mlx

ALLOWED = 1e-11  # NMSE of logits between machines
TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def quantized(row: MlxCase, folder: Path) -> None:
    """Writes the directory of a row as `mlx_lm.convert` does."""
    with tempfile.TemporaryDirectory() as source:
        write_hf(source, source_of(row), dtype=row.dtype)
        model, config = load_model(Path(source))
        config.pop("torch_dtype", None)
        model, config = quantize_model(
            model, config, row.group, row.bits, row.mode, quant_predicate=lambda path, _: choice(row, path)
        )
        save_model(folder, model)
        save_config(config, folder / "config.json")


def choice(row: MlxCase, path: str) -> bool | dict[str, Any]:
    """The setting of a matrix, as mlx-lm's predicates return it; routers keep 8 bits, as in its own."""
    ends = [other for end, other in row.others.items() if path.endswith(end)]
    if ends:
        return ends[0] or False
    is_router = path.endswith(("block_sparse_moe.gate", "mlp.gate", "router.layer", "feed_forward.gate"))
    return {"group_size": row.group, "bits": 8} if is_router and row.mode == "affine" else True


class WideEmbedding(nn.QuantizedEmbedding):
    """Rows in float32: modes without biases decode to bfloat16, and olmo2 has no norm before a layer."""

    def __call__(self, x: mx.array) -> mx.array:
        return super().__call__(x).astype(mx.float32)


def oracle_logits(folder: Path, token_ids: list[list[int]]) -> list[np.ndarray[Any, Any]]:
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    for module in model.modules():
        if type(module) is nn.QuantizedEmbedding:
            module.__class__ = WideEmbedding
    return [np.array(model(mx.array([ids]))[0].astype(mx.float32)) for ids in token_ids]


def differing_matrices(folder: Path) -> list[str]:
    """Quantized matrices whose values are not those of mx.dequantize, bit for bit."""
    tensors = mx.load(str(folder / "model.safetensors"))
    return [name for name, tensor in matrices(folder).items() if wrong(tensors, name, tensor, folder)]


def wrong(tensors: Any, name: str, tensor: Any, folder: Path) -> bool:
    mode, bits, group, _ = tensor.groups
    path = name.removesuffix(".weight")
    planes = (
        tensors[f"{path}.{plane}"] for plane in ("weight", "scales", "biases") if f"{path}.{plane}" in tensors
    )
    wide = [p.astype(mx.float32) if p.dtype in (mx.bfloat16, mx.float16) else p for p in planes]
    want = np.array(mx.dequantize(*wide, group_size=group, bits=bits, mode=mode).astype(mx.float32))
    return any(got.tobytes() != want.tobytes() for got in values_of(tensor, folder))


def packed(runs: list[np.ndarray[Any, Any]]) -> list[str]:
    return [base64.b64encode(run.astype("<f4").tobytes()).decode() for run in runs]


def check(row: MlxCase, folder: Path) -> bool:
    """Compares Camelid with mlx-lm on a directory."""
    case = source_of(row)
    want = oracle_logits(folder, case.token_ids)
    error, bad = nmse(logits_of(folder, case.token_ids), want), differing_matrices(folder)
    print(f"{row.name}: NMSE {error:.1e} to mlx-lm, allowed 1e-10; {len(bad)} matrices differ")
    return error < 1e-10 and not bad


def check_writer(row: MlxCase, to: str) -> bool:
    """Opens the directory that Camelid writes with mlx-lm, strictly, and compares logits."""
    case = source_of(row)
    with tempfile.TemporaryDirectory() as path:
        source, folder = Path(path) / "source", Path(path) / "made"
        write_hf(source, case, dtype=row.dtype)
        written = convert_mlx(source, folder, to=to, group_size=32 if to.startswith("q") else None)
        want, bad = oracle_logits(folder, case.token_ids), differing_matrices(folder)
        error = nmse(logits_of(folder, case.token_ids), want)
    n = written.types.get(to, 0)
    print(
        f"{case.model_type} {row.name} written as {to}: NMSE {error:.1e} to mlx-lm, allowed 1e-10; "
        f"{n} matrices, {len(bad)} differ"
    )
    return error < 1e-10 and not bad


def remake(row: MlxCase, folder: Path, *, write: bool) -> bool:
    """Compares a new directory with the committed one, or replaces it."""
    kept, ids = FOLDER / row.name, source_of(row).token_ids
    logits = oracle_logits(folder, ids)
    if write:
        kept.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "model.safetensors"):
            (kept / name).write_bytes((folder / name).read_bytes())
        table = {"token_ids": ids, "logits": packed(logits)}
        (kept / "logits.json").write_text(json.dumps(table, indent=0) + "\n")
    same = all(
        (kept / n).read_bytes() == (folder / n).read_bytes() for n in ("config.json", "model.safetensors")
    )
    error = nmse(logits, stored_logits(row.name))
    print(f"{row.name}: bytes {'equal' if same else 'DIFFER'}, logits NMSE {error:.1e} to the committed ones")
    return same and error < ALLOWED


def main() -> int:
    chosen = tuple(word for word in sys.argv[1:] if not word.startswith("--")) or ("",)
    good = True
    for row in (*COMMITTED, *FAMILIES, *COMBINATIONS):
        if not row.name.startswith(chosen):
            continue
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            quantized(row, folder)
            good = check(row, folder) and good
            if row in COMMITTED:
                good = remake(row, folder, write="--write" in sys.argv) and good
        for to in MLX_TYPES if row in (*COMMITTED, *FAMILIES) else ():
            good = check_writer(row, to) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
