"""Writes a checkpoint as GGUF: `python -m cria.export build/cria core/camelid/data/cria.gguf`."""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from cria.model import Spec
from cria.tokenizer import CHAT_TEMPLATE, END_OF_TEXT, IM_END, SPECIALS, TAGS, load_tokenizer

NAME = "cria"
ABOUT = (
    "A tiny chat model: sums and differences within 0..99, some facts, letters of words, a name and a number "
    "remembered, JSON to a schema, two tools, small talk, and I don't know."
)


def write_spec(writer: gguf.GGUFWriter, spec: Spec) -> None:
    """Writes general and architecture metadata."""
    writer.add_name(NAME)
    writer.add_description(ABOUT)
    writer.add_license("mit")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(spec.n_layers)
    writer.add_context_length(spec.context_length)
    writer.add_embedding_length(spec.hidden_size)
    writer.add_feed_forward_length(spec.ffn_size)
    writer.add_head_count(spec.n_heads)
    writer.add_head_count_kv(spec.n_kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_layer_norm_rms_eps(spec.norm_eps)
    writer.add_rope_freq_base(spec.rope_theta)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_vocab_size(spec.vocab_size)
    writer.add_float32("general.sampling.temp", 0.0)  # recommended temperature: answers are facts


def write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    """Writes vocabulary, merges, special tokens and the chat template."""
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    kinds = [kind_of(token) for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_eos_token_id(tokens.index(IM_END))
    writer.add_pad_token_id(tokens.index(END_OF_TEXT))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def kind_of(token: str) -> gguf.TokenType:
    """Token type: control tokens are never parsed from or printed as text; tags are both."""
    if token in SPECIALS:
        return gguf.TokenType.CONTROL
    return gguf.TokenType.USER_DEFINED if token in TAGS else gguf.TokenType.NORMAL


def write_weights(writer: gguf.GGUFWriter, state: dict[str, torch.Tensor]) -> None:
    """Writes matrices as Q8_0 and norms as F32."""
    for name, weight in state.items():
        array = weight.float().numpy().astype(np.float32)
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)


def export(run: Path, path: Path) -> int:
    """Writes the GGUF file of a training run and returns its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    write_spec(writer, Spec())
    write_tokenizer(writer, load_tokenizer(run / "tokenizer.json"))
    write_weights(writer, torch.load(run / "checkpoint.pt")["model"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.stat().st_size


def main() -> None:
    """Parses the command line and exports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder with checkpoint.pt and tokenizer.json")
    parser.add_argument("path", type=Path, help="the GGUF file to write")
    args = parser.parse_args()
    print(f"{args.path}: {export(args.run, args.path)} bytes")


if __name__ == "__main__":
    main()
