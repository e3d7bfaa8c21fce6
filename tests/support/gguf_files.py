"""Small random models in GGUF files, written by the gguf package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from os import PathLike

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = (
    "the llama and the alpaca walked over the mountain to the other side of the river where the grass "
    "was green and the water was cold and they stayed there until the rain and the wind had gone"
)
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7}  # general.file_type, LLAMA_FTYPE_*


def write_tiny_llama(
    path: str | PathLike[str],
    *,
    seed: int,
    n_layers: int = 2,
    hidden: int = 256,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    head_dim: int = 64,
    ffn: int = 512,
    vocab: int = 320,
    context: int = 256,
    tied: bool = True,
    rope_freqs: Sequence[float] | None = None,
    type: str = "q8_0",  # noqa: A002 - the name in GGUF
    rope_theta: float = 10000.0,
    with_tokenizer: bool = True,
    temperature: float | None = None,
    template: str = CHATML,
) -> Weights:
    """Writes a random llama model. Returns its stored weights, dequantized to float32, by GGUF name.

    `type` (q8_0, q4_0, f16 or f32) is the type of the matrices; norms and rope_freqs are F32. The tokenizer
    needs `vocab` >= 259: 256 bytes, merges, padding if any, then the control tokens.
    """
    shapes = _matrix_shapes(n_layers, hidden, n_heads * head_dim, n_kv_heads * head_dim, ffn, vocab, tied)
    writer = gguf.GGUFWriter(path, "llama")
    _add_spec(writer, n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, context, rope_theta)
    writer.add_file_type(FILE_TYPES[type])
    if with_tokenizer:
        _add_tokenizer(writer, vocab, template)
    if temperature is not None:
        writer.add_float32("general.sampling.temp", temperature)
    vectors = {} if rope_freqs is None else {"rope_freqs.weight": np.array(rope_freqs, dtype=np.float32)}
    weights = _random_weights(shapes, n_layers, hidden, np.random.default_rng(seed)) | vectors
    stored = {name: _add_tensor(writer, name, value, type) for name, value in weights.items()}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def _matrix_shapes(
    n_layers: int, hidden: int, q_size: int, kv_size: int, ffn: int, vocab: int, tied: bool
) -> dict[str, tuple[int, int]]:
    """[out, in] of each matrix, by GGUF name."""
    layer = {
        "attn_q": (q_size, hidden),
        "attn_k": (kv_size, hidden),
        "attn_v": (kv_size, hidden),
        "attn_output": (hidden, q_size),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    shapes = {"token_embd.weight": (vocab, hidden)} | ({} if tied else {"output.weight": (vocab, hidden)})
    return shapes | {
        f"blk.{i}.{name}.weight": shape for i in range(n_layers) for name, shape in layer.items()
    }


def _random_weights(
    shapes: dict[str, tuple[int, int]], n_layers: int, hidden: int, rng: np.random.Generator
) -> Weights:
    """Scaled so that layers outweigh the embedding, and scores and logits spread by about 2."""
    weights = {name: _random_matrix(name, shape, rng) for name, shape in shapes.items()}
    norms = [f"blk.{i}.{kind}_norm.weight" for i in range(n_layers) for kind in ("attn", "ffn")]
    return weights | {name: _random_norm(hidden, rng) for name in [*norms, "output_norm.weight"]}


def _random_matrix(name: str, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float32]:
    gains = {"attn_q": 1.5, "attn_k": 1.5, "token_embd": 2.0, "output": 2.0}
    gain = gains.get(name.split(".")[-2], 1.0)
    return rng.normal(0.0, gain / np.sqrt(shape[1]), shape).astype(np.float32)


def _random_norm(hidden: int, rng: np.random.Generator) -> NDArray[np.float32]:
    return rng.normal(1.0, 0.1, hidden).astype(np.float32)


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, value: NDArray[np.float32], type_name: str
) -> NDArray[np.float32]:
    kind = gguf.GGMLQuantizationType[type_name.upper() if value.ndim == 2 else "F32"]
    raw = quantize(value, kind)
    writer.add_tensor(name, raw, raw_dtype=kind)
    return dequantize(raw, kind).reshape(value.shape)


def _add_spec(
    writer: gguf.GGUFWriter,
    n_layers: int,
    hidden: int,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    ffn: int,
    vocab: int,
    context: int,
    rope_theta: float,
) -> None:
    writer.add_name("tiny llama")
    writer.add_block_count(n_layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(rope_theta)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)


def _add_tokenizer(writer: gguf.GGUFWriter, vocab: int, template: str) -> None:
    n_merges = vocab - 256 - len(CONTROL_TOKENS)
    if n_merges < 0:
        raise ValueError(f"vocab {vocab} is too small: 256 bytes and {len(CONTROL_TOKENS)} control tokens")
    merges = list(train_merges(CORPUS, n_merges))
    words = [*byte_alphabet(), *("".join(pair) for pair in merges)]
    unused = [f"[unused{i}]" for i in range(n_merges - len(merges))]
    kinds = [gguf.TokenType.NORMAL] * len(words) + [gguf.TokenType.UNUSED] * len(unused)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*words, *unused, *CONTROL_TOKENS])
    writer.add_token_types([*kinds, *[gguf.TokenType.CONTROL] * len(CONTROL_TOKENS)])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(vocab - 1)  # <|im_end|>
    writer.add_pad_token_id(vocab - 3)  # <|endoftext|>
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)


def byte_alphabet() -> list[str]:
    """GPT-2's letter of each byte: printable Latin-1 maps to itself, all others count up from 256."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def train_merges(text: str, n: int) -> Iterator[tuple[str, str]]:
    """Up to `n` byte-pair merges of the words of `text`, most frequent first; each makes another token."""
    words = [["Ġ", *word] for word in text.split()]
    made: set[str] = set()
    while len(made) < n:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        fresh = [pair for pair in pairs if "".join(pair) not in made]
        if not fresh:
            return
        best = max(fresh, key=lambda pair: (pairs[pair], pair))
        made.add("".join(best))
        words = [_merged(word, best) for word in words]
        yield best


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    for piece in word:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return out
