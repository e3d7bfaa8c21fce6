"""Writers of adapters: PEFT directories and GGUF adapters, which appear when complete, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

from camelid.formats.adapters import gguf_lora, peft
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.gguf_writer import TensorOut, infer_kinds, write_gguf
from camelid.formats.safetensors_writer import SafeTensorOut, TensorsOut, write_safetensors
from camelid.formats.whole_directory import unwritable, whole_directory


@dataclass(frozen=True, slots=True)
class PairOut:
    """A pair to write: shapes of A and B and their bytes in float32, in the format's own order."""

    module: str
    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    a: Callable[[], bytes]
    b: Callable[[], bytes]


def write_gguf_adapter(
    path: str | PathLike[str],
    pairs: Sequence[PairOut],
    *,
    alpha: float,
    arch: str,
    name: str,
    invocation: Sequence[int] = (),
) -> None:
    """Writes a GGUF adapter; a pair's own scale is alpha / rank. Raises ModelFormatError if it cannot."""
    metadata: dict[str, MetadataValue] = {
        "general.architecture": arch,
        "general.type": "adapter",
        "general.name": name,
        "general.file_type": 0,
        "adapter.type": "lora",
        gguf_lora.ALPHA: float(alpha),
    }
    if invocation:
        metadata[gguf_lora.INVOCATION] = list(invocation)
    tensors = [tensor for pair in pairs for tensor in _gguf_tensors(pair)]
    write_gguf(path, metadata=metadata, kinds=infer_kinds(metadata), tensors=tensors)


def _gguf_tensors(pair: PairOut) -> Iterator[TensorOut]:
    a, b = pair.a, pair.b
    yield TensorOut(pair.module + gguf_lora.ENDINGS[0], "f32", pair.a_shape, lambda: [a()])
    yield TensorOut(pair.module + gguf_lora.ENDINGS[1], "f32", pair.b_shape, lambda: [b()])


def write_peft(path: str | PathLike[str], pairs: Sequence[PairOut], config: Mapping[str, object]) -> None:
    """Writes a PEFT directory. Raises ModelFormatError if it cannot be written."""
    target = Path(fspath(path))
    groups = [group for pair in pairs for group in _peft_tensors(pair)]
    with whole_directory(target) as part:
        write_safetensors(part / peft.WEIGHTS, groups, metadata={"format": "pt"})
        try:
            text = json.dumps(dict(config), indent=2, sort_keys=True) + "\n"
            (part / peft.CONFIG).write_text(text, encoding="utf-8")
        except OSError as error:
            raise unwritable(target, error) from error


def _peft_tensors(pair: PairOut) -> Iterator[TensorsOut]:
    rows = ((peft.ENDINGS[0], pair.a_shape, pair.a), (peft.ENDINGS[1], pair.b_shape, pair.b))
    for ending, shape, data in rows:
        tensor = SafeTensorOut(f"{peft.PREFIX}{pair.module}{ending}", "f32", shape)
        yield TensorsOut((tensor,), _chunk(data))


def _chunk(data: Callable[[], bytes]) -> Callable[[], list[list[bytes]]]:
    return lambda: [[data()]]
