"""Token ids that a transcript keeps: text and token ids of every turn, over published templates."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.exhaustive import first_of_each
from tests.support.session_talks import BOS, TEMPLATES, VOCABULARIES, Talk, chat_of, own_ids, talks, tools_of

from camelid.api.sessions.turns import StartedTurn, shown_ids
from camelid.errors import CamelidError
from camelid.requests.chat import ChatTemplate
from camelid.requests.output_text import Completion, OutputText
from camelid.requests.transcript import (
    Rendering,
    Segment,
    Transcript,
    kept_prefix,
    transcript_ids,
    updated_transcript,
    with_answer,
)
from camelid.text.tokenizers.pipeline import Frame
from camelid.text.tokenizers.tokenizer import Tokenizer

CONTROL = 1000
# Their prompts open a reasoning block that later prompts omit.
LOSE_ALL = {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"}
# Its control tokens stand within answers, where SentencePiece would write spaces that no text has.
PAIRS = [(n, v) for n in TEMPLATES for v in VOCABULARIES if (n, v) != ("openai-gpt-oss-120b", "llama-spm")]
random.Random(1).shuffle(PAIRS)  # pairs templates with varying first vocabularies


def plain(text: str, vocabulary: str) -> str:
    """The text; without its spaces where SentencePiece inserts one after each control token."""
    return text.replace(" ", "") if vocabulary == "llama-spm" else text


def turns(
    name: str, chat: ChatTemplate, messages: Talk
) -> Iterator[tuple[Transcript, Transcript, Rendering]]:
    """(transcript before, transcript after, rendering) of each prompt; answers have ids drawn at random."""
    transcript: Transcript = ()
    rng, tools = random.Random(name), tools_of(name)
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        rendering = chat.rendered(messages[:i], tools=tools).rendering
        before, transcript = transcript, updated_transcript(transcript, rendering, chat.tokenizer)
        yield before, transcript, rendering
        transcript = with_answer(
            transcript, own_ids(chat.tokenizer, str(message["content"]), rng, name=name), chat.tokenizer
        )
    rendering = chat.rendered([*messages, {"role": "user", "content": "And now?"}], tools=tools).rendering
    yield transcript, updated_transcript(transcript, rendering, chat.tokenizer), rendering


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "vocabulary"), first_of_each(PAIRS, itemgetter(0)))
def test_kept_and_new_ids_decode_to_the_templates_text(name: str, vocabulary: str, shared: Path) -> None:
    """The text equals a full tokenization, unchanged answers keep their ids, and most answers are
    unchanged.
    """
    chat = chat_of(shared, name, vocabulary)
    n_answers = n_kept = 0
    for _, messages in talks():
        try:
            steps = list(turns(name, chat, messages))
        except CamelidError:  # the template refuses the order of roles
            continue
        for before, transcript, rendering in steps:
            ids = transcript_ids(transcript)
            wanted = {plain(text, vocabulary) for text in (rendering.text, BOS + rendering.text)}
            assert plain(chat.tokenizer.decode(ids, special=True), vocabulary) in wanted
            assert "".join(segment.text for segment in transcript) == rendering.text
            n = len(transcript_ids(kept_prefix(before, rendering, chat.tokenizer)))
            assert ids[:n] == transcript_ids(before)[:n]
            answers = [segment for segment in before if segment.is_answer]
            n_answers += len(answers)
            n_kept += sum(any(p.token_ids == a.token_ids for p in transcript) for a in answers)
    assert n_answers
    assert n_kept == 0 if name in LOSE_ALL else n_kept >= 0.95 * n_answers


class Letters:
    """A tokenizer with one id per character, and `<x>` for a control token in trusted text."""

    frame = Frame(before=(1,))

    def encode_spans(self, spans: Iterable[tuple[str, bool]], *, opens: bool = True) -> list[int]:
        parts = ((part, trusted) for text, trusted in spans for part in re.split("(<[a-z]>)", text))
        return [i for part, trusted in parts for i in self._ids(part, trusted)]

    def _ids(self, part: str, trusted: bool) -> list[int]:
        return [CONTROL + ord(part[1])] if trusted and part[:1] == "<" else [ord(c) for c in part]

    def is_control(self, token_id: int) -> bool:
        return token_id >= CONTROL

    def token_bytes(self, token_id: int) -> bytes:
        return (f"<{chr(token_id - CONTROL)}>" if token_id >= CONTROL else chr(token_id)).encode()

    opening_bytes = token_bytes


LETTERS = cast(Tokenizer, Letters())


def talk(*spans: tuple[str, bool]) -> Rendering:
    return Rendering.of(spans)


T, F = True, False
FIRST = talk(("<u>", T), ("hi", F), ("<e><a>", T))
OWN = (9001, 9002)  # ids outside any text
# The rendering after FIRST and the answer OWN, and the number of kept ids of 1, <u>, h, i, <e>, <a>, OWN.
LATER: dict[str, tuple[Rendering, int]] = {
    "goes on": (
        talk(("<u>", T), ("hi", F), ("<e><a>", T), ("so", F), ("<e><u>", T), ("b", F), ("<a>", T)),
        8,
    ),
    "ends": (talk(("<u>", T), ("hi", F), ("<e><a>", T), ("so", F)), 8),
    "other answer": (talk(("<u>", T), ("hi", F), ("<e><a>", T), ("no", F), ("<e>", T)), 6),
    "longer answer": (talk(("<u>", T), ("hi", F), ("<e><a>", T), ("sob", F), ("<e>", T)), 6),
    "other end": (talk(("<u>", T), ("hi", F), ("<e><b>", T), ("so", F), ("<e>", T)), 4),
    "other question": (talk(("<u>", T), ("ho", F), ("<e><a>", T), ("so", F), ("<e>", T)), 0),
    "now trusted": (talk(("<u>", T), ("hi", F), ("<e><a>", T), ("so", T), ("<e>", T)), 8),
    "now a person's": (talk(("<u>hi<e><a>", F), ("so", F), ("<e>", T)), 0),
    "nothing": (talk(), 0),
}


@pytest.mark.parametrize("case", LATER)
def test_transcripts_are_cut_where_the_rendering_differs(case: str) -> None:
    later, n_kept = LATER[case]
    transcript = with_answer(updated_transcript((), FIRST, LETTERS), [ord("s"), ord("o")], LETTERS)
    transcript = (transcript[0], replace(transcript[1], token_ids=OWN))
    assert len(transcript_ids(kept_prefix(transcript, later, LETTERS))) == n_kept
    after = updated_transcript(transcript, later, LETTERS)
    assert "".join(segment.text for segment in after) == later.text
    assert transcript_ids(after)[:n_kept] == transcript_ids(transcript)[:n_kept]
    fresh = transcript_ids(updated_transcript((), later, LETTERS))
    assert [i for i in transcript_ids(after) if i not in OWN] == [
        i for i in fresh if n_kept < 8 or i not in map(ord, "so")
    ]


def test_a_name_that_a_person_wrote_is_no_place_to_cut() -> None:
    transcript = updated_transcript((), talk(("<u>", T), ("a<e>bc", F), ("<e><a>", T)), LETTERS)
    later = talk(("<u>", T), ("a<e>bd", F), ("<e><a>", T))
    assert kept_prefix(transcript, later, LETTERS) == ()


class Hungry(Letters):
    """A tokenizer whose control tokens absorb a preceding space."""

    def encode_spans(self, spans: Iterable[tuple[str, bool]], *, opens: bool = True) -> list[int]:
        ids = super().encode_spans(spans, opens=opens)
        return [i for i, after in zip(ids, [*ids[1:], 0], strict=True) if i != ord(" ") or after < CONTROL]


def test_an_earlier_cut_is_tried_where_ids_span_a_later_one() -> None:
    hungry = cast(Tokenizer, Hungry())
    transcript = updated_transcript((), talk(("<u>a<u>b <e>c", T)), hungry)
    later = talk(("<u>a<u>b <e>d", T))
    assert transcript_ids(kept_prefix(transcript, later, hungry)) == [1, CONTROL + ord("u"), ord("a")]


def test_nothing_holds_behind_a_cut() -> None:
    """Not even an answer that reads as what stands there now: its ids may be others."""
    transcript = (*updated_transcript((), FIRST, LETTERS), Segment("<e>", OWN[:1], is_answer=True))
    later, n_kept = LATER["other end"]
    assert later.text.startswith("<e>", len("<u>hi"))
    assert len(transcript_ids(kept_prefix(transcript, later, LETTERS))) == n_kept


def test_a_templates_preamble_is_not_repeated() -> None:
    for begin in ("", chr(*Letters.frame.before)):
        assert transcript_ids(updated_transcript((), talk((begin + "<u>", T)), LETTERS)) == [
            1,
            CONTROL + ord("u"),
        ]


# The answer's text, the next token's text before a stop sequence, the template's rendering, kept ids.
SPACES: list[tuple[str, str, str, int]] = [
    ("so", "", "so", 2), ("so ", "", "so", 2), ("so\n\n", "", "so", 2), ("so ", "", "so ", 3),
    (" so", "", "so", 0), ("so", "x", "sox", 2), ("so", "x", "so", 0), ("so", "x", "soxx", 0),
    ("so é", "", "so é", 4), ("soon", "", "so", 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tail", "shown", "n_kept"), SPACES)
def test_answers_are_kept_whole_or_without_trailing_space(
    text: str, tail: str, shown: str, n_kept: int
) -> None:
    transcript = with_answer(
        updated_transcript((), FIRST, LETTERS), [ord(c) for c in text], LETTERS, tail=tail
    )
    later = talk(("<u>", T), ("hi", F), ("<e><a>", T), (shown, F), ("<e>", T))
    assert len(transcript_ids(kept_prefix(transcript, later, LETTERS))) == 6 + n_kept
    after = updated_transcript(transcript, later, LETTERS)
    assert transcript_ids(after) == transcript_ids(updated_transcript((), later, LETTERS))
    assert kept_prefix(after, later, LETTERS) == after, "nothing is tokenized twice"


@pytest.mark.parametrize("token_ids", [(), (ord(" "),), (ord("y"),)])
def test_a_files_answer_that_is_not_its_ids_does_not_stand(token_ids: tuple[int, ...]) -> None:
    assert (
        kept_prefix((Segment("other", token_ids, is_answer=True),), talk(("so", F), ("<e>", T)), LETTERS)
        == ()
    )


class Spaced(Letters):
    """A tokenizer that inserts a space before a first word, and omits it when decoding."""

    def opening_bytes(self, token_id: int) -> bytes:
        return self.token_bytes(token_id).removeprefix(b" ")


def test_the_space_before_a_first_word_is_ignored() -> None:
    spaced = cast(Tokenizer, Spaced())
    transcript = with_answer(updated_transcript((), FIRST, spaced), [ord(c) for c in " so"], spaced)
    for shown in ("so", " so"):
        later = talk(("<u>", T), ("hi", F), ("<e><a>", T), (shown, F), ("<e>", T))
        assert len(transcript_ids(kept_prefix(transcript, later, spaced))) == 9
        assert (
            "".join(segment.text for segment in updated_transcript(transcript, later, spaced)) == later.text
        )


class Words:
    """A tokenizer with a whole word per id."""

    PIECES = (b"one ", b"two", b" thr", b"ee", b"\xc3", b"\xa9")

    def token_bytes(self, token_id: int) -> bytes:
        return self.PIECES[token_id]

    opening_bytes = token_bytes

    def is_control(self, token_id: int) -> bool:
        return token_id < 0


# Ids, stop sequences, how the answer ended -> ids that count, text of a part of the next one.
SHOWN: list[tuple[list[int], tuple[str, ...], str, tuple[list[int], str]]] = [
    ([0, 1, 2, 3], (), "stop", ([0, 1, 2, 3], "")),
    ([0, 1, 2, 3], (), "cancelled", ([0, 1, 2, 3], "")),
    ([0, 1, 2], ("wo t",), "stop", ([0], "t")),
    ([0, 1, 2], (" thr",), "stop", ([0, 1], "")),
    ([0, 1, 2, 3], ("three",), "stop", ([0, 1], " ")),
    ([0, 1, 2, 3], ("four",), "length", ([0, 1, 2, 3], "")),
    ([0, 1, 2], ("three",), "cancelled", ([0, 1], " ")),  # "thr" was held back as a possible stop sequence
    ([0, 4], (), "cancelled", ([0], "")),  # half a character
    ([0, 4, 5], (), "cancelled", ([0, 4, 5], "")),
    ([0, 4, 5, 1], ("\u00e9t",), "stop", ([0], "")),
    ([], ("x",), "cancelled", ([], "")),
]


@pytest.mark.parametrize(("token_ids", "stops", "reason", "want"), SHOWN)
def test_only_ids_that_were_shown_count(
    token_ids: list[int], stops: tuple[str, ...], reason: str, want: tuple[list[int], str]
) -> None:
    transcript = (Segment("<a>", (CONTROL,)),)
    turn = StartedTurn([], transcript, lambda last, stops: OutputText(Words(), stops), stops)
    done = SimpleNamespace(token_ids=token_ids, finish_reason=reason)
    assert shown_ids(turn, cast(Completion, done)) == want
