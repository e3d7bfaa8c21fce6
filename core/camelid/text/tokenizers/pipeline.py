"""The tokenizer of all kinds, and its decoder of streams.

Named tokens are cut out of a text. Each stretch between them is prepared (normalized) and split into words,
and each word becomes token ids. The kinds differ in these functions only.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, TypeAlias

from camelid.errors import RequestError
from camelid.text.tokenizers.fast import FAST_CHARS
from camelid.text.tokenizers.specials import Run
from camelid.text.tokenizers.vocab import CONTROL_TYPES, Vocab

CACHED_WORDS = 16_384  # the cache holds at most CACHED_WORDS * CACHED_CHARS characters
CACHED_CHARS = 64

Prepare: TypeAlias = Callable[[str, bool], str]  # (stretch, True if it opens the text) -> prepared stretch
Split: TypeAlias = Callable[[str], Iterable[str]]  # prepared stretch -> words, without removed characters
EncodeWord: TypeAlias = Callable[[str], Sequence[int]]
Opening: TypeAlias = Callable[[bytes], bytes]  # bytes of a token -> its bytes at the start of a text
Fast: TypeAlias = Callable[[str], list[int]]  # prepared stretch -> the same ids as word by word


@dataclass(frozen=True, slots=True)
class Frame:
    """Token ids before and after every text, as in the model's training."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def around(self, token_ids: Iterable[int]) -> list[int]:
        """Token ids of a whole text with the frame, such as BOS and EOS, around them.

        Equals llama.cpp's llama_tokenize with `add_special`. Chat templates write these tokens themselves.
        """
        return [*self.before, *token_ids, *self.after]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Ids of the tokens that open and end texts."""

    bos_id: int | None = None
    eos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()  # each of them ends a turn
    frame: Frame = Frame()


def unchanged(text: str, opens: bool) -> str:  # noqa: ARG001
    """`prepare` of kinds without normalization."""
    return text


def whole(text: str) -> Iterable[str]:
    """`split` of kinds without words."""
    return (text,) if text else ()


def as_it_is(piece: bytes) -> bytes:
    """`opening` of kinds whose tokens have the same bytes everywhere."""
    return piece


def without_space(piece: bytes) -> bytes:
    """`opening` of kinds that put a space before the first word: removes the space."""
    return piece.removeprefix(b" ")


class Pipeline:
    """A tokenizer of any kind (see `Tokenizer`). Immutable, apart from its caches."""

    def __init__(
        self,
        vocab: Vocab,
        encode_word: EncodeWord,
        *,
        roles: Roles,
        prepare: Prepare = unchanged,
        joined: Prepare | None = None,
        split: Split = whole,
        opening: Opening = as_it_is,
        fast: Callable[[], Fast | None] = lambda: None,
    ) -> None:
        self.vocab = vocab
        self.bos_id = roles.bos_id
        self.eos_id = roles.eos_id
        self.eos_ids = roles.eos_ids
        self.frame = roles.frame
        self._pieces: list[bytes | None] = [None] * len(vocab)  # computed at first use
        self._prepare = prepare
        self._joined = joined or prepare  # for a text that continues another text
        self._split = split
        self._encode_word = encode_word
        self._cached_word = lru_cache(CACHED_WORDS)(encode_word)
        self._opening = opening
        self._make_fast = fast

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)

    @cached_property
    def fast(self) -> Fast | None:
        """The fast encoder of long stretches, or None."""
        return self._make_fast()

    def token_bytes(self, token_id: int) -> bytes:
        """The token's bytes. Raises RequestError for an id out of range."""
        piece = self._pieces[self._checked(token_id)]
        if piece is None:
            vocab = self.vocab
            piece = self._pieces[token_id] = vocab.piece(vocab.tokens[token_id], vocab.types[token_id])
        return piece

    def opening_bytes(self, token_id: int) -> bytes:
        """The token's bytes at the start of a text. Raises RequestError for an id out of range."""
        return self._opening(self.token_bytes(token_id))

    def is_control(self, token_id: int) -> bool:
        """True for a control token. Raises RequestError for an id out of range."""
        return self.vocab.types[self._checked(token_id)] in CONTROL_TYPES

    def _checked(self, token_id: int) -> int:
        if 0 <= token_id < len(self._pieces):
            return token_id
        raise RequestError(
            f"token id {token_id} is out of range; the vocabulary has ids 0 to {len(self._pieces) - 1}",
            field="token_ids",
            token_id=token_id,
            vocab_size=len(self._pieces),
        )

    def decode(self, token_ids: Iterable[int], *, special: bool = False) -> str:
        """The text of `token_ids`, with U+FFFD for invalid UTF-8; control tokens only with `special`.

        Raises RequestError for an id out of range.
        """
        shown = [i for i in token_ids if special or not self.is_control(i)]
        pieces = list(map(self.token_bytes, shown))
        first = next((i for i, piece in enumerate(pieces) if piece), None)
        if first is not None:
            pieces[first] = self._opening(pieces[first])
        return b"".join(pieces).decode("utf-8", "replace")

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of `text`; with `special`, control tokens in the text are recognized.

        Raises RequestError for a lone surrogate.
        """
        return self.encode_spans([(text, special)])

    def encode_spans(self, spans: Iterable[tuple[str, bool]], *, opens: bool = True) -> list[int]:
        """Token ids of the joined (text, trusted) spans; control tokens are recognized in trusted text only.

        Words cross the borders of spans, as in one string. With `opens=False` the text continues another
        text, so no space is put before its first word. Raises RequestError for a lone surrogate.
        """
        text, trusted = join(spans)
        check_surrogates(text)
        token_ids: list[int] = []
        for i, part in enumerate(self.vocab.specials.partition(text, trusted)):
            if isinstance(part, int):
                token_ids.append(part)
            else:
                prepare = self._prepare if opens or i else self._joined
                token_ids += self._encode_stretch(prepare(part, opens and i == 0))
        return token_ids

    def _encode_stretch(self, text: str) -> list[int]:
        if len(text) >= FAST_CHARS and self.fast:
            return self.fast(text)
        token_ids: list[int] = []
        for word in self._split(text):
            token_ids += self._cached_word(word) if len(word) <= CACHED_CHARS else self._encode_word(word)
        return token_ids


def join(spans: Iterable[tuple[str, bool]]) -> tuple[str, list[Run]]:
    """The text of all spans, and its trusted runs, sorted and not adjacent."""
    texts: list[str] = []
    runs: list[Run] = []
    end = 0
    for text, trusted in spans:
        start, end = end, end + len(text)
        texts.append(text)
        if trusted and runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        elif trusted:
            runs.append((start, end))
    return "".join(texts), runs


def check_surrogates(text: str) -> None:
    """Raises RequestError for a lone surrogate, with its offset."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code_point = ord(text[error.start])
        raise RequestError(
            f"the text has a lone surrogate, U+{code_point:04X}, at character {error.start}; "
            "it is not valid Unicode, so no model can read it",
            field="text",
            code_point=code_point,
            offset=error.start,
        ) from None


class TokenBytes(Protocol):
    """The part of a tokenizer that decoding uses."""

    def token_bytes(self, token_id: int) -> bytes: ...
    def opening_bytes(self, token_id: int) -> bytes: ...
    def is_control(self, token_id: int) -> bool: ...


class StreamDecoder:
    """Decodes token by token; the joined texts equal `tokenizer.decode` of all ids.

    The decoder holds back at most 3 bytes: the beginning of a character that later tokens complete. With
    `opens` False the ids continue a text, so a leading space is kept that kinds like SentencePiece drop at
    the beginning of a text.
    """

    def __init__(self, tokenizer: TokenBytes, *, special: bool = False, opens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._opens = opens
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes, possibly empty. Raises RequestError for an id out of range."""
        if not self._special and self._tokenizer.is_control(token_id):
            return ""
        piece = self._tokenizer.token_bytes(token_id)
        if self._opens and piece:
            piece, self._opens = self._tokenizer.opening_bytes(token_id), False
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """The rest of the text: U+FFFD if the ids ended within a character."""
        return self._decoder.decode(b"", final=True)
