"""A GGUF file split into several in gguf-split's format, by the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np


def split(source: Path, folder: Path, *, count: int = 3, total: int | None = None) -> list[Path]:
    """Splits the file's tensors over several files, by the gguf package; metadata in the first."""
    reader = gguf.GGUFReader(source)
    paths = [folder / f"m-{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)]
    for i, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint16("split.no", i)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(reader.tensors) if total is None else total)
        if not i:
            _copy_metadata(reader, writer)
        for tensor in reader.tensors[i::count]:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def _copy_metadata(reader: Any, writer: Any) -> None:
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=sub_type)
