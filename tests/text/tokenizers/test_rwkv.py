"""RWKV's tokenizer against an explicit greedy longest match, on vocabularies made here."""

from __future__ import annotations

import random
from functools import cache

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.made import rwkv
from tests.support.text.texts import random_texts

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError
from camelid.text.tokenizers.pipeline import Pipeline

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
TEXTS = random_texts(800, seed=61)


def escaped(token: bytes) -> str:
    """A token in a file's spelling: Python's literal of bytes."""
    return repr(token)[2:-1]


@cache
def words() -> list[bytes]:
    """All bytes, and pieces of texts with boundaries anywhere, also within characters."""
    rng = random.Random(67)
    found = {bytes((byte,)) for byte in range(256)} | {
        b" " * 64,
        b"a" * 100,
        b"a" * 16 + b"b",
        b"'\"",
        b"\\x41",
    }
    for text in random_texts(1500, seed=71):
        data = text.encode()
        for _ in range(9):
            start = rng.randrange(len(data))
            found.add(data[start : start + rng.choice((2, 3, 3, 4, 5, 6, 8, 12, 20))])
    return sorted(found)


@cache
def ours() -> Pipeline:
    types = [CONTROL, *[NORMAL] * len(words()), UNUSED]
    return rwkv(["<s>", *map(escaped, words()), "[PAD0]"], types)


def reference(data: bytes) -> list[int]:
    """The longest token at every position, found by trying all lengths, by BlinkDL/RWKV-LM's definition."""
    ids = {word: token_id for token_id, word in enumerate(words(), 1)}
    token_ids: list[int] = []
    while data:
        length = max(n for n in range(1, min(len(data), 128) + 1) if data[:n] in ids)
        token_ids.append(ids[data[:length]])
        data = data[length:]
    return token_ids


@pytest.mark.conformance
def test_ids_equal_the_longest_tokens() -> None:
    used: set[int] = set()
    for text in [*TEXTS, "a" * 99, "a" * 100 + "b", "a" * 117 + "b", "\\x41'\""]:
        token_ids = ours().encode(text)
        assert token_ids == reference(text.encode()), repr(text)
        assert ours().decode(token_ids) == text
        used.update(token_ids)
    assert len(used) > 2000


def test_pieces_equal_the_files_bytes() -> None:
    for token_id, word in enumerate(words(), 1):
        assert ours().token_bytes(token_id) == word


@pytest.mark.conformance
def test_random_vocabularies_of_few_letters() -> None:
    """Long common prefixes: a search for a long token must fall back to a short one."""
    rng = random.Random(73)
    for _ in range(300):
        tokens = {"a", "b"} | {
            "".join(rng.choices("aab", k=rng.randrange(2, 14))) for _ in range(rng.randrange(20))
        }
        ordered = sorted(tokens, key=lambda _: rng.random())
        tokenizer = rwkv(ordered)
        text = "".join(rng.choices("aaab", k=60))
        pieces = [ordered[i] for i in tokenizer.encode(text)]
        assert "".join(pieces) == text
        for at, piece in zip(starts(pieces), pieces, strict=True):
            assert not any(text.startswith(t, at) for t in tokens if len(t) > len(piece))


def starts(pieces: list[str]) -> list[int]:
    return [sum(map(len, pieces[:i])) for i in range(len(pieces))]


def test_control_and_unused_tokens_never_match_text() -> None:
    tokens = ["<s>", "<", "s", ">", "[PAD0]", "[", "PAD0]", "t"]
    tokenizer = rwkv(tokens, [CONTROL, NORMAL, NORMAL, NORMAL, UNUSED, NORMAL, NORMAL, USER_DEFINED])
    assert tokenizer.encode("<s>[PAD0]t") == [1, 2, 3, 5, 6, 7]
    assert tokenizer.encode("<s>s", special=True) == [0, 2]
    assert (tokenizer.bos_id, tokenizer.frame.before) == (None, ())


def test_bytes_without_a_token_are_unknown_or_an_error() -> None:
    """Also if only longer tokens begin with them."""
    tokens = ["<unk>", "a", "bcd", "bc\\xc3"]
    assert rwkv(tokens, [CONTROL, *[NORMAL] * 3], unknown_token_id=0).encode("abcdbca") == [1, 2, 0, 0, 1]
    with pytest.raises(RequestError, match="no token for byte 0x62, nor for unknown bytes"):
        rwkv(tokens).encode("aba")


@pytest.mark.parametrize(
    ("spelled", "stands_for"),
    [("\\t\\n\\r", b"\t\n\r"), ("\\\\n", b"\\n"), ("\\xe6\\xBC\\xa2", "漢".encode()), ("漢", "漢".encode()),
     ("\\'\\\"", b"'\""), ("\\a", b"a"), ("\\\n", b"\n")],
)  # fmt: skip
def test_spellings(spelled: str, stands_for: bytes) -> None:
    tokenizer = rwkv([spelled, "<s>"], [NORMAL, CONTROL])
    assert tokenizer.token_bytes(0) == stands_for
    assert tokenizer.encode(stands_for.decode()) == [0]


@pytest.mark.parametrize("spelled", ["a\\", "\\x", "\\x4", "\\x4g", "\\\\\\"])
def test_spellings_that_stand_for_nothing_are_refused(spelled: str) -> None:
    with pytest.raises(ModelFormatError, match="has an incomplete escape after a backslash"):
        rwkv(["a", spelled])


def test_the_search_is_bounded_by_the_longest_token() -> None:
    with pytest.raises(UnsupportedModelError, match=r"a token of 1000000 bytes, .* at most 1024"):
        rwkv(["a", "a" * 999_999 + "b"])


@pytest.mark.parametrize("text", share_of([("a" * 1023 + "c") * 300, "a" * 300_000]))
def test_texts_that_nearly_match_long_tokens_cost_linear_time(text: str) -> None:
    tokenizer = rwkv(["a", "c", *("a" * n + "b" for n in range(1, 1024))])
    with within(10):
        assert len(tokenizer.encode(text)) == len(text)
