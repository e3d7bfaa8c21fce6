"""The `Tokenizer` protocol, and its construction from GGUF metadata."""

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
        """Number of token ids; valid ids are 0 … vocab_size - 1."""
        ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids of the tokens that end a turn or a text."""
        ...

    @property
    def bos_id(self) -> int | None:
        """Id of the token that opens a text, or None."""
        ...

    @property
    def eos_id(self) -> int | None:
        """Id of the token that closes a text, or None."""
        ...

    @property
    def frame(self) -> Frame:
        """Token ids before and after every text, as in the model's training; `encode` leaves them out."""
        ...

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of `text`; control tokens in it are recognized only with `special`."""
        ...

    def encode_spans(self, spans: Iterable[tuple[str, bool]], *, opens: bool = True) -> list[int]:
        """Token ids of the joined (text, trusted) spans; control tokens are recognized in trusted text only.

        With `opens=False` the text continues another text.
        """
        ...

    def decode(self, token_ids: Iterable[int], *, special: bool = False) -> str:
        """The text of `token_ids`; control tokens are left out unless `special`."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, which may end within a character."""
        ...

    def opening_bytes(self, token_id: int) -> bytes:
        """The token's bytes at the start of a text, without a space that `encode` puts there."""
        ...

    def is_control(self, token_id: int) -> bool:
        """True for a control token, which stands for no text."""
        ...


# tokenizer.ggml.model -> its builder.
KINDS = {
    "bert": wordpiece_from_gguf,
    "gpt2": bpe_from_gguf,
    "llama": sentencepiece_from_gguf,
    "rwkv": rwkv_from_gguf,
    "t5": unigram_from_gguf,
}


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """Builds the tokenizer of GGUF metadata.

    Raises UnsupportedModelError for a kind or pre-tokenizer without a row, and ModelFormatError for arrays
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
