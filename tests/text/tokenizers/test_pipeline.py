"""Streams of tokens: whole characters only, and the joined text equals one-shot decoding."""

from __future__ import annotations

import random
from codecs import getincrementaldecoder
from collections.abc import Sequence
from itertools import product

import pytest
from tests.support.text.stream_cases import BYTES, TEXT, TOKENIZERS, some_ids

from camelid.text.tokenizers.pipeline import Pipeline, StreamDecoder


def streamed(
    tokenizer: Pipeline, token_ids: Sequence[int], *, special: bool = False, opens: bool = True
) -> str:
    stream = StreamDecoder(tokenizer, special=special, opens=opens)
    return "".join([*map(stream.push, token_ids), stream.finish()])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_streams_of_every_kind_equal_one_shot_decoding(name: str) -> None:
    tokenizer, rng = TOKENIZERS[name], random.Random(83)
    for _ in range(1500):
        token_ids = some_ids(tokenizer, rng)
        for special in (False, True):
            want = b"".join(
                tokenizer.token_bytes(i) for i in token_ids if special or not tokenizer.is_control(i)
            )
            dropped = name == "sentencepiece" and want.startswith(b" ")
            decoded = tokenizer.decode(token_ids, special=special)
            assert decoded == want[dropped:].decode("utf-8", "replace")
            assert streamed(tokenizer, token_ids, special=special) == decoded
            assert streamed(tokenizer, token_ids, special=special, opens=False) == want.decode(
                "utf-8", "replace"
            )


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_answer_continues_at_the_prompts_end(name: str) -> None:
    """No space is lost or doubled between prompt and answer."""
    tokenizer, rng = TOKENIZERS[name], random.Random(89)
    for _ in range(500):
        prompt = tokenizer.encode("a" + "".join(rng.choices(" aé漢😀", k=3)))
        answer = tokenizer.encode("".join(rng.choices(" aé漢😀", k=5)))
        text = tokenizer.decode(prompt) + streamed(tokenizer, answer, opens=False)
        assert text == tokenizer.decode(prompt + answer)


# The Unicode Standard, tables 3-8 to 3-11: one U+FFFD for each longest prefix of a character.
REPLACED = {
    b"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82A": "\ufffd" * 8 + "A",
    b"\xed\xa0\x80\xed\xbf\xbf\xed\xafA": "\ufffd" * 8 + "A",
    b"\xf4\x91\x92\x93\xffA\x80\xbfB": "\ufffd" * 5 + "A" + "\ufffd" * 2 + "B",
    b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA": "\ufffd" * 4 + "A",
}


@pytest.mark.parametrize("data", REPLACED)
def test_broken_characters_are_replaced_as_unicode_recommends(data: bytes) -> None:
    assert BYTES.decode(data) == streamed(BYTES, data) == REPLACED[data]


def test_pythons_decoder_agrees_for_every_split() -> None:
    edges = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5]
    rng = random.Random(101)
    cases = [*map(bytes, product(edges, repeat=3)), *(bytes(rng.choices(edges, k=9)) for _ in range(2000))]
    for data in [*cases, *(rng.randbytes(9) for _ in range(500))]:
        want = data.decode("utf-8", "replace")
        for borders in range(1 << (len(data) - 1)) if len(data) < 5 else rng.choices(range(256), k=4):
            decoder, got, start = getincrementaldecoder("utf-8")("replace"), "", 0
            for end in range(1, len(data) + 1):
                if end == len(data) or borders >> (end - 1) & 1:
                    got, start = got + decoder.decode(data[start:end]), end
            assert got + decoder.decode(b"", final=True) == want, (data, borders)


def byte_strings(n: int) -> list[bytes]:
    """Valid UTF-8, valid with bytes lost or changed, and bytes that often start or continue a character."""
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
def test_the_joined_stream_equals_one_shot_decoding(special: bool) -> None:
    rng = random.Random(29)
    for data in byte_strings(6000):
        token_ids = list(data)
        token_ids.insert(rng.randrange(len(data) + 1), 256)
        stream = StreamDecoder(BYTES, special=special)
        parts = [stream.push(token_id) for token_id in token_ids] + [stream.finish()]
        assert "".join(parts) == BYTES.decode(token_ids, special=special)


def test_only_whole_characters_are_emitted_and_at_most_three_bytes_held() -> None:
    for data in byte_strings(2000):
        stream, shown = StreamDecoder(BYTES), b""
        if b"\xef\xbf\xbd" in data or "\ufffd" in data.decode("utf-8", "replace"):
            continue
        for end, byte in enumerate(data, 1):
            shown += stream.push(byte).encode()
            assert data.startswith(shown)
            assert end - len(shown) <= 3
