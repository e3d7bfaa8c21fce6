"""What the engine asks of a tokenizer, and the door that makes one from a file's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from camelid.errors import UnsupportedModelError
from camelid.text.tokenizers.bpe import bpe_from_gguf
from camelid.text.tokenizers.pipeline import Frame, Pipeline
from camelid.text.tokenizers.rwkv import rwkv_from_gguf
from camelid.text.tokenizers.sentencepiece import sentencepiece_from_gguf
from camelid.text.tokenizers.unigram import unigram_from_gguf
from camelid.text.tokenizers.wordpiece import wordpiece_from_gguf


class Tokenizer(Protocol):
    """Text to token ids and back. Instances are immutable, apart from caches."""

    @property
    def vocab_size(self) -> int:
        """How many token ids there are; valid ids are 0 … vocab_size - 1."""
        ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end a turn or a text."""
        ...

    @property
    def bos_id(self) -> int | None:
        """The id that opens a text, if the vocabulary has one."""
        ...

    @property
    def eos_id(self) -> int | None:
        """The id that closes a text, if the file names one."""
        ...

    @property
    def frame(self) -> Frame:
        """What the model was trained to read around every text; only `framed` adds it."""
        ...

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of `text`; control tokens written in it are recognised only with `special`."""
        ...

    def encode_spans(self, spans: Iterable[tuple[str, bool]], *, opens: bool = True) -> list[int]:
        """Token ids of the joined (text, trusted) spans; control tokens count in trusted text only.

        Without `opens` the text goes on with another.
        """
        ...

    def decode(self, token_ids: Iterable[int], *, special: bool = False) -> str:
        """The text of `token_ids`; control tokens are left out unless `special`."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for: not always whole characters."""
        ...

    def opening_bytes(self, token_id: int) -> bytes:
        """The same where the token opens a text: some kinds drop a space that they put there."""
        ...

    def is_control(self, token_id: int) -> bool:
        """Whether the token steers the model instead of standing for text."""
        ...


def framed(tokenizer: Tokenizer, token_ids: Iterable[int]) -> list[int]:
    """A whole text's ids with what goes around them, as far as the file asks for it: BOS, EOS.

    What llama.cpp's llama_tokenize does with `add_special`; chat templates write their own.
    """
    return [*tokenizer.frame.before, *token_ids, *tokenizer.frame.after]


# tokenizer.ggml.model -> what builds it.
KINDS = {
    "bert": wordpiece_from_gguf,
    "gpt2": bpe_from_gguf,
    "llama": sentencepiece_from_gguf,
    "rwkv": rwkv_from_gguf,
    "t5": unigram_from_gguf,
}


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """Build the tokenizer that GGUF metadata describes.

    Raises UnsupportedModelError for a kind or pre-tokenizer that has no row, ModelFormatError for arrays
    that contradict each other.
    """
    kind = metadata.get("tokenizer.ggml.model")
    build = KINDS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise UnsupportedModelError(
            f"tokenizer kind {kind!r:.80} is not supported; known: {', '.join(sorted(KINDS))}",
            kind="tokenizer",
            name=kind,
            known=sorted(KINDS),
        )
    return build(metadata)
