"""Makes tests/golden/mixes.json: the types that llama.cpp's quantizer gives the tensors of `mix_models`.

`python -m tests.rivals.make_mixes` compares with the committed file, `--write` replaces it; further arguments
select models. llama-cpp-python must be installed (`make rivals` builds it).
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import gguf
import llama_cpp as _llama_cpp
import numpy as np
from tests.support.mix_models import MODELS, MixModel

from camelid.formats.gguf import open_gguf
from camelid.loading.quantize.choice import layer_of
from camelid.loading.quantize.mixes import MIXES

llama_cpp: Any = _llama_cpp
FILE = Path(__file__).parents[1] / "golden" / "mixes.json"


quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
llama_cpp.llama_log_set(quiet, ctypes.c_void_p())


def write_model(path: Path, model: MixModel) -> None:
    """A file of random weights in the model's shapes."""
    writer = gguf.GGUFWriter(path, model.arch)
    for key, value in model.metadata.items():
        add: Any = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            list: writer.add_array,
        }
        add[type(value)](f"{model.arch}.{key}", value)
    writer.add_string("tokenizer.ggml.model", "none")
    rng = np.random.default_rng(1)
    for name, shape in model.tensors.items():
        writer.add_tensor(name, rng.normal(0, 0.02, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantized(source: Path, model: MixModel, file_type: int, *, imatrix: bool) -> dict[str, str] | None:
    """The type of every tensor; None if an importance matrix is needed."""
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.nthread = file_type, 1
    rows = {name: shape for name, shape in model.tensors.items() if len(shape) > 1}
    data = (llama_cpp.llama_model_imatrix_data * (len(rows) + 1))()  # a row of zeros ends it
    kept: list[Any] = []
    for at, (name, shape) in enumerate(rows.items() if imatrix else ()):
        n = shape[-1] * (shape[0] if len(shape) == 3 else 1)
        kept.append((ctypes.c_float * n)(*[1.0] * n))
        data[at].name, data[at].size = name.encode(), n
        data[at].data = ctypes.cast(kept[-1], ctypes.POINTER(ctypes.c_float))
    if imatrix:
        options.imatrix = data
    target = source.with_name("quantized.gguf")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(options)):
        return None
    return {tensor.name: tensor.type for tensor in open_gguf(target).tensors.values()}


def packed(types: Mapping[str, str]) -> dict[str, str]:
    """Types by part, in runs over the layers: {"blk.*.attn_v.weight": "q6_k*2 q4_k*6"}; parts in f32 are
    left out."""
    parts: dict[str, list[str]] = {}
    for name in sorted(types, key=lambda name: (layer_of(name), name)):
        layer = layer_of(name)
        part = name if layer < 0 else name.replace(f"blk.{layer}.", "blk.*.", 1)
        parts.setdefault(part, []).append(types[name])
    runs = {part: " ".join(f"{k}*{len(list(g))}" for k, g in groupby(of)) for part, of in parts.items()}
    return {part: run for part, run in runs.items() if {*parts[part]} != {"f32"}}


def results(name: str) -> dict[str, Any]:
    """Packed types of a model by mix; null: an importance matrix is needed. Those with an importance matrix
    are stored where they differ."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "model.gguf")
        write_model(source, MODELS[name])
        for mix, row in MIXES.items():
            without, with_imatrix = (
                packed(types)
                if (types := quantized(source, MODELS[name], row.file_type, imatrix=i))
                else None
                for i in (False, True)
            )
            found[mix] = without
            if with_imatrix != without:
                found[f"{mix} imatrix"] = with_imatrix
    return found


def main() -> None:
    write, names = "--write" in sys.argv, [a for a in sys.argv[1:] if a != "--write"] or [*MODELS]
    stored: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in names:
        made = results(name)
        print(name, "same" if made == stored.get(name) else "DIFFERS", flush=True)
        if write:
            stored[name] = made
            text = json.dumps({n: stored[n] for n in MODELS if n in stored}, separators=(",", ":"))
            FILE.write_text(text.replace('},"', '},\n"') + "\n")
        elif made != stored.get(name):
            raise SystemExit(f"{name}: llama.cpp's types differ from {FILE.name}; see --write")


if __name__ == "__main__":
    main()
