"""Stop sequences: none is emitted, for any split of the text."""

from __future__ import annotations

import random

import pytest
from tests.support.processor_time import within
from tests.support.text.stream_cases import TOKENIZERS, some_ids

from camelid.errors import RequestError
from camelid.requests.output_text import StopMatcher
from camelid.text.tokenizers.pipeline import StreamDecoder


def reference_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text before the stop sequence that ends first; of several, before the longest."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


def test_no_stop_sequence_is_emitted_for_any_split() -> None:
    rng = random.Random(31)
    stopped_across_borders = 0
    for _ in range(8000):
        stops = ["".join(rng.choices("ab", k=rng.randrange(1, 9))) for _ in range(rng.randrange(4))]
        text = "".join(rng.choices("aaabbbc", k=rng.randrange(40)))
        matcher, shown, stopped, at = StopMatcher(stops), "", False, 0
        while at < len(text) and not stopped:
            size = rng.randrange(1, 5)
            part, stopped = matcher.push(text[at : at + size])
            shown, at = shown + part, at + size
            stopped_across_borders += stopped and at > size
        shown += matcher.finish()
        assert (shown, stopped) == reference_stop(text, stops), (text, stops)
        if stopped:
            assert matcher.found in stops
            assert text.startswith(shown + str(matcher.found))
        else:
            assert matcher.found is None
    assert stopped_across_borders > 1000


def test_only_a_possible_stop_sequence_prefix_is_held() -> None:
    matcher = StopMatcher(["\n\nUser:", "###"])
    assert matcher.push("Hi.") == ("Hi.", False)
    assert matcher.push(" So\n") == (" So", False)
    assert matcher.push("\n") == ("", False)
    assert matcher.push("x#") == ("\n\nx", False)
    assert matcher.push("##tail") == ("", True)
    assert matcher.push("more") == ("", True)
    assert matcher.finish() == ""
    # After aabaaa comes b, not c: the remaining partial match is aab, not empty.
    assert StopMatcher(["aabaaac"]).push("aabaaabaaac") == ("aaba", True)
    longest = StopMatcher(["c", "abc", "bc"])
    assert (longest.push("xab"), longest.push("c"), longest.found) == (("x", False), ("", True), "abc")
    ended = StopMatcher(["abc"])
    assert (ended.push("xab"), ended.finish()) == (("x", False), "ab")


def test_an_empty_stop_sequence_is_refused() -> None:
    with pytest.raises(RequestError, match="a stop sequence is empty"):
        StopMatcher(["a", ""])


def test_a_stop_sequence_that_almost_matches_costs_linear_time() -> None:
    matcher = StopMatcher(["a" * 50_000 + "b"])
    with within(8):
        for _ in range(1000):
            matcher.push("a" * 200)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_stop_sequences_across_tokens_and_within_characters(name: str) -> None:
    tokenizer, rng = TOKENIZERS[name], random.Random(97)
    n_stopped = 0
    for _ in range(1000):
        token_ids = some_ids(tokenizer, rng)
        stops = ["".join(rng.choices(" aé漢😀\ufffd", k=rng.randrange(1, 4))) for _ in range(2)]
        stream, matcher = StreamDecoder(tokenizer), StopMatcher(stops)
        parts = [matcher.push(text)[0] for text in (*map(stream.push, token_ids), stream.finish())]
        stopped = matcher.push("")[1]
        shown = "".join([*parts, matcher.finish()])
        assert (shown, stopped) == reference_stop(tokenizer.decode(token_ids), stops)
        n_stopped += stopped
    assert n_stopped > 200
