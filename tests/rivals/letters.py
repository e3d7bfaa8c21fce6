"""A model file with a vocabulary of letters, for engines that return only text."""

from __future__ import annotations

from pathlib import Path

import gguf
from tests.support.gguf_files import byte_alphabet

ECHO = "{{ messages[-1]['content'] }}"  # a prompt has one token per byte of its text
END = "<|end|>"
MERGE = "zz"  # a required merge; texts without it have one token per byte


def write_with_letters(source: Path, target: Path) -> None:
    """Copies weights and sizes of `source`. Each byte of text is a token; all other tokens never occur."""
    reader = gguf.GGUFReader(source)
    facts = {
        name: field for name, field in reader.fields.items() if not name.startswith(("GGUF.", "tokenizer."))
    }
    writer = gguf.GGUFWriter(target, str(facts.pop("general.architecture").contents()))
    for name, field in facts.items():
        writer.add_key_value(name, field.contents(), field.types[0])
    _add_letters(writer, next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight"))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_letters(writer: gguf.GGUFWriter, n_tokens: int) -> None:
    words = [*byte_alphabet(), MERGE]
    words += [f"w{i}" for i in range(n_tokens - len(words) - 1)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*words, END])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(words) + [gguf.TokenType.CONTROL])
    writer.add_token_merges([" ".join(MERGE)])
    writer.add_eos_token_id(n_tokens - 1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(ECHO)
