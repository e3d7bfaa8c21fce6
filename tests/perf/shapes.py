"""Files of random weights in the shapes of real models: `python -m tests.perf.shapes NAME TYPE OUT`.

What such a model says means nothing, but it costs what the real one costs. Q4_K_M is the mixture that
llama.cpp makes: Q6_K for the output (or the embedding that stands for it) and, of attn_v and ffn_down, in the
first and the last eighth of the layers and every third between, else Q4_K; where a row is no multiple of 256,
Q8_0 and Q5_0 in their place.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from camelid.formats.quants import quant, row_bytes

PIECE_ROWS = 512  # drawn once and repeated: bytes that differ within a cache's reach
SCALE_HALF = 0x2000  # 2**-7, what every float16 of a block is set to
HALVES = {  # where the float16 numbers of a block stand, by type
    "q4_0": (0,), "q5_0": (0,), "q8_0": (0,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a model."""

    arch: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rope_theta: float
    head_norms: bool = False

    def matrices(self, i: int) -> dict[str, tuple[int, int]]:
        """[out, in] of a layer's matrices."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sizes = {
            "attn_q": (q, self.hidden), "attn_k": (kv, self.hidden), "attn_v": (kv, self.hidden),
            "attn_output": (self.hidden, q), "ffn_gate": (self.ffn, self.hidden),
            "ffn_up": (self.ffn, self.hidden), "ffn_down": (self.hidden, self.ffn),
        }  # fmt: skip
        return {f"blk.{i}.{name}.weight": size for name, size in sizes.items()}

    def vectors(self, i: int) -> dict[str, int]:
        """Lengths of a layer's norms."""
        own = {"attn_norm": self.hidden, "ffn_norm": self.hidden}
        own |= {"attn_q_norm": self.head_dim, "attn_k_norm": self.head_dim} if self.head_norms else {}
        return {f"blk.{i}.{name}.weight": n for name, n in own.items()}


SHAPES = {
    "SmolLM2-135M": Shape(
        arch="llama", layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3, head_dim=64, vocab=49152,
        rope_theta=100000.0,
    ),
    "Qwen3-0.6B": Shape(
        arch="qwen3", layers=28, hidden=1024, ffn=3072, heads=16, kv_heads=8, head_dim=128, vocab=151936,
        rope_theta=1000000.0, head_norms=True,
    ),
    "Llama-3.2-1B": Shape(
        arch="llama", layers=16, hidden=2048, ffn=8192, heads=32, kv_heads=8, head_dim=64, vocab=128256,
        rope_theta=500000.0,
    ),
}  # fmt: skip


def tensor_type(asked: str, name: str, cols: int, i: int, layers: int) -> str:
    """The type of a matrix in a file of the asked type."""
    if asked != "q4_k_m":
        return asked
    more = i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2
    fine = name == "token_embd.weight" or (("attn_v" in name or "ffn_down" in name) and more)
    if cols % 256:
        return "q8_0" if fine else "q5_0"
    return "q6_k" if fine else "q4_k"


def random_rows(type_name: str, rows: int, cols: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Blocks of random codes with fixed scales: [rows, bytes of a row]."""
    each = row_bytes(type_name, cols)
    piece = rng.integers(0, 256, (min(rows, PIECE_ROWS), each), np.uint8)
    blocks = piece.reshape(-1, quant(type_name).block_bytes)
    for at in HALVES[type_name]:
        blocks[:, at : at + 2] = np.frombuffer(np.uint16(SCALE_HALF).tobytes(), np.uint8)
    return np.resize(piece, (rows, each))


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, int], int]]:
    """(name, [out, in], layer) of every matrix."""
    yield "token_embd.weight", (shape.vocab, shape.hidden), -1
    for i in range(shape.layers):
        for name, size in shape.matrices(i).items():
            yield name, size, i


def write(name: str, asked: str, path: Path) -> None:
    """Writes the file."""
    shape, rng = SHAPES[name], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, shape.arch)
    _facts(writer, name, shape)
    for tensor, (rows, cols), i in tensors(shape):
        kind = tensor_type(asked, tensor, cols, i, shape.layers)
        data = random_rows(kind, rows, cols, rng)
        writer.add_tensor(tensor, data, raw_dtype=gguf.GGMLQuantizationType[kind.upper()])
    for i in range(shape.layers):
        for tensor, n in shape.vectors(i).items():
            writer.add_tensor(tensor, np.ones(n, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _facts(writer: gguf.GGUFWriter, name: str, shape: Shape) -> None:
    writer.add_name(f"{name} (random weights)")
    writer.add_context_length(8192)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)
    writer.add_tokenizer_model("no_vocab")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(SHAPES))
    parser.add_argument("type", choices=[*HALVES, "q4_k_m"])
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    write(args.name, args.type, args.out)


if __name__ == "__main__":
    main()
