"""Tokens by id: their types, their bytes, and the tokens that text may name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.specials import Named, Specials

# tokenizer.ggml.token_type (ggml-org/ggml docs/gguf.md).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
CONTROL_TYPES = frozenset({UNKNOWN, CONTROL})  # decode leaves them out; only trusted text names them


def byte_alphabet() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies (openai/gpt-2 encoder.py)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (b for b in range(256) if b not in plain)
    code_points = {b: b for b in plain} | {b: 256 + i for i, b in enumerate(others)}
    return [chr(code_points[b]) for b in range(256)]


ALPHABET = byte_alphabet()
TO_LATIN1 = {ord(char): byte for byte, char in enumerate(ALPHABET)}
OUTSIDE = re.compile(f"[^{re.escape(''.join(ALPHABET))}]")


def byte_level_piece(token: str, token_type: int) -> bytes:
    """The bytes of one token; only text tokens are spelled in the byte alphabet."""
    if token_type in CONTROL_TYPES or token_type == USER_DEFINED or OUTSIDE.search(token):
        return literal(token, token_type)
    return token.translate(TO_LATIN1).encode("latin-1")


def literal(token: str, token_type: int) -> bytes:  # noqa: ARG001
    """The token's own bytes; parsers keep bytes that are not UTF-8 as surrogates (surrogateescape)."""
    return token.encode("utf-8", "surrogateescape")


class Vocab:
    """Tokens by id, with checked types.

    `piece`: the bytes of a token of a type. `specials`: by default the user-defined and control tokens.
    Raises ModelFormatError.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        types: Sequence[int],
        piece: Callable[[str, int], bytes] = byte_level_piece,
        specials: Specials | None = None,
    ) -> None:
        if len(types) != len(tokens):
            raise ModelFormatError(
                f"tokenizer: {len(types)} token types for {len(tokens)} tokens; the file is damaged",
                got=len(types),
                want=len(tokens),
            )
        check_unicode(tokens)
        self.tokens = tokens
        self.types = types
        self.piece = piece
        self.specials = specials or Specials(named(tokens, types))

    def __len__(self) -> int:
        return len(self.tokens)

    def text_ids(self) -> dict[str, int]:
        """Ids of all tokens except control tokens, by token. The lowest id of equal tokens counts."""
        pairs = zip(reversed(self.tokens), reversed(self.types), range(len(self) - 1, -1, -1), strict=True)
        return {token: i for token, kind, i in pairs if token and kind not in CONTROL_TYPES}


def named(tokens: Sequence[str], types: Sequence[int]) -> list[Named]:
    """The tokens that text may name: user-defined tokens in any text, control tokens in trusted text.

    The highest id of equal tokens counts.
    """
    kinds = {USER_DEFINED, *CONTROL_TYPES}
    ids = {token: i for i, token in enumerate(tokens) if types[i] in kinds}
    return [Named(token, i, types[i] in CONTROL_TYPES) for token, i in ids.items()]


def check_unicode(tokens: Sequence[str]) -> None:
    """Raises ModelFormatError for a token with a surrogate that does not stand for a byte."""
    try:
        "".join(tokens).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        bad = next(token for token in tokens if not is_encodable(token))
        raise ModelFormatError(f"tokenizer: token {bad!r:.80} is not Unicode text", token=bad) from None


def is_encodable(token: str) -> bool:
    """True if the token is Unicode text; surrogates of surrogateescape count as bytes."""
    try:
        token.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
