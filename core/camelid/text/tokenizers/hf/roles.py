"""Roles of tokens (BOS, EOS, padding, …), from the small files beside a tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.control_tokens import FIELDS, control_texts
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.values import Json, array, mapping, shown, typed
from camelid.text.tokenizers.hf.vocabulary import Vocabulary
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


def read_settings(files: TokenizerFiles) -> Settings:
    """The small files as Settings. Raises ModelFormatError for a file that is not an object."""
    return Settings(
        mapping(files.tokenizer_config, "tokenizer_config.json"),
        mapping(files.special_tokens, "special_tokens_map.json"),
        mapping(files.config, "config.json"),
        mapping(files.generation, "generation_config.json"),
    )


def token_of(settings: Settings, role: str) -> str | None:
    """The token of a role such as "bos", given as a string or as an added token. Raises ModelFormatError."""
    for file in (settings.tokenizer, settings.special_tokens):
        value = _content(file.get(f"{role}_token"))
        if value is not None:
            return typed(value, str, f"{role}_token")
    return None


def _content(value: object) -> object:
    return cast(Json, value).get("content") if isinstance(value, Mapping) else value


def named_tokens(settings: Settings) -> Iterator[str]:
    """Yields the tokens that the files name as special."""
    for role in ROLES:
        token = token_of(settings, role)
        if token is not None:
            yield token
    for file in (settings.tokenizer, settings.special_tokens):
        for key in EXTRA:
            yield from _listed(file.get(key), key)


def _listed(value: object, key: str) -> Iterator[str]:
    """The tokens of a list, or of an object from names to tokens."""
    items = list(cast(Json, value).values()) if isinstance(value, Mapping) else array(value or [], key)
    return (typed(_content(item), str, key) for item in items)


def with_control_tokens(
    vocab: Vocabulary, settings: Settings, frame: Iterable[str], templates: Iterable[str]
) -> Vocabulary:
    """The vocabulary with `overridden` and `control_texts` set by the rules of control_tokens.py.

    `frame`: the tokens around every text; `templates`: sources of the chat templates.
    """
    ids = {*every_role_id(settings, vocab), *(vocab.ids[name] for name in frame if name in vocab.ids)}
    tokens = ["" if token is None else token for token in vocab.tokens]
    control = control_texts(tokens, ordinary_types(vocab), ids, templates)
    added = {i: replace(token, overridden=token.content in control) for i, token in vocab.added.items()}
    return replace(vocab, added=added, control_texts=control)


def ordinary_types(vocab: Vocabulary) -> list[int]:
    """Types by id before the rules: USER_DEFINED for added tokens, NORMAL for the model's own tokens."""
    rows = enumerate(vocab.tokens)
    return [UNUSED if t is None else USER_DEFINED if i in vocab.added else NORMAL for i, t in rows]


def every_role_id(settings: Settings, vocab: Vocabulary) -> Iterator[int]:
    """Yields the ids of all roles, by token and by id, from all files, without ids outside the vocabulary."""
    inner = mapping(settings.config.get("text_config") or {}, "text_config")
    for field in FIELDS:
        if (name := token_of(settings, field)) in vocab.ids:
            yield vocab.ids[name]
        for file in (settings.generation, settings.config, inner):
            value = file.get(f"{field}_token_id")
            ids = cast("list[object]", value) if isinstance(value, list) else [value]
            yield from (i for i in ids if type(i) is int and 0 <= i < len(vocab.tokens))


def role_ids(settings: Settings, vocab: Vocabulary, role: str) -> list[int]:
    """Ids of a role: by its token, then from generation_config.json, else from config.json.

    Raises ModelFormatError for an id outside the vocabulary.
    """
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
    """An id or a list of ids; old files write -1 for no id. Raises ModelFormatError."""
    ids = cast("list[object]", value) if isinstance(value, list) else [value]
    for token_id in ids:
        if type(token_id) is not int or not -1 <= token_id < size:
            raise ModelFormatError(
                f"{key} is {shown(token_id)}, expected an id below vocab_size, {size}",
                key=key,
                got=token_id,
                want=size,
            )
    return cast("list[int]", ids)
