"""The vocabulary of a tokenizer.json in GGUF's form: types of tokens, and scores in place of merges."""

from __future__ import annotations

import re
from collections.abc import Iterable

from camelid.errors import UnsupportedModelError
from camelid.text.to_gguf.losses import WAY_OUT, Published
from camelid.text.tokenizers.hf.roles import named_tokens
from camelid.text.tokenizers.hf.values import shown
from camelid.text.tokenizers.hf.vocabulary import Vocabulary
from camelid.text.tokenizers.vocab import BYTE, CONTROL, CONTROL_TYPES, NORMAL, UNKNOWN, UNUSED, USER_DEFINED

MAX_SCORED_CHARS = 256  # longer tokens are not checked split by split
TEXT = frozenset({NORMAL, USER_DEFINED})  # may be merged: Gemma's ▁▁ is added and merged
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")

Merges = list[tuple[str, str]]


def spaceless(merges: Iterable[tuple[str, str]]) -> Merges:
    """The merges as a list.

    Raises UnsupportedModelError for a merge with a space, which GGUF cannot express.
    """
    found = list(merges)
    for rank, (left, right) in enumerate(found):
        if " " in left or " " in right:
            raise UnsupportedModelError(
                f"tokenizer: merge {rank} joins {shown(left)} and {shown(right)}; merges in GGUF "
                f"have no spaces; {WAY_OUT}",
                kind="tokenizer",
                name="merges",
            )
    return found


def filled(vocab: Vocabulary) -> list[str]:
    """Every token; an id without a token is named [PAD…], as converters name it."""
    return [f"[PAD{i}]" if token is None else token for i, token in enumerate(vocab.tokens)]


def token_types(of: Published, merges: Merges, unknown: object, has_bytes: bool) -> list[int]:
    """tokenizer.ggml.token_type of every id."""
    vocab, merged = of.vocab, {left + right for left, right in merges}
    # A one-character padding token such as "!" is text too, and so is a token that merges make.
    control = {token for token in _named(of) if len(token) > 1 and token not in merged}
    # By text, since a token may occur twice in Unigram's vocabulary.
    control |= {one.content for one in vocab.added.values() if one.is_control and len(one.content) > 1}
    control |= vocab.control_texts

    def kind(token_id: int, token: str | None) -> int:
        if token is None:
            return UNUSED
        if token == unknown:
            return UNKNOWN
        if (added := vocab.added.get(token_id)) is not None:
            return CONTROL if added.is_control else USER_DEFINED
        if has_bytes and BYTE_TOKEN.fullmatch(token):
            return BYTE
        return CONTROL if token in control else NORMAL

    return [kind(token_id, token) for token_id, token in enumerate(vocab.tokens)]


def text_merges(merges: Merges, vocab: Vocabulary, types: list[int]) -> Merges:
    """The merges that text takes part in: readers refuse one of a token that no text may become."""
    hidden = {token for token, kind in zip(vocab.tokens, types, strict=True) if kind in CONTROL_TYPES}
    return [pair for pair in merges if hidden.isdisjoint((*pair, "".join(pair)))]


def _named(of: Published) -> list[str]:
    """Every token that the small files name as special."""
    named = [*named_tokens(of.settings), of.model.get("unk_token")]
    return [name for name in named if isinstance(name, str)]


def _ranks(merges: Merges) -> dict[str, int]:
    """The rank of each merged token, in the order of the first merges that make it."""
    return {token: i for i, token in enumerate(dict.fromkeys(left + right for left, right in merges))}


def scores(vocab: Vocabulary, merges: Merges, types: list[int]) -> list[float]:
    """-rank, as SentencePiece writes it; tokens that no merge makes come last, in the order of their ids."""
    ranks = _ranks(merges)
    found: list[float] = []
    n = len(ranks)
    for token, kind in zip(vocab.tokens, types, strict=True):
        rank = ranks.get(token) if token is not None else None
        late = kind in TEXT and rank is None
        found.append(-float(n) if late else -float(rank or 0))
        n += late
    return found


def scores_imply_merges(vocab: Vocabulary, merges: Merges, types: list[int]) -> bool:
    """True if the scores imply exactly the listed merges: any join of tokens to a token, best score first.

    That is the case for files made from SentencePiece models, whose merges were derived from the scores.
    """
    ranks = _ranks(merges)
    order = [ranks[left + right] for left, right in merges]
    if order != sorted(order) or len(set(merges)) != len(merges):
        return False
    text = {t for t, kind in zip(vocab.tokens, types, strict=True) if t and kind in TEXT}
    if any(len(token) > MAX_SCORED_CHARS for token in text):
        return False
    splits = sum(t[:i] in text and t[i:] in text for t in text for i in range(1, len(t)))
    return splits == len(merges)
