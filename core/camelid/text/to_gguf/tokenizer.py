"""Conversion of a Hugging Face tokenizer to GGUF metadata.

Types, ids and flags follow converters (the gguf package's vocab.py), with three differences. Where names,
flags and the post-processor disagree about BOS and EOS, the post-processor counts, since it does the
encoding. The scores of SentencePiece-style vocabularies are -rank of the merges instead of -1000 for all. A
token that the rules of tokenizers/control_tokens.py match is of type CONTROL. Information that GGUF cannot
express is refused, or listed as a loss (losses.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from camelid.errors import UnsupportedModelError
from camelid.text.to_gguf.bpe import bpe_fields
from camelid.text.to_gguf.losses import WAY_OUT, GgufFields, Published, not_in_gguf
from camelid.text.to_gguf.unigram import unigram_fields
from camelid.text.to_gguf.wordpiece import wordpiece_fields
from camelid.text.tokenizers.control_tokens import ENDS
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.models import kind_of
from camelid.text.tokenizers.hf.processors import doubles_separator, read_processor
from camelid.text.tokenizers.hf.roles import read_settings, role_ids, with_control_tokens
from camelid.text.tokenizers.hf.tokenizer import checked_size
from camelid.text.tokenizers.hf.values import Json, mapping, unicode
from camelid.text.tokenizers.hf.vocabulary import Vocabulary, vocabulary

Value: TypeAlias = str | int | bool | list[str] | list[int] | list[float]

WRITERS: Mapping[str, Callable[[Published], GgufFields]] = {
    "BPE": bpe_fields,
    "Unigram": unigram_fields,
    "WordPiece": wordpiece_fields,
}
DEFAULT = "default"  # the chat template that has no name in GGUF
# GGUF key after tokenizer.ggml. -> its stored type.
KINDS = {
    "model": "string",
    "pre": "string",
    "tokens": "array[string]",
    "token_type": "array[int32]",
    "scores": "array[float32]",
    "merges": "array[string]",
    "bos_token_id": "uint32",
    "eos_token_id": "uint32",
    "eot_token_id": "uint32",
    "eom_token_id": "uint32",
    "unknown_token_id": "uint32",
    "padding_token_id": "uint32",
    "cls_token_id": "uint32",
    "seperator_token_id": "uint32",  # GGUF's spelling
    "mask_token_id": "uint32",
    "add_bos_token": "bool",
    "add_eos_token": "bool",
    "add_sep_token": "bool",
    "add_space_prefix": "bool",
    "remove_extra_whitespaces": "bool",
    "precompiled_charsmap": "array[uint8]",
    "normalizer.lowercase": "bool",
    "normalizer.strip_accents": "bool",
}


@dataclass(frozen=True, slots=True)
class TokenizerMetadata:
    """GGUF metadata with the stored type of every key, as in `Gguf.metadata` and `Gguf.kinds`.

    `losses`: the information that GGUF cannot express, one sentence each.
    """

    metadata: dict[str, Value]
    kinds: dict[str, str]
    losses: tuple[str, ...] = ()


def tokenizer_metadata(files: TokenizerFiles, vocab_size: int) -> TokenizerMetadata:
    """Converts a tokenizer and its chat templates to GGUF metadata.

    Ids up to `vocab_size` without a token become unused [PAD…] tokens. Metadata of kind "llama" has `merges`
    only if the scores do not imply them; merges spell a space as ▁. Raises ModelFormatError for inconsistent
    files, and UnsupportedModelError for tokenizers that GGUF or Camelid does not support. Time and memory are
    linear in the files.
    """
    write = _writer(files.tokenizer)
    published = _published(files, vocab_size)
    converted = write(published)
    fields = _special_fields(published) | converted.fields
    return _metadata(fields, files.chat_templates, tuple(converted.losses))


def chat_metadata(files: TokenizerFiles, vocab_size: int) -> TokenizerMetadata:
    """The metadata that chats need of a tokenizer that GGUF does not support: tokens, ids and templates.

    Arguments and errors as in `tokenizer_metadata`.
    """
    published = _published(replace(files, chat_templates={}), vocab_size)
    settings, vocab = published.settings, published.vocab
    fields: dict[str, object] = {"tokens": ["" if token is None else token for token in vocab.tokens]}
    for role in ("bos", "eos"):
        fields[f"{role}_token_id"] = next(iter(role_ids(settings, vocab, role)), None)
    return _metadata(fields, files.chat_templates, ())


def _metadata(
    fields: Mapping[str, object], templates: Mapping[str, str], lost: tuple[str, ...]
) -> TokenizerMetadata:
    metadata = {f"tokenizer.ggml.{key}": fields[key] for key in KINDS if fields.get(key) is not None}
    kinds = {f"tokenizer.ggml.{key}": KINDS[key] for key in KINDS if fields.get(key) is not None}
    for name, template in templates.items():
        key = "tokenizer.chat_template" + ("" if name == DEFAULT else f".{name}")
        metadata[key], kinds[key] = unicode(template, "chat_template"), "string"
    if others := [name for name in templates if name != DEFAULT]:
        metadata["tokenizer.chat_templates"], kinds["tokenizer.chat_templates"] = others, "array[string]"
    return TokenizerMetadata(cast("dict[str, Value]", metadata), kinds, lost)


def _published(files: TokenizerFiles, vocab_size: int) -> Published:
    settings, tokenizer = read_settings(files), mapping(files.tokenizer, "tokenizer.json")
    model = mapping(tokenizer.get("model"), "model")
    vocab = vocabulary(tokenizer, model, settings.tokenizer, checked_size(vocab_size))
    around = read_processor(tokenizer)
    frame = (*around.before, *around.after)
    vocab = with_control_tokens(vocab, settings, frame, files.chat_templates.values())
    return Published(tokenizer, model, settings, vocab)


def _writer(tokenizer: Json) -> Callable[[Published], GgufFields]:
    kind = kind_of(mapping(mapping(tokenizer, "tokenizer.json").get("model"), "model"))
    if kind in WRITERS:
        return WRITERS[kind]
    raise UnsupportedModelError(
        f"tokenizers of kind {kind[:40]!r} cannot be written as GGUF, only {', '.join(WRITERS)}; {WAY_OUT}",
        kind="tokenizer",
        name=kind,
        known=list(WRITERS),
    )


def _special_fields(of: Published) -> dict[str, object]:
    """The ids of the special tokens, and the flags that put them around texts."""
    ids = {role: role_ids(of.settings, of.vocab, role) for role in ("bos", "eos", "unk", "pad")}
    before, after = _frame(of)
    unknown = of.model.get("unk_token")
    named = [of.vocab.ids[unknown]] if isinstance(unknown, str) and unknown in of.vocab.ids else []
    return {
        "bos_token_id": next(iter([*before, *ids["bos"]]), None),
        **_ends(list(dict.fromkeys([*after, *ids["eos"]])), of.vocab),
        "unknown_token_id": next(iter([*ids["unk"], *named]), None),
        "padding_token_id": next(iter(ids["pad"]), None),
        "add_bos_token": bool(before),
        "add_eos_token": bool(after),
        "add_sep_token": doubles_separator(of.tokenizer) or None,  # only pairs of texts read it
    }


def _frame(of: Published) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens before and after a text. Raises UnsupportedModelError for more than one on a side."""
    before, after = read_processor(of.tokenizer).ids(of.vocab.ids)
    if len(before) > 1 or len(after) > 1:
        not_in_gguf("post-processor", "is not [BOS] text [EOS]", {})
    return before, after


def _ends(ids: list[int], vocab: Vocabulary) -> dict[str, int]:
    """The ids that end a text: EOS and up to two more. Tokens that readers recognize by name need no key."""
    others = sorted(ids[1:], key=lambda i: vocab.tokens[i] in ENDS)
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    dropped = [i for i in others[2:] if vocab.tokens[i] not in ENDS]
    if dropped:
        raise UnsupportedModelError(
            f"tokenizer: eos_token_id lists {len(ids)} ids, but GGUF has room for {len(keys)}; "
            f"{dropped[0]} would be lost; {WAY_OUT}",
            kind="tokenizer",
            name="eos_token_id",
        )
    return dict(zip(keys, [*ids[:1], *others], strict=False))
