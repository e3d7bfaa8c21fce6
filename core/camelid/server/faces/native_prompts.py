"""Prompts of llama.cpp's endpoints: text, token ids, both mixed, and lists of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from camelid.sampling.checks import bias_pairs
from camelid.server.fields.kinds import refuse
from camelid.server.fields.native import MAX_PROMPTS
from camelid.server.http.errors import ApiError
from camelid.text.tokenizers.tokenizer import Tokenizer

Mixed = str | Sequence[str | int]
MAX_BIAS_CHARS = 64 << 10  # of all texts that logit_bias names


def split_prompts(prompt: object) -> list[Mixed]:
    """The prompts of a field: a list with a number in it is one prompt, any other list several."""
    if not isinstance(prompt, list):
        return [one_prompt(prompt)]
    items = cast("list[object]", prompt)
    if any(isinstance(item, int) for item in items):
        return [one_prompt(items)]
    if len(items) > MAX_PROMPTS:
        raise ApiError(400, f"prompt has {len(items)} prompts, at most {MAX_PROMPTS}", param="prompt")
    return [one_prompt(item) for item in items]


def one_prompt(prompt: Any) -> Mixed:
    """One prompt. Raises ApiError 501 for an image beside its text, 400 for lists within lists."""
    if isinstance(prompt, dict):
        fields = cast("dict[str, Any]", prompt)
        if fields.get("multimodal_data"):
            raise ApiError(501, "image input is not supported by this model", param="prompt", code="no_media")
        return fields["prompt_string"]
    if isinstance(prompt, list) and not set(map(type, cast("list[object]", prompt))) <= {str, int}:
        raise ApiError(400, "prompt mixes token ids and whole prompts; send either", param="prompt")
    return cast("Mixed", prompt)


def mixed_ids(prompt: Mixed, tokenizer: Tokenizer, *, frames: bool = True, special: bool = True) -> list[int]:
    """Token ids of a prompt; a text that begins it gets the tokens that open every text, such as BOS."""
    if isinstance(prompt, str):
        token_ids = tokenizer.encode(prompt, special)
        return tokenizer.frame.around(token_ids) if frames else token_ids
    token_ids = list(tokenizer.frame.before) if frames and prompt and isinstance(prompt[0], str) else []
    for part in prompt:
        token_ids += [part] if isinstance(part, int) else tokenizer.encode(part, special)
    return token_ids


def text_biases(value: object, tokenizer: Tokenizer) -> dict[int, float | bool]:
    """llama.cpp's `logit_bias`: pairs or a map, from a token id or a text to a number or false.

    A text biases each of its tokens. Raises ApiError 400.
    """
    pairs = bias_pairs(value)
    if pairs is None:
        raise ApiError(400, "logit_bias is no list of pairs and no map", param="logit_bias")
    n_chars = sum(len(key) for key, _ in pairs if isinstance(key, str))
    if n_chars > MAX_BIAS_CHARS:
        raise ApiError(
            400, f"logit_bias has texts of {n_chars:,} characters, at most {MAX_BIAS_CHARS:,} are allowed; "
            "send token ids", param="logit_bias",
        )  # fmt: skip
    biases: dict[int, float | bool] = {}
    for key, bias in pairs:
        for token_id in bias_ids(key, tokenizer):
            biases[token_id] = joined(biases.get(token_id, 0.0), checked_bias(bias))
    return biases


def bias_ids(key: object, tokenizer: Tokenizer) -> list[int]:
    """The token ids of a key: a number, a number as text, or a text."""
    if type(key) is int and 0 <= key < tokenizer.vocab_size:
        return [key]
    if isinstance(key, str):
        is_id = key.isascii() and key.isdecimal() and len(key) <= 9 and int(key) < tokenizer.vocab_size
        return [int(key)] if is_id else tokenizer.encode(key, True)
    refuse("logit_bias", key, "token ids and texts as keys")


def checked_bias(bias: object) -> float | bool:
    """A bias; beyond ±100, which decides every draw, it is cut to ±100. False bans the token."""
    if bias is False:
        return False
    if type(bias) in (int, float):
        return float(min(max(cast("float", bias), -100), 100))
    refuse("logit_bias", bias, "a number or false as bias")


def joined(first: float | bool, second: float | bool) -> float | bool:
    """The sum of two biases of one token; a ban stays a ban."""
    if first is False or second is False:
        return False
    return min(max(first + second, -100.0), 100.0)
