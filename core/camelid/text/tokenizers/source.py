"""The description of a tokenizer, which another process can build again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.pipeline import Pipeline
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """A GGUF file's metadata, or the files of a Hugging Face directory and the rows of its embedding."""

    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
    files: TokenizerFiles | None = None
    vocab_size: int | None = None

    def build(self) -> Pipeline:
        """The tokenizer. Raises as `tokenizer_from_gguf` or `tokenizer_from_json`."""
        if self.files is None:
            return tokenizer_from_gguf(self.metadata)
        from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json  # a page has no directories

        return tokenizer_from_json(self.files, self.vocab_size)

    def to_json(self) -> bytes:
        """This description as JSON text; the metadata without arrays of other parts of the runtime."""
        if self.files is None:
            metadata = {name: value for name, value in self.metadata.items() if _concerns(name, value)}
            return json.dumps({"metadata": metadata}).encode()
        files = {each.name: getattr(self.files, each.name) for each in fields(self.files)}
        return json.dumps({"files": files, "vocab_size": self.vocab_size}, default=_plain).encode()

    @classmethod
    def of_json(cls, data: bytes) -> TokenizerSource:
        """The description of `to_json`."""
        found: dict[str, Any] = json.loads(data)
        if "files" in found:
            found["files"] = TokenizerFiles(**found["files"])
        return cls(**found)


def _concerns(name: str, value: object) -> bool:
    return name.startswith("tokenizer.") or not isinstance(value, list)


def _plain(value: object) -> dict[str, object]:
    """A mapping as a dictionary, which JSON can write."""
    return dict(cast("Mapping[str, object]", value))
