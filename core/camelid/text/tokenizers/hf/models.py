"""Models of a tokenizer.json: from a word to token ids.

Source: huggingface/tokenizers, docs of `models`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from camelid.errors import ModelFormatError, RequestError
from camelid.text.tokenizers.hf.values import Json, array, count, flag, row, shown, text, typed
from camelid.text.tokenizers.hf.vocabulary import pairs
from camelid.text.tokenizers.merge import merge
from camelid.text.tokenizers.unigram import MOST, PENALTY, Unigram
from camelid.text.tokenizers.wordpiece import WordPiece

JOINER = "\udfff"  # separates the halves of a merge; it is in no text, so keys of merges are distinct
MAX_CHARS = 1 << 20  # of a word that WordPiece encodes

EncodeWord = Callable[[str], Sequence[int]]
Ids = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bpe:
    """Characters, merged pair by pair in the order of the merges.

    `prefix` marks characters within a word, `suffix` the last one. A character without a token becomes the
    tokens of its bytes if `byte_fallback` is set and all exist, else `unknown`: once per run of unknown
    characters if `fuse`.
    """

    ids: Ids
    names: Ids  # the same ids by symbol spelling, with the unknown token
    ranks: Ids
    unknown: str | None = None
    fuse: bool = False
    byte_fallback: bool = False
    ignore_merges: bool = False
    prefix: str = ""
    suffix: str = ""

    def encode_word(self, word: str) -> Sequence[int]:
        """Token ids of one word. Raises RequestError for a character without a token."""
        if self.ignore_merges and word in self.ids:
            return (self.ids[word],)
        symbols = list(word) if self._is_plain else self._marked(word)
        names = self.names
        if not names.keys() >= set(symbols):
            symbols = list(self._known(symbols))
        return tuple([names[symbol] for symbol in merge(symbols, self.ranks, JOINER)])

    @property
    def _is_plain(self) -> bool:
        return not self.prefix and not self.suffix

    def _marked(self, word: str) -> list[str]:
        symbols = [char if i == 0 else self.prefix + char for i, char in enumerate(word)]
        symbols[-1] += self.suffix
        return symbols

    def _known(self, symbols: Iterable[str]) -> Iterable[str]:
        """The symbols, those without a token replaced by tokens."""
        waiting = False  # an unknown token is emitted when a run of unknown characters ends
        for symbol in symbols:
            if symbol in self.names:
                if waiting:
                    yield self._unknown(symbol)
                waiting = False
                yield symbol
            elif found := self._by_bytes(symbol):
                yield from found
            else:
                unknown = self._unknown(symbol)
                if waiting and not self.fuse:
                    yield unknown
                waiting = True
        if waiting:
            yield self._unknown("")

    def _by_bytes(self, symbol: str) -> list[str]:
        found = [f"<0x{byte:02X}>" for byte in symbol.encode()] if self.byte_fallback else []
        return found if all(name in self.names for name in found) else []

    def _unknown(self, symbol: str) -> str:
        if self.unknown is not None:
            return self.unknown
        raise RequestError(
            f"the vocabulary has no token for {symbol[:20]!r}, nor an unknown token",
            field="text",
            character=symbol,
        )


def spelled(token: str, prefix: str, suffix: str) -> str:
    """The spelling of a token by its characters' symbols: every character but the first has the prefix."""
    if not prefix:
        return token
    first = prefix if token.startswith(prefix) else ""
    end = suffix if suffix and token.endswith(suffix) else ""
    inner = token[len(first) : len(token) - len(end)]
    return first + prefix.join(inner) + end if inner else token


def read_bpe(model: Json, ids: Ids, text_ids: Ids) -> EncodeWord:
    """The encoder of a BPE model. Raises ModelFormatError for inconsistent merges and tokens."""
    prefix, suffix = text(model, "continuing_subword_prefix", ""), text(model, "end_of_word_suffix", "")
    unknown = unk_token(model, ids)
    if model.get("dropout"):
        raise ModelFormatError(
            f"tokenizer: dropout is {shown(model['dropout'])}, expected none", key="dropout"
        )

    def name(token: str) -> str:
        return spelled(token, prefix, suffix)

    ranks = {
        name(left) + JOINER + name(right): rank
        for rank, (left, right) in enumerate(pairs(model, ids, prefix))
        if left + right.removeprefix(prefix) in text_ids
    }
    names = {name(token): i for token, i in text_ids.items()}
    return Bpe(
        ids=text_ids,
        names=names if unknown is None else {**names, unknown: ids[unknown]},
        ranks=ranks,
        unknown=unknown,
        fuse=flag(model, "fuse_unk"),
        byte_fallback=flag(model, "byte_fallback"),
        ignore_merges=flag(model, "ignore_merges"),
        prefix=prefix,
        suffix=suffix,
    ).encode_word


def unk_token(model: Json, ids: Ids, default: str | None = None) -> str | None:
    """The model's unknown token, which must be in its vocabulary. Raises ModelFormatError."""
    if model.get("unk_token") is None and default is None:
        return None
    unknown = text(model, "unk_token", default)
    if unknown in ids:
        return unknown
    raise ModelFormatError(f"tokenizer: unk_token {shown(unknown)} is not in the vocabulary", token=unknown)


def read_word_level(model: Json, ids: Ids, text_ids: Ids) -> EncodeWord:
    """The encoder of a WordLevel model: each word is one token, or unknown."""
    unknown = ids[unk_token(model, ids, "<unk>") or ""]
    return lambda word: (text_ids.get(word, unknown),)


def read_unigram(model: Json, _: Ids, text_ids: Ids) -> EncodeWord:
    """The encoder of a Unigram model.

    An unknown character scores relative to the worst score of all tokens.
    """
    pieces = list(scored(model))
    unk_id = None if model.get("unk_id") is None else count(model, "unk_id", 0, len(pieces) - 1)
    of_text = {piece: (score, i) for i, (piece, score) in enumerate(pieces) if piece in text_ids}
    names = {byte: f"<0x{byte:02X}>" for byte in range(256)} if flag(model, "byte_fallback") else {}
    return Unigram(
        of_text,
        unk_id=unk_id,
        unk_score=min((score for _, score in pieces), default=0.0) - PENALTY,
        byte_ids={byte: of_text[name][1] for byte, name in names.items() if name in of_text},
    ).encode_word


def scored(model: Json) -> Iterator[tuple[str, float]]:
    """Unigram's pieces with their scores, in the order of ids. Raises ModelFormatError."""
    for item in array(model.get("vocab"), "model.vocab"):
        pair = array(item, "model.vocab")
        score = pair[1] if len(pair) == 2 else None
        if not isinstance(score, float | int) or not -MOST < score < MOST:
            raise ModelFormatError(
                f"tokenizer: a score is {shown(score)}, expected a finite float32", key="model.vocab"
            )
        yield typed(pair[0], str, "a token"), float(score)


def read_word_piece(model: Json, ids: Ids, text_ids: Ids) -> EncodeWord:
    """The encoder of a WordPiece model."""
    return WordPiece(
        text_ids,
        ids[unk_token(model, ids, "[UNK]") or ""],
        prefix=text(model, "continuing_subword_prefix", "##"),
        max_chars=count(model, "max_input_chars_per_word", 100, MAX_CHARS),
    ).encode_word


# Kind -> a function of the model, all ids, and the ids that ordinary text may become.
MODELS: Mapping[str, Callable[[Json, Ids, Ids], EncodeWord]] = {
    "BPE": read_bpe,
    "Unigram": read_unigram,
    "WordLevel": read_word_level,
    "WordPiece": read_word_piece,
}


def read_model(model: Json, ids: Ids, text_ids: Ids) -> EncodeWord:
    """The encoder of a model. Raises ModelFormatError, UnsupportedModelError."""
    return row(MODELS, kind_of(model), "model")(model, ids, text_ids)


def kind_of(model: Json) -> str:
    """The model's kind; old files have no type, so it is inferred."""
    inferred = (
        "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    )
    return text(model, "type", inferred)
