"""The fuzz targets: each row pairs a maker of hostile files with a reader.

Add a row for every reader of foreign bytes. `parse` returns, or raises ModelFormatError or
UnsupportedModelError; any other error, a failed assertion included, is a finding.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import safetensors
from tests.fuzz import adapters
from tests.fuzz.llama import llama_bytes, llama_values
from tests.fuzz.mutate import GGUF_WORDS, JSON_WORDS, Make, damaged
from tests.fuzz.published import config_bytes, parse_published
from tests.fuzz.tokenizers import SEED_PUBLISHED, SEED_WORDS, parse_hf, parse_tokenizer, parse_words
from tests.fuzz.towers import (
    parse_mmproj,
    parse_tower_config,
    tower_bytes,
    tower_config,
    tower_values,
)
from tests.support import crafted_gguf

from camelid.api.sessions.file import (
    HEAD,
    SavedSession,
    encode_session,
    read_header,
    read_rows,
    rows_mismatch,
)
from camelid.engine.state_transfer import ExportedState
from camelid.formats.gguf import read_gguf
from camelid.formats.hf_config import open_hf
from camelid.formats.imatrix import Sums, read_imatrix, write_imatrix
from camelid.formats.json_text import JsonObject, parse_object
from camelid.formats.safetensors import read_safetensors
from camelid.formats.settings import Config
from camelid.formats.source import Ask, T, drive
from camelid.model.read import read_model
from camelid.plan.plan import StateSpec
from camelid.requests.transcript import Segment


@dataclass(frozen=True, slots=True)
class Target:
    """`make` returns a damaged file; `parse` reads it."""

    name: str
    make: Make
    parse: Callable[[bytes], object]


def read(steps: Ask[T], data: bytes) -> T:
    """Feeds a parser from bytes; no read may exceed them."""

    def answer(offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= len(data), "a read beyond the file"
        return data[offset : offset + length]

    return drive(steps, answer)


def gguf_file(version: int) -> tuple[bytes, ...]:
    """The file of the hand-made tests, and a small file of other types."""
    entry, text, u32, array = crafted_gguf.entry, crafted_gguf.text, crafted_gguf.u32, crafted_gguf.array
    entries = [
        entry(b"general.alignment", crafted_gguf.UINT32, u32(8)),
        entry(b"a", crafted_gguf.STRING, text(b"\xff" * 9)),
        entry(b"b", crafted_gguf.ARRAY, array(crafted_gguf.BOOL, 3, b"\0\1\0")),
        entry(b"c", crafted_gguf.ARRAY, array(crafted_gguf.STRING, 2, text(b"x") + text(b""))),
    ]
    tensors = [crafted_gguf.tensor(b"w", 3), crafted_gguf.tensor(b"v", 1, 2, 3, 4, offset=16)]
    small = crafted_gguf.file(entries, tensors, bytes(112))
    return tuple(data[:4] + bytes([version]) + data[5:] for data in (crafted_gguf.GOOD, small))


def parse_gguf(data: bytes) -> None:
    got = read(read_gguf(len(data)), data)
    end = got.data_offset
    for tensor in got.tensors.values():
        assert end <= tensor.offset <= tensor.offset + tensor.n_bytes <= len(data)
        assert tensor.offset % got.alignment == got.data_offset % got.alignment == 0
        end = tensor.offset + tensor.n_bytes
    assert got.metadata.keys() == got.kinds.keys()


def header(**tensors: tuple[str, list[int], int, int]) -> bytes:
    infos = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        for name, (dtype, shape, begin, end) in tensors.items()
    }
    return json.dumps({"__metadata__": {"format": "pt"}, **infos}, separators=(",", ":")).encode()


HEADERS = (
    header(a=("F32", [2], 0, 8), b=("I8", [3, 1], 8, 11), c=("F16", [0, 5], 11, 11)),
    header(a=("BF16", [], 2, 4), b=("F4", [4], 0, 2)),
    b'{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}',
)


def framed(data: bytes) -> bytes:
    """A header with its correct length, and the data size of the first pattern."""
    return struct.pack("<Q", len(data)) + data + bytes(11 if b"F32" in data else 4)


def parse_safetensors(data: bytes) -> None:
    """Every accepted file is accepted by the format's own reader, with equal contents."""
    got = read(read_safetensors(len(data)), data)
    want: dict[str, Any] = dict(safetensors.deserialize(data))
    assert got.tensors.keys() == want.keys()
    for name, tensor in got.tensors.items():
        assert tuple(want[name]["shape"]) == tensor.shape
        assert want[name]["dtype"].lower() == tensor.type
        assert bytes(want[name]["data"]) == data[tensor.offset : tensor.offset + tensor.n_bytes]


CONFIG = json.dumps(
    {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "rms_norm_eps": 1e-5, "tie": True,
        "rope_scaling": {"factor": 8.0, "type": "llama3"}, "eos_token_id": [1, 2], "window": None,
        "act": "silu",
    }
).encode()  # fmt: skip


def parse_json(data: bytes) -> JsonObject:
    return parse_object(data, path="x.json", what="settings")


def parse_config(data: bytes) -> None:
    """Every getter of a config.json; each must return its type or refuse."""
    config = Config(parse_object(data, path="config.json", what="settings", allow_infinity=True))
    got: list[object] = [
        config.texts("architectures"),
        config.count("hidden_size", 1),
        config.number("rms_norm_eps", 1e-5, above=0),
        config.flag("tie", False),
        config.section("rope_scaling").number("factor", 1),
        config.counts("eos_token_id"),
        config.text("act", "silu"),
    ]
    assert json.dumps(got, allow_nan=False)


WEIGHT_MAP = {"a": "m1.safetensors", "b": "m1.safetensors", "c": "m2.safetensors"}
INDEX = json.dumps({"metadata": {"total_size": 24}, "weight_map": WEIGHT_MAP}).encode()


@cache
def shards() -> TemporaryDirectory[str]:
    """A directory whose index is rewritten for every case; it lives as long as the process."""
    place = TemporaryDirectory(prefix="camelid-fuzz-")
    folder = Path(place.name) / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    for name, text in {
        "m1": header(a=("F32", [2], 0, 8), b=("F32", [2], 8, 16)), "m2": header(c=("F32", [2], 0, 8)),
    }.items():  # fmt: skip
        data = struct.pack("<Q", len(text)) + text + bytes(16 if name == "m1" else 8)
        (folder / f"{name}.safetensors").write_bytes(data)
        (folder.parent / f"{name}.safetensors").write_bytes(data)  # reachable by "../"
    return place


def parse_index(data: bytes) -> None:
    """An index may omit a whole shard, but every listed tensor is in its shard, inside the directory."""
    folder = Path(shards().name) / "model"
    (folder / "model.safetensors.index.json").write_bytes(data)
    got = open_hf(folder)
    assert {name: tensor.file for name, tensor in got.tensors.items()}.items() <= WEIGHT_MAP.items()
    assert all(got.files[tensor.file].parent == folder for tensor in got.tensors.values())


def parse_llama(data: bytes) -> None:
    """A well-formed header may still describe an impossible model."""
    read(read_model(read(read_gguf(len(data)), data)), data)


def session_file() -> bytes:
    """A session of one page and one slot."""
    states = (
        StateSpec("kv", "paged", (0,), (("k", 4), ("v", 4)), 4),
        StateSpec("slots", "recurrent", (1,), (("s", 3),), 1),
    )
    transcript = (Segment("<a>Hi", (1, 2, 3), ((0, 3),)), Segment("Ho", (7, 8), is_answer=True, tail="x"))
    saved = SavedSession(
        id="s", model="m", fingerprint="ab", messages=[{"role": "user", "content": "Hi"}],
        transcript=transcript, options={"temperature": 0.5}, n_drawn=2, n_forgotten=0, camelid="0",
    )  # fmt: skip
    units = {state.name: [bytes(state.unit_bytes)] for state in states}
    return b"".join(encode_session(saved, states, ExportedState(4, units, dict.fromkeys(units, 0))))


SESSION = session_file()
SESSION_HEADER = SESSION[HEAD.size : HEAD.size + HEAD.unpack_from(SESSION)[2]]


def session_framed(header: bytes) -> bytes:
    """A session header with its correct digest, and the rows of the pattern."""
    head = HEAD.pack(b"CAMELID\x1a", 1, len(header), sha256(header).digest())
    return head + header + SESSION[HEAD.size + len(SESSION_HEADER) :]


def parse_session(data: bytes) -> None:
    head = read(read_header(len(data), "s.camelid"), data)
    rows = read(read_rows(head), data)
    assert sum(len(unit) for units in rows.units.values() for unit in units) == head.row_bytes
    assert rows_mismatch(head, ()) or not head.groups


IMATRIX_SUMS = {"blk.0.a.weight": Sums(array("f", [1, 2, 3, 4]), array("f", [2, 0]))}
IMATRIX_OLD = struct.pack("<ii", 1, 1) + b"a" + struct.pack("<iiffii", 2, 2, 1, 3, 7, 1) + b"t"


def imatrix_files() -> list[bytes]:
    """An importance matrix in both forms."""
    path = Path(shards().name) / "seed.imatrix"
    write_imatrix(path, IMATRIX_SUMS, datasets=["t"], chunks=1, chunk_size=8)
    return [path.read_bytes(), IMATRIX_OLD]


def parse_imatrix(data: bytes) -> None:
    """Every number of an accepted file is finite, at least 0 and in the file."""
    path = Path(shards().name) / "m.imatrix"
    path.write_bytes(data)
    read = read_imatrix(path)
    assert 4 * sum(entry.n for entry in read.entries.values()) <= len(data)
    for name in read.entries:
        assert all(0 <= value < inf for value in read.means(name))


def row(name: str, seeds: Sequence[bytes], parse: Callable[[bytes], object], **options: Any) -> Target:
    """A target of damaged JSON files."""
    return Target(name, damaged(seeds, words=JSON_WORDS, **options), parse)


TARGETS: tuple[Target, ...] = (
    Target("gguf v3", damaged(gguf_file(3), words=GGUF_WORDS), parse_gguf),
    Target("gguf v2", damaged(gguf_file(2), words=GGUF_WORDS), parse_gguf),
    Target("llama bytes", llama_bytes, parse_llama),
    Target("llama values", llama_values, parse_llama),
    Target("published config", config_bytes, parse_published),
    Target("tower bytes", tower_bytes, parse_mmproj),
    Target("tower values", tower_values, parse_mmproj),
    Target("tower config", tower_config, parse_tower_config),
    row("safetensors bytes", [framed(text) for text in HEADERS], parse_safetensors),
    row("safetensors header", HEADERS, parse_safetensors, text=True, frame=framed),
    row("config.json", [CONFIG], parse_config, text=True),
    row("index.json", [INDEX], parse_index, text=True),
    row("tokenizer.json", [SEED_PUBLISHED], parse_hf, text=True),
    row("tokenizer.json as GGUF", [SEED_PUBLISHED], parse_tokenizer, text=True),
    row("tokenizer in gguf", [SEED_WORDS], parse_words, text=True),
    Target("imatrix", damaged(imatrix_files(), words=GGUF_WORDS), parse_imatrix),
    row("peft config", [adapters.PEFT_CONFIG], adapters.parse_peft_config, text=True),
    row("peft weights", [adapters.weights_of(adapters.PEFT_TENSORS)], adapters.parse_peft_weights),
    row("mlx-lm config", [adapters.MLX_CONFIG], adapters.parse_mlx_config, text=True),
    row("mlx-lm weights", [adapters.weights_of(adapters.MLX_TENSORS)], adapters.parse_mlx_weights),
    Target("gguf adapter", damaged([adapters.gguf_of()], words=GGUF_WORDS), adapters.parse_gguf_adapter),
    row("session bytes", [SESSION], parse_session),
    row("session header", [SESSION_HEADER], parse_session, text=True, frame=session_framed),
    row("json", [CONFIG, INDEX, *HEADERS], parse_json, text=True),
)
