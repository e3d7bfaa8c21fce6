"""Damaged adapters of PEFT, llama.cpp and mlx-lm, read for one small model."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from functools import cache
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import crafted_gguf as crafted
from tests.support.hf_models import load_case, write_hf

from camelid.formats.source import read_file
from camelid.loading.adapters.open import namings_of, open_header
from camelid.loading.model_file import open_model
from camelid.model.adapter import MOST_RANK
from camelid.model.adapters.origins import Naming
from camelid.model.adapters.terms import read_adapter
from camelid.model.arch import Model

BASE = "mixtral_window"
LAYER = "model.layers.0."
PREFIX = f"base_model.model.{LAYER}"
Tensors = Sequence[tuple[str, tuple[int, ...]]]
PEFT_TENSORS: Tensors = (
    (f"{PREFIX}self_attn.q_proj.lora_A.weight", (2, 64)),
    (f"{PREFIX}self_attn.q_proj.lora_B.weight", (64, 2)),
    (f"{PREFIX}mlp.experts.lora_A.weight", (8, 96)),
    (f"{PREFIX}mlp.experts.lora_B.weight", (64, 8)),
)
MLX_TENSORS: Tensors = (
    (f"{LAYER}self_attn.q_proj.lora_a", (64, 2)),
    (f"{LAYER}self_attn.q_proj.lora_b", (2, 64)),
)
PEFT_CONFIG = json.dumps(
    {
        "peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_rslora": True, "bias": "none", "use_dora": False,
        "rank_pattern": {"down_proj": 2}, "alpha_pattern": {r"q_pro.\d*": 3}, "target_modules": ["q_proj"],
        "target_parameters": ["experts.down_proj"], "alora_invocation_tokens": [3, 5], "revision": None,
    }
).encode()  # fmt: skip
MLX_CONFIG = json.dumps(
    {"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": {"rank": 2, "scale": 20.0, "keys": ["q"]}}
).encode()


TOKENS = crafted.array(crafted.UINT32, 2, crafted.u32(3, 5))


def weights_of(tensors: Tensors) -> bytes:
    """A safetensors file of small numbers."""
    header, end = dict[str, object](), 0
    for name, shape in tensors:
        n = 4 * shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + n]}
        end += n
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + struct.pack("<f", 0.25) * (end // 4)


def gguf_of() -> bytes:
    """A GGUF adapter of the query matrix and the experts."""
    entries = [
        crafted.entry(b"general.type", crafted.STRING, crafted.text(b"adapter")),
        crafted.entry(b"general.architecture", crafted.STRING, crafted.text(b"llama")),
        crafted.entry(b"adapter.type", crafted.STRING, crafted.text(b"lora")),
        crafted.entry(b"adapter.lora.alpha", crafted.FLOAT32, struct.pack("<f", 4.0)),
        crafted.entry(b"adapter.alora.invocation_tokens", crafted.ARRAY, TOKENS),
    ]
    shapes = {
        b"attn_q.weight.lora_a": (64, 2),
        b"attn_q.weight.lora_b": (2, 64),
        b"ffn_down_exps.weight.lora_a": (96, 2, 4),
        b"ffn_down_exps.weight.lora_b": (2, 64, 4),
    }
    tensors, at = list[bytes](), 0
    for name, ne in shapes.items():
        tensors.append(crafted.tensor(b"blk.0." + name, *ne, offset=at))
        n = 4
        for each in ne:
            n *= each
        at += n
    return crafted.file(entries, tensors, struct.pack("<f", 0.25) * (at // 4))


@cache
def place() -> tuple[TemporaryDirectory[str], Model, list[Naming]]:
    """A folder for the damaged files, as long as the process lives; the model, and names of its modules."""
    folder = TemporaryDirectory(prefix="camelid-fuzz-")
    file = asyncio.run(open_model(write_hf(Path(folder.name) / "base", load_case(BASE))))
    return folder, file.model, namings_of(file)


def _check(path: Path) -> None:
    """Every term of an accepted adapter fits its weight, with finite numbers."""
    _, model, namings = place()
    header, weights = open_header(path)
    adapter = read_file(weights, lambda _, __: read_adapter(header, "a", model, namings))
    assert adapter.terms and adapter.rank <= MOST_RANK
    for name, term in adapter.terms.items():
        *stack, n_out, n_in = model.weights[name].shape
        n = stack[0] if stack else 1
        assert (term.n_out, term.n_in, term.experts) == (n_out, n_in, stack[0] if stack else 0)
        assert len(term.a) == n * term.rank * n_in and len(term.b) == n * term.rank * n_out
        assert isfinite(term.scale) and all(map(isfinite, term.a)) and all(map(isfinite, term.b))


def _parse(folder: str, files: dict[str, bytes]) -> None:
    path = Path(place()[0].name) / folder
    path.mkdir(exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    _check(path)


def parse_peft_config(data: bytes) -> None:
    _parse("p", {"adapter_config.json": data, "adapter_model.safetensors": weights_of(PEFT_TENSORS)})


def parse_peft_weights(data: bytes) -> None:
    _parse("q", {"adapter_config.json": PEFT_CONFIG, "adapter_model.safetensors": data})


def parse_mlx_config(data: bytes) -> None:
    _parse("m", {"adapter_config.json": data, "adapters.safetensors": weights_of(MLX_TENSORS)})


def parse_mlx_weights(data: bytes) -> None:
    _parse("n", {"adapter_config.json": MLX_CONFIG, "adapters.safetensors": data})


def parse_gguf_adapter(data: bytes) -> None:
    path = Path(place()[0].name) / "a.gguf"
    path.write_bytes(data)
    _check(path)
