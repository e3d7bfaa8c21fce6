"""Errors of cpu beside the reference: `python -m tests.perf.logits_error [--tokens 4]`.

First the error of packing for each weight type: the largest difference between a row of panels and the gguf
package's values of the same bytes. Then logits of both backends for random weights in a real model's shape,
drawn as float32 and quantized by llama.cpp, and for cria: the NMSE over all rows, its limit, and the share of
rows with equal argmax.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.native.test_panels import COLS, ROWS, TYPES, matrix, values
from tests.perf.shapes import SHAPES, write
from tests.support.native.kernels import VARIANTS, pack

import camelid

FILE_TYPES = {"q8_0": 7, "q4_0": 2, "q4_k_m": 15}  # llama_ftype
LIMITS: Mapping[str, float] = {"f32": 1e-6, **dict.fromkeys(FILE_TYPES, 1e-3)}
Floats = NDArray[np.float64]


def packing_error(type_name: str) -> float:
    """The largest difference of any weight."""
    stored = matrix(type_name, ROWS)
    panels = pack(VARIANTS[-1], type_name, stored, COLS)
    rows = np.stack([panels.row(i) for i in range(ROWS)])
    return float(np.abs(rows - values(type_name, stored)).max())


def quantize(path: Path, type_name: str, out: Path) -> None:
    """Writes the file in another type, by llama.cpp."""
    llama_cpp: Any = import_module("llama_cpp")  # installed by `make rivals`
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = FILE_TYPES[type_name]
    status = llama_cpp.llama_model_quantize(str(path).encode(), str(out).encode(), ctypes.pointer(options))
    if status:
        raise SystemExit(f"llama.cpp cannot write {type_name}: status {status}")


def nmse(got: Floats, want: Floats) -> float:
    """The squared error over the squared size of `want`."""
    return float(((got - want) ** 2).sum() / (want**2).sum())


def logits(model: str, backend: str, token_ids: list[int]) -> Floats:
    """[T, V], with float32 keys and values."""
    with camelid.load(model, backend=backend, context=max(64, len(token_ids) + 8), parallel=1) as llm:
        return np.asarray(llm.logits(token_ids), np.float64)


def line(name: str, model: str, token_ids: list[int], limit: float) -> str:
    """One file's row of the table."""
    start = perf_counter()
    got, want = (logits(model, backend, token_ids) for backend in ("cpu", "reference"))
    error, same = nmse(got, want), (got.argmax(1) == want.argmax(1)).mean()
    met = "yes" if error <= limit else "**no**"
    return f"| {name} | {error:.2g} | {limit:g} | {met} | {same:.0%} | {perf_counter() - start:.0f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=list(SHAPES), default="SmolLM2-135M")
    parser.add_argument("--types", nargs="+", choices=list(LIMITS), default=list(LIMITS))
    parser.add_argument("--tokens", type=int, default=4)
    args = parser.parse_args()
    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)
    errors = {name: packing_error(name) for name in TYPES}
    print("packing:", ", ".join(f"{name} {error:g}" for name, error in errors.items()))
    print("| file | NMSE | at most | met | same token | |\n|---|---|---|---|---|---|", flush=True)
    token_ids = [1 + i * 37 % 1000 for i in range(args.tokens)]
    with tempfile.TemporaryDirectory() as folder:
        write(args.shape, SHAPES[args.shape], "f32", drawn := Path(folder, "f32.gguf"))
        for type_name in args.types:
            path = Path(folder, f"{type_name}.gguf")
            if type_name in FILE_TYPES:
                quantize(drawn, type_name, path)
            print(line(f"{args.shape} {type_name}", str(path), token_ids, LIMITS[type_name]), flush=True)
    with camelid.load("cria", backend="reference") as llm:
        prompt = llm.render([{"role": "user", "content": "What is 12 plus 30?"}])
    print(line("cria", "cria", prompt, LIMITS["q8_0"]))


if __name__ == "__main__":
    main()
