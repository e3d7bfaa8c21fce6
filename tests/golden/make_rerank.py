"""Makes rerank.json: scores of a tiny Qwen3 that ranks by its answer, in float64.

The layout `card` is computed by the recipe of Qwen3-Reranker's model card with transformers, the others by
sentence-transformers' CrossEncoder. Run through `make goldens`, which compares; `--write` replaces the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.tiny_rerankers import DOCUMENTS, LAYOUTS, QUERY, write_reranker

FILE = Path(__file__).with_name("rerank.json")
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
TASK = "Given a web search query, retrieve relevant passages that answer the query"
PREFIX = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def scores_of_card(folder: Path) -> list[float]:
    """Logits of yes less those of no after the last token; documents stay text."""
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    first, last = (tokenizer.encode(text, add_special_tokens=False) for text in (PREFIX, SUFFIX))
    found: list[float] = []
    for document in DOCUMENTS:
        pair = f"<Instruct>: {TASK}\n<Query>: {QUERY}\n<Document>: {document}"
        ids = first + tokenizer.encode(pair, add_special_tokens=False, split_special_tokens=True) + last
        with torch.no_grad():
            row = model(torch.tensor([ids])).logits[0, -1]
        yes, no = (row[tokenizer.convert_tokens_to_ids(word)] for word in ("yes", "no"))
        found.append(float(yes - no))
    return found


def scores_of_modules(folder: Path) -> list[float]:
    """Raw scores of documents without control tokens, which CrossEncoder would read as such."""
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float64})
    raw: Any = model.predict(
        [(QUERY, text) for text in plain()],
        activation_fn=torch.nn.Identity(),
        batch_size=1,
        show_progress_bar=False,
        convert_to_numpy=False,
    )
    return [float(score) for score in raw]


def plain() -> list[str]:
    return [text for text in DOCUMENTS if "<|" not in text]


def main() -> int:
    if not find_spec("sentence_transformers"):
        print("sentence-transformers is not installed")
        return 0
    found: dict[str, list[float]] = {}
    for layout in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            path = write_reranker(Path(folder), layout)
            found[layout] = (scores_of_card if layout == "card" else scores_of_modules)(path)
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    stored = json.loads(FILE.read_text())
    error = max(float(np.abs(np.array(stored[name]) - found[name]).max()) for name in LAYOUTS)
    print(f"largest difference to the committed scores: {error:.1e}")
    return 0 if error < 1e-6 else 1


if __name__ == "__main__":
    raise SystemExit(main())
