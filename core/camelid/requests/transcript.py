"""The token ids of a conversation with their text, and the prefix that a new rendering keeps.

A model's own token ids are kept and never encoded again from their text: a text has many tokenizations, and
the model drew one of them. A transcript is a sequence of segments: prompt text and answers. A new rendering
keeps the segments with which it begins; the cut lies at a control token or at the end of a segment, where
the token ids of one side do not depend on the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from camelid.text.tokenizers.pipeline import StreamDecoder, TokenBytes, join
from camelid.text.tokenizers.specials import Run, clipped, covers
from camelid.text.tokenizers.tokenizer import Tokenizer

MAX_CUTS = 8  # cuts tried in a prompt segment whose text has changed
Span = tuple[str, bool]  # text, and True where it is trusted: control tokens written in it count


@dataclass(frozen=True, slots=True)
class Rendering:
    """A conversation as text.

    `trusted` runs are the template's own text. `message_ends` are the offsets at which messages end in a
    conversation without a template.
    """

    text: str
    trusted: tuple[Run, ...] = ()
    message_ends: frozenset[int] = frozenset()

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Rendering:
        """The rendering of a template's spans."""
        text, trusted = join(spans)
        return cls(text, tuple(trusted))

    def may_end_message(self, offset: int) -> bool:
        """True if a message's text may end here: template text follows, or no text at all."""
        is_end = offset == len(self.text) or offset in self.message_ends
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
class Segment:
    """Token ids and their text: a part of a prompt, or an answer.

    `trusted` are the runs of prompt text in which control tokens count. `tail` is the text of an answer that
    has no token ids: the shown part of a token that a stop sequence cut.
    """

    text: str
    token_ids: tuple[int, ...]
    trusted: tuple[Run, ...] = ()
    is_answer: bool = False
    tail: str = ""


Transcript = tuple[Segment, ...]


def transcript_ids(transcript: Transcript) -> list[int]:
    """All token ids, in order."""
    return [token_id for segment in transcript for token_id in segment.token_ids]


def updated_transcript(transcript: Transcript, rendering: Rendering, tokenizer: Tokenizer) -> Transcript:
    """The transcript of a new rendering: the kept segments, and one segment for the remaining text."""
    kept = kept_prefix(transcript, rendering, tokenizer)
    start, end = sum(len(segment.text) for segment in kept), len(rendering.text)
    if kept and start == end:
        return kept
    token_ids = _encode(rendering, start, end, tokenizer, opens=not kept)
    trusted = tuple(clipped(rendering.trusted, start, end))
    return (*kept, Segment(rendering.text[start:], tuple(token_ids), trusted))


def with_answer(
    transcript: Transcript, token_ids: Sequence[int], tokenizer: Tokenizer, *, tail: str = ""
) -> Transcript:
    """The transcript with an answer at its end."""
    if not token_ids:
        return transcript
    text = "".join(_token_texts(token_ids, tokenizer))
    return (*transcript, Segment(text, tuple(token_ids), is_answer=True, tail=tail))


def kept_prefix(transcript: Transcript, rendering: Rendering, tokenizer: Tokenizer) -> Transcript:
    """The segments with which the rendering begins; the last segment may be truncated."""
    kept: list[Segment] = []
    at = 0
    for segment in transcript:
        keep = _kept_answer if segment.is_answer else _kept_prompt
        same = keep(segment, rendering, at, tokenizer)
        kept += [same] if same else []
        if same is None or len(same.token_ids) < len(segment.token_ids):
            break
        at += len(same.text)
    return tuple(kept)


def _kept_answer(segment: Segment, rendering: Rendering, at: int, tokenizer: Tokenizer) -> Segment | None:
    """The answer if the rendering has it at `at`, up to a message's end.

    Templates may strip whitespace around an answer: the space that SentencePiece puts before a first word,
    and whitespace at the answer's end.
    """
    if _has_message(segment.text, segment.tail, rendering, at):
        return segment
    for opens in (False, True):
        texts = _token_texts(segment.token_ids, tokenizer, opens=opens)
        n = _n_kept_tokens(texts, segment.tail, rendering, at)
        if n:
            return replace(segment, text="".join(texts[:n]), token_ids=segment.token_ids[:n])
    return None


def _n_kept_tokens(texts: Sequence[str], tail: str, rendering: Rendering, at: int) -> int:
    """The number of leading texts that the rendering has at `at`; 0 unless the other texts are whitespace."""
    answer = "".join(texts)
    end, n_same = len(answer), _common_length(answer, rendering.text, at)
    for n in range(len(texts), 0, -1):
        if end <= n_same and _ends_message(tail, rendering, at + end):
            return n
        if texts[n - 1].strip():
            return 0
        end -= len(texts[n - 1])
    return 0


def _has_message(text: str, tail: str, rendering: Rendering, at: int) -> bool:
    return rendering.text.startswith(text, at) and _ends_message(tail, rendering, at + len(text))


def _ends_message(tail: str, rendering: Rendering, at: int) -> bool:
    return rendering.may_end_message(at + len(tail)) and rendering.text.startswith(tail, at)


def _token_texts(token_ids: Sequence[int], tokenizer: TokenBytes, *, opens: bool = False) -> list[str]:
    """The text that each token completes; control tokens by name."""
    decoder = StreamDecoder(tokenizer, special=True, opens=opens)
    texts = [decoder.push(token_id) for token_id in token_ids]
    return [*texts[:-1], texts[-1] + decoder.finish()] if texts else []


def _kept_prompt(segment: Segment, rendering: Rendering, at: int, tokenizer: Tokenizer) -> Segment | None:
    """The prompt segment up to its end or to the last control token before the first difference."""
    n = _common_length(segment.text, rendering.text, at)
    trusted = tuple(clipped(rendering.trusted, at, at + n))
    if n == len(segment.text) and trusted == segment.trusted:
        return segment
    segment_end = [n] if n == len(segment.text) else []
    for cut in islice((*segment_end, *_control_token_offsets(segment, n, tokenizer)), MAX_CUTS):
        token_ids = tuple(_encode(rendering, at, at + cut, tokenizer, opens=at == 0))
        # Token ids differ where text has become trusted, and where it ends before a control token that
        # strips the whitespace beside it.
        if segment.token_ids[: len(token_ids)] == token_ids:
            return Segment(segment.text[:cut], token_ids, tuple(clipped(trusted, 0, cut)))
    return None


def _common_length(text: str, other: str, at: int) -> int:
    """The number of leading characters of `text` that `other` has at `at`."""
    if other.startswith(text, at):
        return len(text)
    pairs = enumerate(zip(text, other[at : at + len(text)], strict=False))
    return next((i for i, (a, b) in pairs if a != b), len(other) - at)


def _control_token_offsets(segment: Segment, end: int, tokenizer: Tokenizer) -> Iterator[int]:
    """Offsets of the control tokens before `end`, last first; offset 0 is left out."""
    ids = filter(tokenizer.is_control, set(segment.token_ids))
    names = [name for i in ids if (name := tokenizer.token_bytes(i).decode("utf-8", "replace"))]
    while names:
        end, name = max((segment.text.rfind(name, 0, end), name) for name in names)
        if end <= 0:
            return
        if covers(segment.trusted, end, end + len(name)):
            yield end


def _encode(rendering: Rendering, start: int, end: int, tokenizer: Tokenizer, *, opens: bool) -> list[int]:
    """Token ids of a part of the text; `opens` adds the token ids that open every prompt, such as BOS."""
    token_ids = tokenizer.encode_spans(rendering.spans(start, end), opens=opens)
    before = list(tokenizer.frame.before) if opens else []
    # Most templates write BOS themselves, and a second BOS costs quality.
    return token_ids if token_ids[: len(before)] == before else before + token_ids
