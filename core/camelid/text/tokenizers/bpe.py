"""Byte-level BPE: words as bytes, merged pair by pair in the order of the merges (GPT-2, Llama 3, Qwen)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from camelid.errors import RequestError
from camelid.text.tokenizers.fast import fast_byte_level
from camelid.text.tokenizers.merge import merge, text_merges
from camelid.text.tokenizers.metadata import array, key, retyped, roles, tokens_and_types
from camelid.text.tokenizers.pipeline import Pipeline
from camelid.text.tokenizers.pretokenize import splitter
from camelid.text.tokenizers.sentencepiece import characters_from_gguf
from camelid.text.tokenizers.vocab import ALPHABET, TO_LATIN1, Vocab

TO_ALPHABET = {byte: ord(char) for byte, char in enumerate(ALPHABET)}


class ByteLevelBpe:
    """Encodes words. `merges` are "left right" in the byte alphabet, lowest rank first.

    With `ignore_merges`, a word that is a token is encoded as this token without any merge. Merges of tokens
    in `control` are left out. Raises ModelFormatError if tokens and merges contradict each other.
    """

    def __init__(
        self,
        vocab: Vocab,
        merges: Sequence[str],
        *,
        ignore_merges: bool = False,
        control: Container[str] = frozenset(),
    ) -> None:
        self._ignore_merges = ignore_merges
        # Control tokens are left out: no merge and no whole word may make one from ordinary text.
        self._ids = vocab.text_ids()
        self.merges = text_merges(merges, self._ids, control)
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}

    def encode_word(self, word: str) -> Sequence[int]:
        """Token ids of one word. Raises RequestError if a byte of the word has no token."""
        spelled = word.encode().decode("latin-1").translate(TO_ALPHABET)
        ids = self._ids
        if self._ignore_merges and spelled in ids:
            return (ids[spelled],)
        try:
            return tuple([ids[token] for token in merge(list(spelled), self._ranks, " ")])
        except KeyError as error:
            byte = TO_LATIN1[ord(str(error.args[0]))]
            raise RequestError(
                f"the vocabulary has no token for byte 0x{byte:02x}, in {word[:20]!r}",
                field="text",
                byte=byte,
            ) from None


def bpe_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """The tokenizer described by `tokenizer.ggml.*`, kind "gpt2".

    Raises ModelFormatError, UnsupportedModelError.
    """
    name = metadata.get(key("pre"), "default")
    row = splitter(name if isinstance(name, str) else repr(name))
    if not row.spells_bytes:
        return characters_from_gguf(metadata, row)
    vocab, merges = Vocab(*tokens_and_types(metadata)), array(metadata, "merges", str)
    control = retyped(metadata, vocab)
    model = ByteLevelBpe(vocab, merges, ignore_merges=row.ignore_merges, control=control)
    return Pipeline(
        vocab,
        model.encode_word,
        roles=roles(metadata, vocab, add_bos=row.add_bos),
        split=row.split,
        fast=lambda: fast_byte_level(
            vocab.text_ids(), model.merges, row.split, ignore_merges=row.ignore_merges
        ),
    )
