"""llama.cpp's embeddings of the converted encoders, from every row or from the pooled one.

`python -m tests.rivals.encoders [NAME...]` prints the NMSE of Camelid's embeddings to them. Neither side
applies the dense maps after a pooling.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.rivals.llama_cpp import F32, UNREAD, Reading
from tests.support.hf_models import ENCODES, HfCase, load_cases, nmse, write_hf
from tests.support.model.file_runs import load_gguf, reference_logits

from camelid.loading.convert import convert

ROWS = 512  # of a step; an encoder's sequence is one step
NO_POOLING = 0  # LLAMA_POOLING_TYPE_NONE
READINGS: Mapping[str, Reading] = {
    "gemma_embedding": Reading(
        "llama.cpp derives the attention scale from the width of a head", {"query_pre_attn_scalar": 24}
    ),
}
PLAIN = Reading("")


def encoders() -> list[HfCase]:
    """The cases whose values are embeddings, in files that llama.cpp opens."""
    return [case for case in load_cases() if case.head == ENCODES and case.name not in UNREAD]


def llama_rows(path: Path, ids: Sequence[int]) -> NDArray[np.float32]:  # [T, C]
    """llama.cpp's embedding of every row."""
    cpp: Any = import_module("llama_cpp")  # installed by `make rivals`
    sizes = {"n_ctx": ROWS, "n_batch": ROWS, "n_ubatch": ROWS, "n_threads": 1, "type_k": F32, "type_v": F32}
    llm = cpp.Llama(str(path), embedding=True, verbose=False, pooling_type=NO_POOLING, **sizes)
    batch = cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
        batch.seq_id[i][0] = 0
    assert cpp.llama_decode(llm._ctx.ctx, batch) == 0
    width = (cpp.llama_model_n_embd(llm._model.model),)
    rows = [
        np.ctypeslib.as_array(cpp.llama_get_embeddings_ith(llm._ctx.ctx, i), width) for i in range(len(ids))
    ]
    found = np.array(rows)
    cpp.llama_batch_free(batch)
    llm.close()
    return found


def pooled(rows: NDArray[Any], pooling: str) -> NDArray[Any]:
    """The rows [T, C] of a case without a pooling, or the pooled row [1, C]."""
    if not pooling:
        return rows
    return {"mean": rows.mean(0, keepdims=True), "cls": rows[:1], "last": rows[-1:]}[pooling]


def compare(case: HfCase, folder: Path) -> float:
    """NMSE of Camelid's embeddings to llama.cpp's on one f32 file."""
    reading, path = READINGS.get(case.name, PLAIN), folder / f"{case.name}.gguf"
    convert(write_hf(folder / case.name, case, config_changes=reading.config), path, to="f32")
    ours = reference_logits(load_gguf(path), case.token_ids)
    theirs = [pooled(llama_rows(path, ids), case.pooling) for ids in case.token_ids]
    return nmse([np.asarray(rows) for rows in ours], theirs)


def main(begun: tuple[str, ...]) -> None:
    """The table of the cases whose names begin with a word; by default all."""
    for case in (case for case in encoders() if case.name.startswith(begun or ("",))):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{case.name:<26}{compare(case, Path(folder)):.1e}", flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
