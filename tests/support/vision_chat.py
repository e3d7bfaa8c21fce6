"""A tiny Gemma 3 with a tower, a tokenizer of bytes and a chat template, for requests with images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.golden.vision_cases import GEMMA3_VISION
from tests.support.hf_models import HfCase, write_hf
from tests.support.vision_models import load_vision

from camelid.loading.convert import convert
from camelid.loading.convert_tower import convert_tower

SPECIALS = (
    "<pad>",
    "<bos>",
    "<eos>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
)
BOI, EOI = SPECIALS.index("<start_of_image>"), SPECIALS.index("<end_of_image>")
N_ROWS = 16  # of an image
SIZE = [32, 32]  # height and width of the tower's input
VOCAB = 320
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + m['role'] + '\n' }}"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<start_of_image>' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)


def byte_letters() -> list[str]:
    """The letters of byte-level BPE for bytes 0 to 255."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    letters = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    return [letters[b] for b in range(256)]


def tokenizer_json() -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocab = {text: i for i, text in enumerate((*SPECIALS, *byte_letters()))}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": text, **flags} for i, text in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }


def write_chat_model(folder: Path) -> Path:
    """Writes the model's directory."""
    golden = load_vision("gemma3").model
    embedding = "language_model.model.embed_tokens.weight"
    text = GEMMA3_VISION["text_config"] | {"vocab_size": VOCAB, "max_position_embeddings": 1024}
    config = GEMMA3_VISION | {"text_config": text, "bos_token_id": 1, "eos_token_id": 2}
    case = HfCase(
        name="gemma3_chat", config=config, seed=5021, tensors=golden.tensors | {embedding: [VOCAB, 64]},
        token_ids=[], logits=[], weights_crc32=0,
    )  # fmt: skip
    write_hf(folder, case)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    settings = {"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_chat_ggufs(folder: Path) -> tuple[Path, Path]:
    """Writes the model and its tower as GGUF files, and returns their paths."""
    directory = write_chat_model(folder / "directory")
    text, mmproj = folder / "text.gguf", folder / "mmproj.gguf"
    convert(directory, text)
    convert_tower(directory, mmproj)
    return text, mmproj
