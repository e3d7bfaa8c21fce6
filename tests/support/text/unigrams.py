"""Unigram models trained by SentencePiece on seeded texts, as .model files and as GGUF metadata."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tests.support.text.charsmaps import charsmap_of, fields
from tests.support.text.texts import random_texts

from camelid.text.tokenizers.unigram import Unigram

SETTINGS: dict[str, Any] = {
    "vocab_size": 1100,
    "model_type": "unigram",
    "character_coverage": 0.98,
    "hard_vocab_limit": False,
    "num_threads": 1,
    "minloglevel": 2,
}
ROUNDING = 1e-3  # of sums of some hundred scores, with a margin


def lines() -> Iterator[str]:
    """Raw prose and texts of all kinds; SentencePiece trains on no zero bytes."""
    yield from Path(__file__).with_name("texts.py").read_text("utf-8").splitlines()
    yield from Path(__file__).parents[3].joinpath("LICENSE").read_text("utf-8").splitlines()
    yield from (text for text in random_texts(1200, seed=3) if "\0" not in text)


@cache
def trained(**settings: Any) -> bytes:
    """The .model file of a Unigram trained with `settings` and SETTINGS."""
    file = io.BytesIO()
    SentencePieceTrainer.train(sentence_iterator=lines(), model_writer=file, **SETTINGS | settings)
    return file.getvalue()


@cache
def processor(model: bytes) -> SentencePieceProcessor:
    return SentencePieceProcessor(model_proto=model)


def as_metadata(model: bytes) -> dict[str, object]:
    """Metadata that llama.cpp's converter writes for a .model file, kind "t5"."""
    judge = processor(model)
    pieces = [dict(fields(cast("bytes", piece))) for number, piece in fields(model) if number == 1]
    normalizer = dict(fields(next(cast("bytes", spec) for number, spec in fields(model) if number == 3)))
    facts: dict[str, object] = {
        "model": "t5",
        "tokens": [cast("bytes", piece[1]).decode() for piece in pieces],
        "scores": [judge.get_score(i) for i in range(len(pieces))],
        "token_type": [piece.get(3, 1) for piece in pieces],
        "unknown_token_id": judge.unk_id(),
        "eos_token_id": judge.eos_id(),
        "add_space_prefix": bool(normalizer.get(3, 1)),
        "remove_extra_whitespaces": bool(normalizer.get(4, 1)),
        "precompiled_charsmap": list(charsmap_of(model)),
    }
    return {f"tokenizer.ggml.{name}": fact for name, fact in facts.items()}


def decided(judge: SentencePieceProcessor, text: str) -> bool:
    """True if the best segmentation leads by more than SentencePiece's rounding to float32."""
    ids = cast("list[list[int]]", judge.nbest_encode_as_ids(text, 2))
    sums = [sum(judge.get_score(i) for i in cut) for cut in ids]
    return len(sums) < 2 or abs(sums[0] - sums[1]) > ROUNDING


def from_pieces(
    pieces: Sequence[tuple[str, float]], unk_id: int | None, *, byte_fallback: bool = False
) -> Unigram:
    """A model by the rules of `tokenizers`: any token may match text, the last of equal ones wins."""
    scored = {piece: (score, token_id) for token_id, (piece, score) in enumerate(pieces)}
    names = {byte: f"<0x{byte:02X}>" for byte in range(256)} if byte_fallback else {}
    return Unigram(
        scored,
        unk_id=unk_id,
        unk_score=min(score for _, score in pieces) - 10.0,
        byte_ids={byte: scored[name][1] for byte, name in names.items() if name in scored},
    )
