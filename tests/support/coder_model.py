"""Cria as a model with fill-in-the-middle tokens, which /infill needs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from camelid.formats.gguf import open_gguf
from camelid.formats.gguf_writer import TensorOut, infer_kinds, write_gguf

CRIA = Path(str(files("camelid"))) / "data" / "cria.gguf"
FIM_IDS = {"pre": 1000, "suf": 1001, "mid": 1002}


def write_coder(target: Path) -> None:
    """Writes cria's tensors with these tokens named in the metadata."""
    header, raw = open_gguf(CRIA), CRIA.read_bytes()
    more = {f"tokenizer.ggml.fim_{name}_token_id": token_id for name, token_id in FIM_IDS.items()}
    metadata: Any = {**header.metadata, **more}
    tensors = [
        TensorOut(t.name, t.type, t.shape, lambda t=t: [raw[t.offset : t.offset + t.n_bytes]])
        for t in header.tensors.values()
    ]
    write_gguf(target, metadata=metadata, kinds={**header.kinds, **infer_kinds(more)}, tensors=tensors)
