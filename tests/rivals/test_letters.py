"""The vocabulary of letters: equal weights, and one token per byte of text."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from tests.rivals.letters import write_with_letters
from tests.support.gguf_files import write_tiny_llama

import camelid

TEXT = " the llama & the alpaca, 12 + 30: ä"


def test_only_the_vocabulary_differs(tmp_path: Path) -> None:
    bare, lettered = tmp_path / "bare.gguf", tmp_path / "lettered.gguf"
    write_tiny_llama(bare, seed=11, with_tokenizer=False)
    write_with_letters(bare, lettered)
    old, new = gguf.GGUFReader(bare), gguf.GGUFReader(lettered)
    assert [t.name for t in old.tensors] == [t.name for t in new.tensors]
    for a, b in zip(old.tensors, new.tensors, strict=True):
        assert a.tensor_type == b.tensor_type and np.array_equal(a.data, b.data)
    ours = {name for name in new.fields if not name.startswith("tokenizer.")}
    assert ours == {name for name in old.fields if not name.startswith("tokenizer.")}
    with camelid.load(lettered, backend="reference", context=64) as llm:
        ids = llm.render([{"role": "user", "content": TEXT}])
        assert len(ids) == len(TEXT.encode())
        assert llm.detokenize(ids) == TEXT
