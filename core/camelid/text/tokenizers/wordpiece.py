"""WordPiece: a word is the longest token that begins it, then the longest that goes on, and so forth (BERT).

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
from camelid.text.tokenizers.vocab import STEERING, Vocab, literal
from camelid.text.tokenizers.words import bert_words

MAX_CHARS = 100
# GGUF names of the ids, with what llama.cpp takes where a file leaves them out.
DEFAULT_IDS = {key("cls_token_id"): 101, key("unknown_token_id"): 100, key("seperator_token_id"): 102}
SPACELESS = (".", "?", "!", ",")  # written without the space that parts words


class WordPiece:
    """Encodes a word. `ids`: the tokens that text may become; `prefix` marks those that go on with a word.

    A word that no tokens spell, or of more than `max_chars` characters, is `unk_id`. Raises ModelFormatError.
    """

    def __init__(
        self, ids: Mapping[str, int], unk_id: int, *, prefix: str = "##", max_chars: int | None = MAX_CHARS
    ) -> None:
        self._starts = self._goes_on = trie(ids)
        if prefix:
            self._goes_on = trie({t[len(prefix) :]: i for t, i in ids.items() if t.startswith(prefix)})
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
            at, root = end, self._goes_on
        return tuple(token_ids)


def longest(root: Branch[int], word: str, start: int) -> tuple[int, int | None]:
    """Where the longest token that begins at `start` ends, and its id."""
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
    """The bytes of one token: ▁ begins a word, which a space parts from the one before."""
    if token_type in STEERING or not token.startswith(SPACE):
        return literal(token, token_type)
    word = token.removeprefix(SPACE)
    return literal(word if word.startswith(SPACELESS) else " " + word, token_type)


def wordpiece_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """The tokenizer that `tokenizer.ggml.*` describes, kind "bert". Raises ModelFormatError.

    Tokens that begin words are spelled with ▁ there and the others without a mark, so that a ▁ within a word
    may become one that begins words; words may be of any length. Both is as in llama.cpp. Text is normalised
    and cut as `tokenizers` does it for BERT.
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
    """Every text stands between [CLS] and [SEP]. Raises ModelFormatError."""
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
    """The id under this key. Raises ModelFormatError."""
    token_id = special_id(metadata, name, n_tokens)
    if token_id is None:
        raise ModelFormatError(f"{key(name)} is missing", key=key(name))
    return token_id
