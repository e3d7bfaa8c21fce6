"""Streaming: joined text equals decoding at once, and no stop string shows, however the text is cut."""

from __future__ import annotations

import random
import time

import pytest
from tests.text.made import byte_level

from camelid.errors import RequestError
from camelid.text.detokenize import StopMatcher, StreamDecoder
from camelid.text.vocab import ALPHABET

CONTROL = 3
BYTES = byte_level([*ALPHABET, "<|x|>"], types=[1] * 256 + [CONTROL])
TEXT = "aé漢😀\u0301\ufffd"


def byte_strings(n: int) -> list[bytes]:
    """Valid UTF-8, valid with bytes lost or changed, and bytes that often begin or continue a character."""
    rng = random.Random(23)
    found: list[bytes] = []
    for i in range(n):
        data = bytearray("".join(rng.choices(TEXT, k=rng.randrange(8))).encode())
        for _ in range(i % 4):
            if data:
                data[rng.randrange(len(data))] = rng.choice(
                    [0x41, 0x80, 0xBF, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xFF, 0x9F]
                )
                del data[rng.randrange(len(data)) :: rng.randrange(2, 9)]
        found.append(bytes(data))
    return found


@pytest.mark.parametrize("special", [False, True])
def test_the_stream_joined_is_the_text_decoded_at_once(special: bool) -> None:
    rng = random.Random(29)
    for data in byte_strings(6000):
        token_ids = list(data)
        token_ids.insert(rng.randrange(len(data) + 1), 256)
        stream = StreamDecoder(BYTES, special=special)
        parts = [stream.push(token_id) for token_id in token_ids] + [stream.finish()]
        assert "".join(parts) == BYTES.decode(token_ids, special=special)


def test_only_whole_characters_are_shown_and_at_most_three_bytes_held() -> None:
    for data in byte_strings(2000):
        stream, shown = StreamDecoder(BYTES), b""
        if b"\xef\xbf\xbd" in data or "\ufffd" in data.decode("utf-8", "replace"):
            continue
        for end, byte in enumerate(data, 1):
            shown += stream.push(byte).encode()
            assert data.startswith(shown)
            assert end - len(shown) <= 3


def reference_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """What must show: cut where the first stop to end begins; of those that end there, the longest."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


def test_no_stop_string_shows_however_the_text_is_cut() -> None:
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
    assert stopped_across_borders > 1000


def test_only_what_may_begin_a_stop_string_is_held() -> None:
    matcher = StopMatcher(["\n\nUser:", "###"])
    assert matcher.push("Hi.") == ("Hi.", False)
    assert matcher.push(" So\n") == (" So", False)
    assert matcher.push("\n") == ("", False)
    assert matcher.push("x#") == ("\n\nx", False)
    assert matcher.push("##tail") == ("", True)
    assert matcher.push("more") == ("", True)
    assert matcher.finish() == ""
    # After aabaaa comes b, not c: what is left is aab, not nothing.
    assert StopMatcher(["aabaaac"]).push("aabaaabaaac") == ("aaba", True)
    ended = StopMatcher(["abc"])
    assert (ended.push("xab"), ended.finish()) == (("x", False), "ab")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="a stop string is empty"):
        StopMatcher(["a", ""])


def test_a_stop_string_that_almost_matches_costs_linear_time() -> None:
    matcher = StopMatcher(["a" * 50_000 + "b"])
    start = time.process_time()
    for _ in range(1000):
        matcher.push("a" * 200)
    assert time.process_time() - start < 8
