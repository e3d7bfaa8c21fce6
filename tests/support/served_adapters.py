"""Adapters as GGUF files, by gguf-py's writer."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from camelid import LLM
from camelid.model.adapter import Adapter


def write_gguf_adapter(path: Path, llm: LLM, adapter: Adapter, *, task: str = "") -> Path:
    """Writes an adapter of a GGUF model, whose terms have one rank and one scale."""
    writer = gguf.GGUFWriter(path, llm.spec.arch)
    term = next(iter(adapter.terms.values()))
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", term.scale * term.rank)
    if task:
        writer.add_string("adapter.lora.task_name", task)
    if adapter.invocation:
        writer.add_array("adapter.alora.invocation_tokens", list(adapter.invocation))
    for name, each in adapter.terms.items():
        writer.add_tensor(f"{name}.weight.lora_a", np.asarray(each.a).reshape(each.rank, each.n_in))
        writer.add_tensor(f"{name}.weight.lora_b", np.asarray(each.b).reshape(each.n_out, each.rank))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
