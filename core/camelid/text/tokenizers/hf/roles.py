"""Which tokens open and end texts, from the small files around a tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.values import Json, array, mapping, shown, typed
from camelid.text.tokenizers.hf.vocabulary import Vocabulary
from camelid.text.tokenizers.steering import FIELDS, steering_texts
from camelid.text.tokenizers.vocab import NORMAL, UNUSED, USER_DEFINED

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


def steered(
    found: Vocabulary, settings: Settings, frame: Iterable[str], templates: Iterable[str]
) -> Vocabulary:
    """The vocabulary, with a mark on each steering token that the files call ordinary.

    `frame`: the tokens around every text; `templates`: sources of the chat templates.
    """
    ids = {*every_role_id(settings, found), *(found.ids[name] for name in frame if name in found.ids)}
    tokens = ["" if token is None else token for token in found.tokens]
    steering = steering_texts(tokens, ordinary_types(found), ids, templates)
    added = {i: replace(one, overridden=one.content in steering) for i, one in found.added.items()}
    return replace(found, added=added, steering=steering)


def ordinary_types(found: Vocabulary) -> list[int]:
    """The type of every id before any rule: added tokens are user-defined, the model's own normal."""
    rows = enumerate(found.tokens)
    return [UNUSED if t is None else USER_DEFINED if i in found.added else NORMAL for i, t in rows]


def every_role_id(settings: Settings, vocab: Vocabulary) -> Iterator[int]:
    """Ids of all roles, by name and from every file, none beyond the vocabulary."""
    inner = mapping(settings.config.get("text_config") or {}, "text_config")
    for field in FIELDS:
        if (name := token_of(settings, field)) in vocab.ids:
            yield vocab.ids[name]
        for file in (settings.generation, settings.config, inner):
            value = file.get(f"{field}_token_id")
            ids = cast("list[object]", value) if isinstance(value, list) else [value]
            yield from (i for i in ids if type(i) is int and 0 <= i < len(vocab.tokens))


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
