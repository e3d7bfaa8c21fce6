"""Byte-level BPE: words as bytes, joined pair by pair in the order of the merges (GPT-2, Llama 3, Qwen)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from camelid.errors import ModelFormatError, RequestError
from camelid.text.merge import merge
from camelid.text.metadata import array, key, roles, tokens_and_types
from camelid.text.pipeline import Pipeline
from camelid.text.pretokenize import splitter
from camelid.text.vocab import ALPHABET, TO_LATIN1, Vocab

TO_ALPHABET = {byte: ord(char) for byte, char in enumerate(ALPHABET)}


class ByteLevelBpe:
    """Encodes a word. `merges` are "left right" in the byte alphabet, lowest rank first.

    With `ignore_merges` a word that is a token is taken whole, whatever the merges say.
    Raises ModelFormatError when tokens and merges contradict each other.
    """

    def __init__(self, vocab: Vocab, merges: Sequence[str], *, ignore_merges: bool = False) -> None:
        self._ignore_merges = ignore_merges
        # Steering tokens are left out: no merge and no whole word may make one out of ordinary text.
        self._ids = vocab.text_ids()
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        check_merges(merges, self._ids)

    def encode_word(self, word: str) -> Sequence[int]:
        """Token ids of one word. RequestError if the vocabulary lacks one of its bytes."""
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


def check_merges(merges: Sequence[str], ids: Mapping[str, int]) -> None:
    """Every merge joins two tokens to a third, once. A token may begin with the space that parts them."""
    if len(set(merges)) < len(merges):
        pair = Counter(merges).most_common(1)[0][0]
        raise ModelFormatError(f"tokenizer: the merge {pair!r:.80} is listed twice", merge=pair)
    for rank, pair in enumerate(merges):
        border = pair.find(" ", 1)
        left, right = pair[:border], pair[border + 1 :]
        if border < 0 or left not in ids or right not in ids or left + right not in ids:
            unknown = next((t for t in (left, right, left + right) if border > 0 and t not in ids), pair)
            raise ModelFormatError(
                f"tokenizer: merge {rank} is {pair!r:.80}, but {unknown!r:.80} is no text token of the "
                "vocabulary",
                merge=pair,
                token=unknown,
            )


def bpe_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """The tokenizer that `tokenizer.ggml.*` describes. Raises ModelFormatError, UnsupportedModelError."""
    vocab = Vocab(*tokens_and_types(metadata))
    name = metadata.get(key("pre"), "default")
    row = splitter(name if isinstance(name, str) else repr(name))
    model = ByteLevelBpe(vocab, array(metadata, "merges", str), ignore_merges=row.ignore_merges)
    found = roles(metadata, vocab, add_bos=row.add_bos)
    return Pipeline(vocab, model.encode_word, roles=found, split=row.split)
