"""What a conversation's ids stand for, and which of them still hold once it has been rendered anew.

A model's own ids are kept and never made anew from their text, since text has many tokenizations and the
model chose one. A past is a list of pieces: text that a template or a person gave, and answers. It holds as
far as the new rendering begins with the same text; there it is cut, at a control token or at the end of a
piece, where ids of one side do not depend on the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from camelid.text.tokenizers.detokenize import StreamDecoder, TokenBytes
from camelid.text.tokenizers.pipeline import join
from camelid.text.tokenizers.specials import Run, clipped, covers
from camelid.text.tokenizers.tokenizer import Tokenizer

MAX_CUTS = 8  # places at which a changed text is tried to be cut
Span = tuple[str, bool]  # a text, and whether control tokens in it count


@dataclass(frozen=True, slots=True)
class Rendering:
    """A conversation as text. `trusted` runs are the template's own; `borders` are where messages end, if it
    has no template."""

    text: str
    trusted: tuple[Run, ...] = ()
    borders: frozenset[int] = frozenset()

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Rendering:
        """What a template rendered."""
        text, trusted = join(spans)
        return cls(text, tuple(trusted))

    def is_border(self, offset: int) -> bool:
        """Whether a message's text may end here: the template goes on, or nothing does."""
        is_end = offset == len(self.text) or offset in self.borders
        return is_end or covers(self.trusted, offset, offset + 1)

    def spans(self, start: int, end: int) -> list[Span]:
        """The text from `start` to `end`, cut where trust changes."""
        spans: list[Span] = []
        at = 0
        for begin, stop in clipped(self.trusted, start, end):
            spans += [(self.text[start + at : start + begin], False)] if at < begin else []
            spans.append((self.text[start + begin : start + stop], True))
            at = stop
        return [*spans, (self.text[start + at : end], False)] if start + at < end else spans


@dataclass(frozen=True, slots=True)
class Piece:
    """Ids and the text that they stand for.

    In what was given, `trusted` runs are where control tokens count. Of an answer, `tail` is text without
    ids: what a stop string left of the last token.
    """

    text: str
    token_ids: tuple[int, ...]
    trusted: tuple[Run, ...] = ()
    is_answer: bool = False
    tail: str = ""


Past = tuple[Piece, ...]


def ids_of(past: Past) -> list[int]:
    """All ids, in order."""
    return [token_id for piece in past for token_id in piece.token_ids]


def renewed(past: Past, rendering: Rendering, tokenizer: Tokenizer) -> Past:
    """The past of this rendering: pieces that still hold, and one for the rest of the text."""
    kept = held(past, rendering, tokenizer)
    start, end = sum(len(piece.text) for piece in kept), len(rendering.text)
    if kept and start == end:
        return kept
    token_ids = _encoded(rendering, start, end, tokenizer, opens=not kept)
    trusted = tuple(clipped(rendering.trusted, start, end))
    return (*kept, Piece(rendering.text[start:], tuple(token_ids), trusted))


def answered(past: Past, token_ids: Sequence[int], tokenizer: Tokenizer, *, tail: str = "") -> Past:
    """The past with an answer behind it."""
    if not token_ids:
        return past
    text = "".join(_texts(token_ids, tokenizer))
    return (*past, Piece(text, tuple(token_ids), is_answer=True, tail=tail))


def held(past: Past, rendering: Rendering, tokenizer: Tokenizer) -> Past:
    """The pieces with which the rendering begins; the last of them may be cut short."""
    kept: list[Piece] = []
    at = 0
    for piece in past:
        hold = _held_answer if piece.is_answer else _held_given
        same = hold(piece, rendering, at, tokenizer)
        kept += [same] if same else []
        if same is None or len(same.token_ids) < len(piece.token_ids):
            break
        at += len(same.text)
    return tuple(kept)


def _held_answer(piece: Piece, rendering: Rendering, at: int, tokenizer: Tokenizer) -> Piece | None:
    """The answer if it stands there to its end. Templates may leave out space around it: what kinds of
    tokenizers put before a first word, and what was written last."""
    if _stands(piece.text, piece.tail, rendering, at):
        return piece
    for opens in (False, True):
        texts = _texts(piece.token_ids, tokenizer, opens=opens)
        n = _n_standing(texts, piece.tail, rendering, at)
        if n:
            return replace(piece, text="".join(texts[:n]), token_ids=piece.token_ids[:n])
    return None


def _n_standing(texts: Sequence[str], tail: str, rendering: Rendering, at: int) -> int:
    """With how many of these texts the rendering goes on, if those it leaves out are space; 0 with none."""
    whole = "".join(texts)
    end, n_same = len(whole), _n_same(whole, rendering.text, at)
    for n in range(len(texts), 0, -1):
        if end <= n_same and _ends(tail, rendering, at + end):
            return n
        if texts[n - 1].strip():
            return 0
        end -= len(texts[n - 1])
    return 0


def _stands(text: str, tail: str, rendering: Rendering, at: int) -> bool:
    return rendering.text.startswith(text, at) and _ends(tail, rendering, at + len(text))


def _ends(tail: str, rendering: Rendering, at: int) -> bool:
    return rendering.is_border(at + len(tail)) and rendering.text.startswith(tail, at)


def _texts(token_ids: Sequence[int], tokenizer: TokenBytes, *, opens: bool = False) -> list[str]:
    """What each id adds to the text, control tokens by name."""
    decoder = StreamDecoder(tokenizer, special=True, opens=opens)
    texts = [decoder.push(token_id) for token_id in token_ids]
    return [*texts[:-1], texts[-1] + decoder.finish()] if texts else []


def _held_given(piece: Piece, rendering: Rendering, at: int, tokenizer: Tokenizer) -> Piece | None:
    """The piece as far as it stands there: whole, or up to a control token."""
    n = _n_same(piece.text, rendering.text, at)
    trusted = tuple(clipped(rendering.trusted, at, at + n))
    if n == len(piece.text) and trusted == piece.trusted:
        return piece
    whole = [n] if n == len(piece.text) else []
    for cut in islice((*whole, *_control_tokens(piece, n, tokenizer)), MAX_CUTS):
        token_ids = tuple(_encoded(rendering, at, at + cut, tokenizer, opens=at == 0))
        # Other ids come of text that has become trusted, or that ends before a token which takes the space
        # beside it.
        if piece.token_ids[: len(token_ids)] == token_ids:
            return Piece(piece.text[:cut], token_ids, tuple(clipped(trusted, 0, cut)))
    return None


def _n_same(text: str, other: str, at: int) -> int:
    """How many characters of `text` the other one has at `at`."""
    if other.startswith(text, at):
        return len(text)
    pairs = enumerate(zip(text, other[at : at + len(text)], strict=False))
    return next((i for i, (a, b) in pairs if a != b), len(other) - at)


def _control_tokens(piece: Piece, end: int, tokenizer: Tokenizer) -> Iterator[int]:
    """Where control tokens that lie before `end` begin, the last one first; not the one at the beginning."""
    ids = filter(tokenizer.is_control, set(piece.token_ids))
    names = [name for i in ids if (name := tokenizer.token_bytes(i).decode("utf-8", "replace"))]
    while names:
        end, name = max((piece.text.rfind(name, 0, end), name) for name in names)
        if end <= 0:
            return
        if covers(piece.trusted, end, end + len(name)):
            yield end


def _encoded(rendering: Rendering, start: int, end: int, tokenizer: Tokenizer, *, opens: bool) -> list[int]:
    """Ids of a part of the text; where it `opens` the conversation, with what the model reads before it."""
    token_ids = tokenizer.encode_spans(rendering.spans(start, end), opens=opens)
    before = list(tokenizer.frame.before) if opens else []
    # Most templates write BOS themselves; two of them cost quality.
    return token_ids if token_ids[: len(before)] == before else before + token_ids
