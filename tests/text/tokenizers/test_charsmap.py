"""Character maps against SentencePiece and `tokenizers`, over code points and random texts."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import cache
from itertools import accumulate

import pytest
from sentencepiece import SentencePieceNormalizer
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.charsmaps import LEAF, VALUE, WIDE, charsmap_of, compiled, packed
from tests.support.text.texts import random_texts
from tests.support.text.unigrams import trained
from tokenizers import normalizers

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.charsmap import MAX_KEY, MAX_REPLACEMENT, Charsmap
from camelid.text.tokenizers.graphemes import clusters
from camelid.text.unicode_tables import rows

NAMES = ("nmt_nfkc", "nfkc", "nfkc_cf")
LETTERS = ("a", "क", "\u1100", "\u1161", "\u11a8", "☎", "\u0301", "©", "é")


@cache
def texts() -> list[str]:
    return [text for text in random_texts(3000, seed=9) if "\0" not in text]


@cache
def code_points() -> list[str]:
    return [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


@cache
def charsmap(name: str) -> Charsmap:
    return Charsmap(charsmap_of(trained(normalization_rule_name=name)))


def members(row: str) -> list[str]:
    borders = list(accumulate(int(delta, 36) for delta in row.split()))
    return [chr(c) for a, b in zip(borders[::2], borders[1::2], strict=True) for c in range(a, b)]


@pytest.mark.conformance
@pytest.mark.parametrize("name", NAMES)
def test_texts_equal_sentencepieces(name: str) -> None:
    judge = sentencepiece_normalizer(name)
    changed = 0
    for text in texts():
        result = charsmap(name).normalize(text)
        assert result == judge.normalize(text), ascii(text)
        changed += result != text
    assert changed > len(texts()) // 2


@pytest.mark.conformance
@pytest.mark.parametrize("one_in", share_of([7, 1]))
def test_code_points_equal_sentencepieces(one_in: int) -> None:
    judge = sentencepiece_normalizer("nmt_nfkc")
    for c in code_points()[::one_in]:
        assert charsmap("nmt_nfkc").normalize(c) == judge.normalize(c), ascii(c)


def sentencepiece_normalizer(name: str) -> SentencePieceNormalizer:
    return SentencePieceNormalizer(
        rule_name=name, add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
    )


@pytest.mark.conformance
@pytest.mark.parametrize("name", NAMES)
def test_texts_equal_those_of_tokenizers(name: str) -> None:
    judge = normalizers.Precompiled(charsmap_of(trained(normalization_rule_name=name)))
    differing = 0
    for text in texts():
        result = charsmap(name).normalize_clusters(clusters(text))
        assert result == judge.normalize_str(text), ascii(text)
        differing += result != charsmap(name).normalize(text)
    assert differing > 20  # the two ways differ


@pytest.mark.conformance
def test_clusters_equal_those_of_tokenizers() -> None:
    """Shown by a map of letters: in a short cluster, marks after the letter are dropped."""
    data = compiled(dict.fromkeys(LETTERS, "X"))
    judge, ours = normalizers.Precompiled(data), Charsmap(data)
    classes = [members(row) for row in rows("graphemes.txt").values()]
    rng = random.Random(7)
    for _ in range(30_000):
        chars = [rng.choice(LETTERS if rng.random() < 0.5 else rng.choice(classes)) for _ in range(6)]
        text = "".join(chars[: rng.randrange(1, 7)]) + rng.choice(("", "\u0301"))
        cut = clusters(text)
        assert "".join(cut) == text
        assert ours.normalize_clusters(cut) == judge.normalize_str(text), ascii(text)


def test_the_longest_key_wins_and_replacements_are_final() -> None:
    made = Charsmap(compiled({"a": "b", "abc": "X", "abcde": "Y", "b": "a", "é": ""}))
    assert made.normalize("abcd ab abcde é") == "Xd ba Y "
    # A cluster below 6 bytes that begins with "a" is dropped with its mark; a longer one is not.
    assert made.normalize_clusters(["a\u0301", "a\u0301\u0301\u0301", "é"]) == "bb\u0301\u0301\u0301"


UNITS = ("e\u0301", "☎\u200d", "a", "\u0301", "\u0600", "\u1100", "क\u094d", "\r")


@pytest.mark.parametrize("unit", share_of(UNITS))
def test_a_megabyte_takes_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    with within(10):
        charsmap("nmt_nfkc").normalize(text)
        charsmap("nmt_nfkc").normalize_clusters(clusters(text))


def leads(unit: int, blob: bytes = b"xyz\0") -> bytes:
    """A map of "a" alone with any unit 353, the entry of "a". Its value should be unit 512."""
    units = [0] * 1024
    units[0] = 256 << 10
    units[353] = unit
    units[512] = VALUE | 1
    return packed(units, blob)


ENDS = LEAF | ord("a")


FAULTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "a trie of 0 bytes in 0 bytes"),
    "a size beyond the data": (lambda: struct.pack("<I", 4096) + b"\0" * 99, "a trie of 4096 bytes in 103"),
    "a size that is no multiple": (lambda: struct.pack("<I", 6) + b"\0" * 99, "a trie of 6 bytes"),
    "a huge size": (lambda: b"\xff" * 64, "a trie of 4294967295 bytes"),
    "no replacements": (lambda: compiled({"a": "b"})[:-2], "truncated"),
    "a last replacement without end": (lambda: compiled({"a": "b"})[:-1], "truncated"),
    "replacements not in UTF-8": (lambda: compiled({"a": "b"})[:-1] + b"\xff\0", "not UTF-8 at byte 1"),
    "a long replacement": (lambda: compiled({"a": "b" * (MAX_REPLACEMENT + 1)}), "more than 128 bytes"),
    "a long key": (lambda: compiled({"a" * (MAX_KEY + 1): "b"}), "more than 48 bytes"),
    "a key that leads to itself": (lambda: leads(ENDS | (353 ^ 256) << 10), "353 has no readable value"),
    "an endless key": (lambda: leads(ord("a") | (353 ^ 256) << 10), "more than 48 bytes"),
    "an offset beyond the trie": (lambda: leads(ENDS | 0x1FFFFF << 10), "unit 353 has no readable value"),
    "a value that is none": (lambda: leads(ENDS | (353 ^ 513) << 10), "unit 353 has no readable value"),
    "a value within a character": (lambda: leads(ENDS | (353 ^ 512) << 10, "é\0".encode()), "no readable"),
    "a value beyond the replacements": (lambda: leads(ENDS | (353 ^ 512) << 10, b"\0"), "no readable value"),
}  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_maps_are_refused(fault: str) -> None:
    data, message = FAULTS[fault]
    with pytest.raises(ModelFormatError, match=message):
        Charsmap(data())


def test_the_undamaged_map_is_read() -> None:
    """The undamaged map; its offset of 256 may also be encoded with a shift."""
    sound = bytearray(leads(ENDS | (353 ^ 512) << 10))
    assert Charsmap(bytes(sound)).normalize("bab\0a") == "byzb\0yz"
    sound[4:8] = struct.pack("<I", 1 << 10 | WIDE)
    assert Charsmap(bytes(sound)).normalize("bab\0a") == "byzb\0yz"


def test_the_longest_key_and_replacement_are_read() -> None:
    key, value = "a" * MAX_KEY, "b" * MAX_REPLACEMENT
    assert Charsmap(compiled({key: value})).normalize(key + "a") == value + "a"


@pytest.mark.faults
def test_random_damage_is_refused_or_harmless() -> None:
    """An accepted map must normalize in linear time, for any units."""
    rng = random.Random(3)
    whole = compiled(
        {key: "xyz"[: i % 4] for i, key in enumerate(["a", "ab", "abc", "é", "日本", "日", " "])}
    )
    accepted = 0
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 40)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            damaged = Charsmap(bytes(data[: rng.choice((len(data), rng.randrange(len(data))))]))
        except ModelFormatError:
            continue
        accepted += 1
        for text in ("abcé日本 aab", "".join(rng.choices(code_points(), k=20))):
            assert len(damaged.normalize(text)) <= MAX_REPLACEMENT * len(text)
            assert len(damaged.normalize_clusters(clusters(text))) <= MAX_REPLACEMENT * len(text)
    assert 100 < accepted < 1400
