"""Which tokens open and end texts, from the small files around a tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.values import Json, array, mapping, shown, typed
from camelid.text.tokenizers.hf.vocabulary import Vocabulary

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
EXTRA = ("additional_special_tokens", "extra_special_tokens")


@dataclass(frozen=True, slots=True)
class Settings:
    """tokenizer_config.json, special_tokens_map.json, config.json and generation_config.json."""

    tokenizer: Json
    special_tokens: Json
    config: Json
    generation: Json


def read_settings(
    tokenizer_config: object, special_tokens: object, config: object, generation: object
) -> Settings:
    """The files, each of which must be an object. Raises ModelFormatError."""
    return Settings(
        mapping(tokenizer_config, "tokenizer_config.json"),
        mapping(special_tokens, "special_tokens_map.json"),
        mapping(config, "config.json"),
        mapping(generation, "generation_config.json"),
    )


def token_of(settings: Settings, role: str) -> str | None:
    """The token of a role, such as "bos": a string, or an added token. Raises ModelFormatError."""
    for file in (settings.tokenizer, settings.special_tokens):
        value = _content(file.get(f"{role}_token"))
        if value is not None:
            return typed(value, str, f"{role}_token")
    return None


def _content(value: object) -> object:
    return cast(Json, value).get("content") if isinstance(value, Mapping) else value


def named_tokens(settings: Settings) -> Iterator[str]:
    """Every token that the files name as special."""
    for role in ROLES:
        token = token_of(settings, role)
        if token is not None:
            yield token
    for file in (settings.tokenizer, settings.special_tokens):
        for key in EXTRA:
            yield from _listed(file.get(key), key)


def _listed(value: object, key: str) -> Iterator[str]:
    """A list of tokens, or an object of them by name."""
    found = list(cast(Json, value).values()) if isinstance(value, Mapping) else array(value or [], key)
    return (typed(_content(item), str, key) for item in found)


def role_ids(settings: Settings, vocab: Vocabulary, role: str) -> list[int]:
    """Ids of a role: by the token's name, then from generation_config.json, else from config.json."""
    name = token_of(settings, role)
    ids = [vocab.ids[name]] if name in vocab.ids else []
    key = f"{role}_token_id"
    inner = mapping(settings.config.get("text_config") or {}, "text_config")
    for file in (settings.generation, settings.config, inner):
        value = file.get(key)
        if value is not None and (role == "eos" or not ids):
            return ids + [i for i in _checked_ids(value, key, len(vocab.tokens)) if i != -1]
    return ids


def _checked_ids(value: object, key: str, size: int) -> list[int]:
    """One id or a list of them; -1 stands for none in old files."""
    ids = cast("list[object]", value) if isinstance(value, list) else [value]
    for token_id in ids:
        if type(token_id) is not int or not -1 <= token_id < size:
            raise ModelFormatError(
                f"{key} is {shown(token_id)}, want an id below vocab_size, {size}",
                key=key,
                got=token_id,
                want=size,
            )
    return cast("list[int]", ids)
