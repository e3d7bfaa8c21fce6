"""The stand-in models of the comparison with llama-server."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize
from tests.support.gguf_files import CHATML

from camelid.formats.gguf import open_gguf

LAYERS, HIDDEN, FFN, HEADS = 2, 256, 512, 4
VOCABULARY = ("tokens", "scores", "token_type")


def write_spm_llama(path: Path, vocabulary: Path) -> None:
    """A random llama of 17 MB with a SentencePiece vocabulary, which opens texts with BOS and never ends."""
    metadata = open_gguf(vocabulary).metadata
    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(7)
    tokens, scores, types = (metadata[f"tokenizer.ggml.{name}"] for name in VOCABULARY)
    add_spec(writer, n_vocab=len(tokens))  # type: ignore[arg-type]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)  # type: ignore[arg-type]
    writer.add_token_scores(scores)  # type: ignore[arg-type]
    writer.add_token_types(types)  # type: ignore[arg-type]
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHATML)
    for name, shape in shapes(len(tokens)).items():  # type: ignore[arg-type]
        value = rng.normal(0, 1 / np.sqrt(shape[-1]), shape).astype(np.float32)
        if name == "output.weight":
            value[2] = -value.sum(axis=0)  # far from every row of hidden states: the end token is never drawn
        kind = gguf.GGMLQuantizationType.Q8_0 if len(shape) == 2 else gguf.GGMLQuantizationType.F32
        value = np.ones(shape, np.float32) if len(shape) == 1 else value
        writer.add_tensor(name, quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_spec(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """The shape of the model."""
    writer.add_name("spm llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    writer.add_file_type(7)


def shapes(n_vocab: int) -> dict[str, tuple[int, ...]]:
    """[out, in] of each matrix, and the norms."""
    square, up, down = (HIDDEN, HIDDEN), (FFN, HIDDEN), (HIDDEN, FFN)
    layer: dict[str, tuple[int, ...]] = {
        "attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square, "ffn_gate": up,
        "ffn_up": up, "ffn_down": down, "attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,),
    }  # fmt: skip
    whole: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (n_vocab, HIDDEN), "output.weight": (n_vocab, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }  # fmt: skip
    return whole | {f"blk.{i}.{name}.weight": shape for i in range(LAYERS) for name, shape in layer.items()}
