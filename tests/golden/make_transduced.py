"""Makes transduced.json with transformers: greedy answers of the tiny models with an encoder and a decoder.

Run through `make goldens`; `--write` replaces the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from tests.support.tiny_transducers import write_transducer
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast, logging

FILE = Path(__file__).with_name("transduced.json")
CASES = ("t5", "flan_t5", "mt5", "umt5")
PROMPTS = ("translate english to german: worda is wordb", "a", "wordz worda sin " * 12)
N_TOKENS = 24


def answers(name: str) -> list[dict[str, Any]]:
    """Prompt, its token ids, and the greedy answer's token ids and text."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_transducer(Path(folder), name)
        model = AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float64).eval()
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"))
    return [answer(model, tokenizer, prompt) for prompt in PROMPTS]


def answer(model: Any, tokenizer: Any, prompt: str) -> dict[str, Any]:
    ids = tokenizer(prompt)["input_ids"]
    with torch.no_grad():
        found = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            decoder_start_token_id=model.config.decoder_start_token_id,
            max_new_tokens=N_TOKENS,
            do_sample=False,
        )
    made = found[0, 1:].tolist()
    text = tokenizer.decode([i for i in made if i > 1], clean_up_tokenization_spaces=False)
    return {"prompt": prompt, "ids": ids, "answer": made, "text": text}


def main() -> int:
    logging.set_verbosity_error()
    made = {name: answers(name) for name in CASES}
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(made, indent=1) + "\n")
    is_same = json.loads(FILE.read_text()) == made
    print(f"{FILE.name}: {'equal' if is_same else 'DIFFERENT'}")
    return 0 if is_same else 1


if __name__ == "__main__":
    raise SystemExit(main())
