"""WordPiece: a word is the longest token at its start, then the longest continuation, and so on (BERT).

Source: google-research/bert tokenization.py, huggingface/tokenizers models/wordpiece and decoders/wordpiece.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.metadata import eos_ids, flag, key, special_id, tokens_and_types
from camelid.text.tokenizers.normalize import bert
from camelid.text.tokenizers.piece_trie import Branch, trie
from camelid.text.tokenizers.pipeline import Frame, Pipeline, Roles, without_space
from camelid.text.tokenizers.sentencepiece import SPACE
from camelid.text.tokenizers.vocab import CONTROL_TYPES, Vocab, literal
from camelid.text.tokenizers.words import bert_words

MAX_CHARS = 100
# GGUF keys of the ids, with llama.cpp's defaults for files without them.
DEFAULT_IDS = {key("cls_token_id"): 101, key("unknown_token_id"): 100, key("seperator_token_id"): 102}
SPACELESS = (".", "?", "!", ",")  # written without the space that separates words


class WordPiece:
    """Encodes words. `ids` are the tokens that text may become; `prefix` marks tokens within a word.

    A word without a cut into tokens, or of more than `max_chars` characters, becomes `unk_id`. Raises
    ModelFormatError.
    """

    def __init__(
        self, ids: Mapping[str, int], unk_id: int, *, prefix: str = "##", max_chars: int | None = MAX_CHARS
    ) -> None:
        self._starts = self._continuations = trie(ids)
        if prefix:
            self._continuations = trie({t[len(prefix) :]: i for t, i in ids.items() if t.startswith(prefix)})
        self._unk_id = unk_id
        self._max_chars = max_chars

    def encode_word(self, word: str) -> Sequence[int]:
        """Token ids of one word."""
        if self._max_chars is not None and len(word) > self._max_chars:
            return (self._unk_id,)
        token_ids: list[int] = []
        at, root = 0, self._starts
        while at < len(word):
            end, token_id = longest(root, word, at)
            if token_id is None:
                return (self._unk_id,)
            token_ids.append(token_id)
            at, root = end, self._continuations
        return tuple(token_ids)


def longest(root: Branch[int], word: str, start: int) -> tuple[int, int | None]:
    """The end and the id of the longest token that begins at `start`."""
    found: tuple[int, int | None] = start, None
    branch = root.spread().get(word[start])
    end = start + 1
    while branch is not None:
        if branch.value is not None:
            found = end, branch.value
        if end == len(word):
            break
        branch = (branch.children or branch.spread()).get(word[end])
        end += 1
    return found


def wordpiece_piece(token: str, token_type: int) -> bytes:
    """The bytes of one token: ▁ begins a word, and a space separates it from the previous word."""
    if token_type in CONTROL_TYPES or not token.startswith(SPACE):
        return literal(token, token_type)
    word = token.removeprefix(SPACE)
    return literal(word if word.startswith(SPACELESS) else " " + word, token_type)


def wordpiece_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """The tokenizer described by `tokenizer.ggml.*`, kind "bert". Raises ModelFormatError.

    As in llama.cpp, tokens that begin a word are spelled with ▁ and the others without a mark, so that a ▁
    within a word may become a token that begins a word; words may have any length. Text is normalized and cut
    as `tokenizers` does for BERT.
    """
    metadata = DEFAULT_IDS | {**metadata}
    vocab = Vocab(*tokens_and_types(metadata), wordpiece_piece)
    unk_id = required_id(metadata, "unknown_token_id", len(vocab))
    model = WordPiece(vocab.text_ids(), unk_id, prefix="", max_chars=None)
    lowercase = flag(metadata, "normalizer.lowercase", default=True)
    strip_accents = flag(metadata, "normalizer.strip_accents", default=lowercase)
    return Pipeline(
        vocab,
        model.encode_word,
        roles=bert_roles(metadata, vocab),
        prepare=lambda text, opens: bert(text, lowercase=lowercase, strip_accents=strip_accents),
        split=marked_words,
        opening=without_space,
    )


def marked_words(text: str) -> Iterable[str]:
    return [SPACE + word for word in bert_words(text)]


def bert_roles(metadata: Mapping[str, object], vocab: Vocab) -> Roles:
    """The roles of the special tokens: [CLS] and [SEP] around every text. Raises ModelFormatError."""
    opens_with = "bos_token_id" if key("bos_token_id") in metadata else "cls_token_id"
    cls_id = required_id(metadata, opens_with, len(vocab))
    sep_id = required_id(metadata, "seperator_token_id", len(vocab))
    return Roles(
        bos_id=cls_id,
        eos_id=special_id(metadata, "eos_token_id", len(vocab)),
        eos_ids=eos_ids(metadata, vocab),
        frame=Frame((cls_id,), (sep_id,)),
    )


def required_id(metadata: Mapping[str, object], name: str, n_tokens: int) -> int:
    """The id under a required key. Raises ModelFormatError."""
    token_id = special_id(metadata, name, n_tokens)
    if token_id is None:
        raise ModelFormatError(f"{key(name)} is missing", key=key(name))
    return token_id
