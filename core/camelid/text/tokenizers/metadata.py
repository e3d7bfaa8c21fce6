"""Checked reading of `tokenizer.ggml.*`: the keys of GGUF metadata that all kinds of tokenizer share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.control_tokens import END_KEYS, ENDS, KEYS, control_texts, overridden
from camelid.text.tokenizers.pipeline import Frame, Roles
from camelid.text.tokenizers.vocab import CONTROL, CONTROL_TYPES, NORMAL, Vocab

T = TypeVar("T")


def key(name: str) -> str:
    return f"tokenizer.ggml.{name}"


def array(metadata: Mapping[str, object], name: str, kind: type[T]) -> list[T]:
    """An array of the metadata with items of one type. Raises ModelFormatError."""
    value = metadata.get(key(name))
    if not isinstance(value, list):
        raise ModelFormatError(f"{key(name)} is {type(value).__name__}, expected an array", key=key(name))
    items = cast("list[object]", value)
    if set(map(type, items)) <= {kind}:
        return cast("list[T]", items)
    i = next(i for i, item in enumerate(items) if type(item) is not kind)
    raise ModelFormatError(f"{key(name)}[{i}] is {items[i]!r:.40}, expected {kind.__name__}", key=key(name))


def flag(metadata: Mapping[str, object], name: str, *, default: bool) -> bool:
    """A bool of the metadata. Raises ModelFormatError."""
    value = metadata.get(key(name), default)
    if isinstance(value, bool):
        return value
    raise ModelFormatError(f"{key(name)} is {value!r:.80}, expected bool", key=key(name))


def tokens_and_types(metadata: Mapping[str, object]) -> tuple[list[str], list[int]]:
    """Tokens and types by id; the types follow the rules of control_tokens.py. Raises ModelFormatError."""
    tokens = array(metadata, "tokens", str)
    check_vocab_size(metadata, len(tokens))
    types = stored_types(metadata, len(tokens))
    if len(types) != len(tokens):
        return tokens, types  # Vocab raises the error
    ids = [i for name in KEYS if (i := stored_id(metadata, name, len(tokens))) is not None]
    return tokens, overridden(types, tokens, control_texts(tokens, types, ids, templates(metadata)))


def templates(metadata: Mapping[str, object]) -> list[str]:
    """Sources of the chat templates. A template that is not a string is refused when it is rendered."""
    values = (value for name, value in metadata.items() if name.startswith("tokenizer.chat_template"))
    return [value for value in values if isinstance(value, str)]


def stored_types(metadata: Mapping[str, object], n_tokens: int) -> list[int]:
    """The types that the file states, all NORMAL if it states none. Raises ModelFormatError."""
    return array(metadata, "token_type", int) if key("token_type") in metadata else [NORMAL] * n_tokens


def retyped(metadata: Mapping[str, object], vocab: Vocab) -> frozenset[str]:
    """Control tokens with a text type in the file; the merges of the file may make them."""
    stored = stored_types(metadata, len(vocab))
    if stored == vocab.types:
        return frozenset()
    rows = zip(vocab.tokens, stored, vocab.types, strict=True)
    return frozenset(token for token, before, kind in rows if kind != before and kind in CONTROL_TYPES)


def check_vocab_size(metadata: Mapping[str, object], n_tokens: int) -> None:
    """Raises ModelFormatError if the architecture's vocab_size differs from the number of tokens."""
    size = metadata.get(f"{metadata.get('general.architecture')}.vocab_size", n_tokens)
    if size != n_tokens or n_tokens == 0:
        raise ModelFormatError(
            f"tokenizer: {n_tokens} tokens, but vocab_size is {size!r:.80}; the file is damaged",
            got=n_tokens,
            want=size,
        )


def stored_id(metadata: Mapping[str, object], name: str, n_tokens: int) -> int | None:
    """The id under a key; None for an id outside the vocabulary, as padding often is."""
    token_id = metadata.get(key(name))
    return token_id if type(token_id) is int and 0 <= token_id < n_tokens else None


def special_id(metadata: Mapping[str, object], name: str, n_tokens: int) -> int | None:
    """The id under a key such as "unknown_token_id", or None without the key.

    Raises ModelFormatError for a value that is not an id of the vocabulary.
    """
    token_id = metadata.get(key(name))
    if token_id is None or stored_id(metadata, name, n_tokens) is not None:
        return cast("int | None", token_id)
    raise ModelFormatError(
        f"{key(name)} is {token_id!r:.80}, expected an id below {n_tokens}",
        key=key(name),
        got=token_id,
        want=n_tokens,
    )


def roles(
    metadata: Mapping[str, object], vocab: Vocab, *, add_bos: bool = False, add_eos: bool = False
) -> Roles:
    """The roles of the tokens. `add_bos`, `add_eos`: defaults of the kind, for files without the flag.

    Raises ModelFormatError.
    """
    bos_id, before = framing(metadata, "bos", len(vocab), default=add_bos)
    eos_id, after = framing(metadata, "eos", len(vocab), default=add_eos)
    return Roles(bos_id=bos_id, eos_id=eos_id, eos_ids=eos_ids(metadata, vocab), frame=Frame(before, after))


def framing(
    metadata: Mapping[str, object], role: str, n_tokens: int, *, default: bool
) -> tuple[int | None, tuple[int, ...]]:
    """The id of "bos" or "eos", and the ids that it adds to every text. Raises ModelFormatError."""
    token_id = special_id(metadata, f"{role}_token_id", n_tokens)
    adds = metadata.get(key(f"add_{role}_token"), default)
    if isinstance(adds, bool) and (token_id is not None or not adds):
        return token_id, (token_id,) if adds and token_id is not None else ()
    raise ModelFormatError(
        f"{key(f'add_{role}_token')} is {adds!r:.80} with {key(f'{role}_token_id')} {token_id}; "
        "expected a bool, and an id if it is true",
        key=key(f"add_{role}_token"),
    )


def eos_ids(metadata: Mapping[str, object], vocab: Vocab) -> frozenset[int]:
    """Ids that end a turn: by a key of the file, or by the text of the token."""
    named = {special_id(metadata, name, len(vocab)) for name in END_KEYS} - {None}
    return frozenset(cast("set[int]", named)) | known_ends(vocab)


def known_ends(vocab: Vocab) -> frozenset[int]:
    """Ids of the control tokens whose text is in ENDS."""
    known = {t: i for t, i in vocab.specials.ids.items() if t in ENDS and vocab.types[i] == CONTROL}
    if "<|return|>" in known and "<|call|>" in known:
        known.pop("<|end|>", None)  # gpt-oss: closes a message, not the turn
    return frozenset(known.values())
