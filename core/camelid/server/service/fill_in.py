"""Fill-in-the-middle: the tokens of models that were trained for it, and the plain form of their prompts."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.formats.gguf import Gguf
from camelid.requests.build import RequestBuilder
from camelid.server.http.errors import ApiError

# Role -> metadata keys under tokenizer.ggml, the older name last, and texts by which such a token is known.
FIM = {
    "prefix": (("fim_pre_token_id", "prefix_token_id"),
               ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>")),
    "suffix": (("fim_suf_token_id", "suffix_token_id"),
               ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>")),
    "middle": (("fim_mid_token_id", "middle_token_id"),
               ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>")),
    "repository": (("fim_rep_token_id",), ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>")),
    "separator": (("fim_sep_token_id",), ("<|file_sep|>",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FimTokens:
    """The ids of a model's fill-in-the-middle tokens."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    separator: int | None = None

    @classmethod
    def of(cls, gguf: Gguf) -> FimTokens:
        """The tokens of a file. Raises ApiError 501 if one of the first three is missing."""
        found = {role: fim_id(gguf, keys, texts) for role, (keys, texts) in FIM.items()}
        missing = [role for role in ("prefix", "suffix", "middle") if found[role] is None]
        if missing:
            raise ApiError(
                501, f"this model cannot fill in text: it has no token for the {missing[0]}; "
                "use a code model that was trained for it", code="no_infill",
            )  # fmt: skip
        return cls(**found)  # type: ignore[arg-type]  # the first three are set


def fim_id(gguf: Gguf, keys: tuple[str, ...], texts: tuple[str, ...]) -> int | None:
    """The id of a token, by a key of the metadata or by its text."""
    tokens = gguf.get("tokenizer.ggml.tokens", list[str])
    for key in keys:
        token_id = gguf.get(f"tokenizer.ggml.{key}", int, default=None)
        if token_id is not None and 0 <= token_id < len(tokens):
            return token_id
    return next((tokens.index(text) for text in texts if text in tokens), None)


def suffix_tokens(gguf: Gguf) -> FimTokens:
    """The tokens for a request's `suffix`. Raises ApiError 400 that names the field."""
    try:
        return FimTokens.of(gguf)
    except ApiError as error:
        raise ApiError(
            400, f"suffix needs fill-in-the-middle tokens: {error.message}", param="suffix", code=error.code
        ) from None  # fmt: skip


def fill_in_ids(builder: RequestBuilder, gguf: Gguf, prefix: str, suffix: str) -> list[int]:
    """The prompt that asks for the text between a prefix and a suffix, in llama.cpp's order."""
    fim, before, encode = suffix_tokens(gguf), builder.tokenizer.frame.before, builder.tokenizer.encode
    return [*before, fim.prefix, *encode(prefix), fim.suffix, *encode(suffix), fim.middle]
