"""Unigram: of all cuts of a word into tokens, the cut with the greatest sum of scores (T5, XLM-R).

Source: google/sentencepiece src/unigram_model.cc, huggingface/tokenizers models/unigram, llama.cpp
src/llama-vocab.cpp. Sums are float64, as in the last two; SentencePiece rounds each sum to float32 and may
therefore prefer another cut of nearly equal score.
"""

from __future__ import annotations

import re
from array import array as c_array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from camelid.errors import ModelFormatError, RequestError
from camelid.text.tokenizers.charsmap import Charsmap
from camelid.text.tokenizers.metadata import array, flag, key, roles, special_id, tokens_and_types
from camelid.text.tokenizers.piece_trie import trie
from camelid.text.tokenizers.pipeline import Pipeline, as_it_is, without_space
from camelid.text.tokenizers.sentencepiece import SPACE, byte_of, piece_bytes
from camelid.text.tokenizers.vocab import BYTE, NORMAL, USER_DEFINED, Vocab

PENALTY = 10.0  # the score of an unknown character relative to the worst token
MOST = 3.5e38  # above the largest float32; keeps the sums over any text finite
WORD = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
NO_ID = -1

Scored = tuple[float, int]


class Unigram:
    """Encodes words. `pieces`: score and id of every token that text may become.

    A run of unknown characters becomes the tokens of its bytes if `byte_ids` has them all, else one `unk_id`.
    Raises ModelFormatError for scores that are not finite and tokens that are too long.
    """

    def __init__(
        self,
        pieces: Mapping[str, Scored],
        *,
        unk_id: int | None,
        unk_score: float,
        byte_ids: Mapping[int, int] | None = None,
    ) -> None:
        check_scores(pieces)
        self._pieces = pieces
        self._root = trie(pieces)
        self._unk_id = unk_id
        self._unk_score = unk_score
        self._byte_ids = byte_ids or {}

    def encode_word(self, word: str) -> Sequence[int]:
        """Token ids of a word.

        Raises RequestError for an unknown character in a file without an unknown token.
        """
        starts, ids = self._best_cut(word)
        unk = self._unk_id if self._unk_id is not None else NO_ID
        token_ids: list[int] = []
        end = len(word)
        while end:
            start, token_id = starts[end], ids[end]
            if token_id == unk:
                while start and ids[start] == unk:
                    start = starts[start]
                token_ids += reversed(self._unknown(word[start:end]))
            else:
                token_ids.append(token_id)
            end = start
        return tuple(reversed(token_ids))

    def _best_cut(self, word: str) -> tuple[list[int], list[int]]:
        """For each position, the start and the id of the last token of the best cut up to there.

        Among equal sums the cut with the longer last token counts: it was found first.
        """
        n, root, unk_score = len(word), self._root.spread(), self._unk_score
        unk = self._unk_id if self._unk_id is not None else NO_ID
        best = [-float("inf")] * (n + 1)
        starts, ids = [0] * (n + 1), [unk] * (n + 1)
        best[0] = 0.0
        for start in range(n):
            so_far = best[start]
            end = start + 1
            branch = root.get(word[start])
            if branch is None or branch.value is None:
                total = so_far + unk_score
                if total > best[end]:
                    best[end], starts[end], ids[end] = total, start, unk
            while branch is not None:
                if branch.value is not None:
                    score, token_id = branch.value
                    total = so_far + score
                    if total > best[end]:
                        best[end], starts[end], ids[end] = total, start, token_id
                if end == n:
                    break
                branch = (branch.children or branch.spread()).get(word[end])
                end += 1
        return starts, ids

    def _unknown(self, text: str) -> Sequence[int]:
        if text in self._pieces:  # the text spells the unknown token
            return (self._pieces[text][1],)
        ids = [self._byte_ids.get(byte) for byte in text.encode()]
        known = [token_id for token_id in ids if token_id is not None]
        if self._byte_ids and len(known) == len(ids):
            return known
        if self._unk_id is None:
            raise RequestError(
                f"the vocabulary has no token for {text[:20]!r}, nor an unknown token", field="text"
            )
        return (self._unk_id,)


def check_scores(pieces: Mapping[str, Scored]) -> None:
    for piece, (score, _) in pieces.items():
        if not -MOST < score < MOST:
            raise ModelFormatError(
                f"tokenizer: the score of {piece!r:.40} is {score}, expected a finite float32", score=score
            )


def exact_length(scores: Iterable[float]) -> int:
    """The number of tokens up to which any sum of these scores is exact.

    All scores are multiples of a power of two, and float64 has 53 bits.
    """
    ratios = [abs(score).as_integer_ratio() for score in {*scores, 1.0}]
    grain = max(denominator for _, denominator in ratios)
    return 2**53 // max(numerator * (grain // denominator) for numerator, denominator in ratios)


@dataclass(frozen=True, slots=True)
class SpacedText:
    """SentencePiece's spelling of a stretch of text before it is cut."""

    charsmap: Charsmap | None
    add_space_prefix: bool
    remove_extra_whitespaces: bool

    def prepare(self, text: str, opens: bool) -> str:  # noqa: ARG002
        """Prepares a stretch of text between named tokens. Each stretch counts as a text, as in llama.cpp."""
        text = self.charsmap.normalize(text) if self.charsmap else text
        if self.remove_extra_whitespaces:
            text = re.sub("  +", " ", text.strip(" "))
        prefix = SPACE if self.add_space_prefix else ""
        text = prefix + text.replace(" ", SPACE)
        return text.rstrip(SPACE) if self.remove_extra_whitespaces else text


@dataclass(frozen=True, slots=True)
class SpacedWords:
    """Cuts a text before each ▁ where that changes no token.

    Conditions: no token has a further ▁ inside, ▁ alone is a token, and the sums over the whole text are
    exact, so that the best cut of the text consists of the best cuts of its words.
    """

    longest: int

    def split(self, text: str) -> Iterable[str]:
        if len(text) <= self.longest:
            return WORD.findall(text)
        return (text,) if text else ()


def spaced_words(pieces: Mapping[str, Scored], unk_score: float) -> SpacedWords:
    if SPACE not in pieces or any(SPACE in piece[1:] for piece in pieces):
        return SpacedWords(0)
    return SpacedWords(exact_length([unk_score, *(score for score, _ in pieces.values())]))


def float32(value: float) -> float:
    return c_array("f", [value])[0]


def unigram_from_gguf(metadata: Mapping[str, object]) -> Pipeline:
    """The tokenizer described by `tokenizer.ggml.*`, kind "t5". Raises ModelFormatError."""
    metadata = {key("eos_token_id"): 1, key("unknown_token_id"): 2, **metadata}  # llama.cpp's defaults
    vocab = Vocab(*tokens_and_types(metadata), piece_bytes)
    pieces, unk_score = scored_pieces(vocab, array(metadata, "scores", float))
    byte_ids = {byte_of(vocab.tokens[i]): i for i, kind in enumerate(vocab.types) if kind == BYTE}
    unk_id = special_id(metadata, "unknown_token_id", len(vocab))
    model = Unigram(pieces, unk_id=unk_id, unk_score=unk_score, byte_ids=byte_ids)
    text = SpacedText(
        charsmap_of(metadata),
        flag(metadata, "add_space_prefix", default=False),
        flag(metadata, "remove_extra_whitespaces", default=False),
    )
    return Pipeline(
        vocab,
        model.encode_word,
        roles=roles(metadata, vocab, add_eos=True),
        prepare=text.prepare,
        split=spaced_words(pieces, unk_score).split,
        opening=without_space if text.add_space_prefix else as_it_is,
    )


def scored_pieces(vocab: Vocab, scores: Sequence[float]) -> tuple[dict[str, Scored], float]:
    """The tokens that text may become, and the score of an unknown character.

    User-defined tokens are matched before normalization; one that normalization creates has score 0.
    """
    if len(scores) != len(vocab):
        raise ModelFormatError(
            f"tokenizer: {len(scores)} scores for {len(vocab)} tokens; the file is damaged",
            got=len(scores),
            want=len(vocab),
        )
    normal = {t: (scores[i], i) for i, t in enumerate(vocab.tokens) if vocab.types[i] == NORMAL and t}
    named = {t: (0.0, i) for i, t in enumerate(vocab.tokens) if vocab.types[i] == USER_DEFINED and t}
    worst = min((score for score, _ in normal.values()), default=0.0)
    return normal | named, float32(worst - PENALTY)


def charsmap_of(metadata: Mapping[str, object]) -> Charsmap | None:
    """The file's character map; None, which leaves text unchanged, if the file has none."""
    if not metadata.get(key("precompiled_charsmap")):
        return None
    data = array(metadata, "precompiled_charsmap", int)
    if any(not -128 <= byte <= 255 for byte in data):
        raise ModelFormatError(f"{key('precompiled_charsmap')} has numbers that are not bytes")
    return Charsmap(bytes(byte & 0xFF for byte in data))
