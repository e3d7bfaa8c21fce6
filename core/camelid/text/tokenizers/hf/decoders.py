"""Decoders of a tokenizer.json: the text of each token, alone and at the start of a text.

Text is streamed, so a token's bytes must not depend on other tokens; other decoders are refused by name.
Source: huggingface/tokenizers, docs of `decoders`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from camelid.text.tokenizers.hf.values import SPACE, Json, count, flag, mapping, refuse, row, steps, text
from camelid.text.tokenizers.pipeline import as_it_is, without_space
from camelid.text.tokenizers.vocab import UNUSED, byte_level_piece, literal

BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
# WordPiece's `cleanup`: replacements in each token, in this order.
CLEANUP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
MOST = 1 << 16  # the maximum number of characters that Strip removes

Piece = Callable[[str, int], bytes]


@dataclass(frozen=True, slots=True)
class Decoding:
    """A decoder step.

    `text` changes a token's text, `piece` converts it to bytes, `opening` changes the first token of a text.
    `joins`: the following steps apply to the whole text.
    """

    text: Callable[[str], str] | None = None
    piece: Piece | None = None
    opening: Callable[[bytes], bytes] | None = None
    joins: bool = False


def read_decoder(tokenizer: Json) -> tuple[Piece, Callable[[bytes], bytes]]:
    """The bytes of a token by type, and the change of a text's first token. Raises UnsupportedModelError."""
    texts: list[Callable[[str], str]] = []
    piece, opening, joined = literal, as_it_is, False
    for kind, step in steps(tokenizer, "decoder", "decoders") or [("none", {})]:
        found = row(AFTER_FUSE if joined else DECODERS, kind, "decoder after Fuse" if joined else "decoder")(
            step
        )
        texts += [found.text] if found.text else []
        piece, opening = found.piece or piece, found.opening or opening
        joined = joined or found.joins
    return _composed(texts, piece), opening


def _composed(texts: list[Callable[[str], str]], piece: Piece) -> Piece:
    def composed(token: str, token_type: int) -> bytes:
        if token_type == UNUSED:
            return b""
        for step in texts:
            token = step(token)
        return piece(token, token_type)

    return composed


def _byte_fallback(token: str, token_type: int) -> bytes:
    found = BYTE_TOKEN.fullmatch(token)
    return bytes([int(found[1], 16)]) if found else literal(token, token_type)


def _without_decoder(_: Json) -> Decoding:
    """Decodes to tokens with spaces between them."""
    return Decoding(lambda token: " " + token, opening=without_space)


def _metaspace(step: Json) -> Decoding:
    mark = text(step, "replacement", SPACE)
    old = "always" if flag(step, "add_prefix_space", default=True) else "never"
    prefixed = text(step, "prepend_scheme", old) != "never"
    return Decoding(lambda token: token.replace(mark, " "), opening=_without_spaces if prefixed else None)


def _without_spaces(piece: bytes) -> bytes:
    return piece.replace(b" ", b"")


def _word_piece(step: Json) -> Decoding:
    prefix = text(step, "prefix", "##")
    cleanup = CLEANUP if flag(step, "cleanup", default=True) else ()

    def joined(token: str) -> str:
        token = token[len(prefix) :] if token.startswith(prefix) else " " + token
        for old, new in cleanup:
            token = token.replace(old, new)
        return token

    return Decoding(joined, opening=without_space)


def _bpe_decoder(step: Json) -> Decoding:
    suffix = text(step, "suffix", "</w>")
    return Decoding(lambda token: token.replace(suffix, " ") if suffix else token)


def _replace(step: Json) -> Decoding:
    pattern = mapping(step.get("pattern"), "decoder.pattern")
    if "String" not in pattern:
        refuse("decoder", "replaces by a regex", step)
    old, new = text(pattern, "String"), text(step, "content")
    return Decoding(lambda token: token.replace(old, new) if old else token)


def _strip(step: Json) -> Decoding:
    char, start, stop = text(step, "content"), count(step, "start", 0, MOST), count(step, "stop", 0, MOST)
    ends = re.compile(f"^(?:{re.escape(char)}){{0,{start}}}|(?:{re.escape(char)}){{0,{stop}}}$")
    return Decoding(lambda token: ends.sub("", token))


def _strip_text(step: Json) -> Decoding:
    """Strips the whole text at its beginning only, since the end of a stream is unknown."""
    char, start = text(step, "content").encode(), count(step, "start", 0, MOST)
    if count(step, "stop", 0, MOST):
        refuse("decoder", "removes characters from the end of a text, which is unknown in a stream", step)
    begin = re.compile(b"(?:%s){0,%d}" % (re.escape(char), start))
    return Decoding(opening=lambda piece: piece[_end(begin, piece) :])


def _end(pattern: re.Pattern[bytes], piece: bytes) -> int:
    found = pattern.match(piece)
    return found.end() if found else 0


# Kind -> its reader. Fuse does not change the text.
DECODERS: Mapping[str, Callable[[Json], Decoding]] = {
    "none": _without_decoder,
    "ByteLevel": lambda _: Decoding(piece=byte_level_piece),
    "ByteFallback": lambda _: Decoding(piece=_byte_fallback),
    "Metaspace": _metaspace,
    "WordPiece": _word_piece,
    "BPEDecoder": _bpe_decoder,
    "Replace": _replace,
    "Strip": _strip,
    "Fuse": lambda _: Decoding(joins=True),
}
AFTER_FUSE: Mapping[str, Callable[[Json], Decoding]] = {
    "Strip": _strip_text,
    "Fuse": DECODERS["Fuse"],
}
