"""Files of random weights in the shapes of real models: `python -m tests.perf.shapes NAME TYPE OUT`.

`--vocab FILE.gguf` adds the tokenizer of a file, and a plain chat template, so that servers can read text.

Their output is meaningless, but their cost equals the real model's. Q4_K_M is llama.cpp's mixture: Q6_K for
the output (or the tied embedding) and for attn_v and ffn_down in the first and last eighth of the layers and
every third layer between, else Q4_K; Q8_0 and Q5_0 replace them where a row is no multiple of 256.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from camelid.formats.quants import quant, row_bytes

PIECE_ROWS = 512  # drawn once and repeated: the repeat is longer than a cache's reach
SCALE_HALF = 0x2000  # 2**-7, the value of every float16 of a block
SCALE_POWER = 0x78  # 2**-7 as the exponent byte of a block without float16 numbers
HALVES = {  # offsets of the float16 numbers in a block, by type
    "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,), "q2_k": (80, 82),
    "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,), "iq4_nl": (0,), "iq4_xs": (0,),
    "iq2_xxs": (0,), "iq2_xs": (0,), "iq2_s": (0,), "iq3_xxs": (0,), "iq3_s": (0,), "iq1_s": (0,),
    "tq1_0": (52,), "tq2_0": (64,), "mxfp4": (),
}  # fmt: skip
CONTEXT = 8192
# ChatML, since llama.cpp's server knows it too.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FLOATS: dict[str, Callable[[NDArray[np.float32]], NDArray[Any]]] = {
    "f32": lambda x: x,
    "f16": lambda x: x.astype(np.float16),
    "bf16": lambda x: (x.view(np.uint32) >> 16).astype(np.uint16),
}
TYPES = (*FLOATS, *HALVES)


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
    experts: int = 0
    experts_used: int = 0

    def matrices(self, i: int) -> dict[str, tuple[int, ...]]:
        """[out, in] of a layer's matrices, [experts, out, in] of a mixture's."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        stack, more = ((self.experts,), "_exps") if self.experts else ((), "")
        sizes = {
            "attn_q": (q, self.hidden), "attn_k": (kv, self.hidden), "attn_v": (kv, self.hidden),
            "attn_output": (self.hidden, q), f"ffn_gate{more}": (*stack, self.ffn, self.hidden),
            f"ffn_up{more}": (*stack, self.ffn, self.hidden),
            f"ffn_down{more}": (*stack, self.hidden, self.ffn),
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
    "Llama-3.1-8B": Shape(
        arch="llama", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128, vocab=128256,
        rope_theta=500000.0,
    ),
}  # fmt: skip


def tensor_type(asked: str, name: str, cols: int, i: int, layers: int) -> str:
    """The type of a matrix in a file of the requested type."""
    if asked != "q4_k_m":
        return asked
    more = i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2
    fine = name == "token_embd.weight" or (("attn_v" in name or "ffn_down" in name) and more)
    if cols % 256:
        return "q8_0" if fine else "q5_0"
    return "q6_k" if fine else "q4_k"


def random_rows(type_name: str, rows: int, cols: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Blocks of random codes with fixed scales, or small random numbers: [rows, row_bytes]."""
    n, each = min(rows, PIECE_ROWS), row_bytes(type_name, cols)
    if type_name in FLOATS:
        values = rng.normal(0, 0.02, (n, cols)).astype(np.float32)
        return np.resize(FLOATS[type_name](values).view(np.uint8), (rows, each))
    piece = rng.integers(0, 256, (n, each), np.uint8)
    blocks = piece.reshape(-1, quant(type_name).block_bytes)
    for at in HALVES[type_name]:
        blocks[:, at : at + 2] = np.frombuffer(np.uint16(SCALE_HALF).tobytes(), np.uint8)
    if type_name == "mxfp4":
        blocks[:, 0] = SCALE_POWER
    return np.resize(piece, (rows, each))


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """(name, [out, in] or [experts, out, in], layer) of every matrix."""
    yield "token_embd.weight", (shape.vocab, shape.hidden), -1
    for i in range(shape.layers):
        for name, size in shape.matrices(i).items():
            yield name, size, i


def write(
    name: str, shape: Shape, asked: str, path: Path, context: int = CONTEXT, vocab: Path | None = None
) -> None:
    """Writes the file; with a vocabulary its embedding has a row per token of it."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, shape.arch)
    if vocab:
        shape = replace(shape, vocab=_copy_tokenizer(writer, vocab))
    else:
        writer.add_tokenizer_model("no_vocab")
    _facts(writer, name, shape, context)
    for tensor, (*stack, rows, cols), i in tensors(shape):
        kind = tensor_type(asked, tensor, cols, i, shape.layers)
        data = random_rows(kind, math.prod(stack) * rows, cols, rng).reshape(*stack, rows, -1)
        writer.add_tensor(tensor, data, raw_dtype=gguf.GGMLQuantizationType[kind.upper()])
    for i in range(shape.layers):
        for tensor, n in shape.vectors(i).items():
            writer.add_tensor(tensor, np.ones(n, np.float32))
        if shape.experts:
            router = rng.normal(0, 0.02, (shape.experts, shape.hidden)).astype(np.float32)
            writer.add_tensor(f"blk.{i}.ffn_gate_inp.weight", router)
    writer.add_tensor("output_norm.weight", np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_tokenizer(writer: gguf.GGUFWriter, vocab: Path) -> int:
    """Copies the tokenizer of a GGUF file, and returns the number of its tokens."""
    fields = gguf.GGUFReader(vocab).fields
    for key, field in fields.items():
        if key.startswith("tokenizer.") and key != gguf.Keys.Tokenizer.CHAT_TEMPLATE:
            kind, *parts = field.types
            writer.add_key_value(key, field.contents(), kind, parts[0] if parts else None)
    writer.add_chat_template(TEMPLATE)
    return len(fields[gguf.Keys.Tokenizer.LIST].data)


def _facts(writer: gguf.GGUFWriter, name: str, shape: Shape, context: int) -> None:
    writer.add_name(f"{name} (random weights)")
    writer.add_context_length(context)
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
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
        writer.add_expert_feed_forward_length(shape.ffn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(SHAPES))
    parser.add_argument("type", choices=[*TYPES, "q4_k_m"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--context", type=int, default=CONTEXT, help="Context length that the file states.")
    parser.add_argument("--vocab", type=Path, help="GGUF file whose tokenizer is copied.")
    args = parser.parse_args()
    write(args.name, SHAPES[args.name], args.type, args.out, args.context, args.vocab)


if __name__ == "__main__":
    main()
