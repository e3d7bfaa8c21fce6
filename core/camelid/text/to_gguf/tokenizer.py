"""A Hugging Face tokenizer as GGUF metadata, so that one reader serves both.

Types, ids and flags follow what converters write (the gguf package's vocab.py), with these differences:
where names, flags and the post-processor disagree about BOS and EOS the post-processor counts, because it is
what encodes; scores of SentencePiece-style vocabularies are -rank of the merges, not -1000 for all; a token
that text/tokenizers/steering.py makes steer is of type CONTROL.
What GGUF cannot say is refused, or told as a loss (hf_losses.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from camelid.errors import UnsupportedModelError
from camelid.text.to_gguf.bpe import bpe_words
from camelid.text.to_gguf.losses import WAY_OUT, Published, Words, cannot_say
from camelid.text.to_gguf.unigram import unigram_words
from camelid.text.to_gguf.wordpiece import word_piece_words
from camelid.text.tokenizers.hf.models import kind_of
from camelid.text.tokenizers.hf.processors import read_processor
from camelid.text.tokenizers.hf.roles import Settings, read_settings, role_ids, steered
from camelid.text.tokenizers.hf.tokenizer import checked_size
from camelid.text.tokenizers.hf.values import Json, mapping, unicode
from camelid.text.tokenizers.hf.vocabulary import Vocabulary, vocabulary
from camelid.text.tokenizers.steering import ENDS

Value: TypeAlias = str | int | bool | list[str] | list[int] | list[float]

WRITERS: Mapping[str, Callable[[Published], Words]] = {
    "BPE": bpe_words,
    "Unigram": unigram_words,
    "WordPiece": word_piece_words,
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
    "seperator_token_id": "uint32",  # as GGUF spells it
    "mask_token_id": "uint32",
    "add_bos_token": "bool",
    "add_eos_token": "bool",
    "add_space_prefix": "bool",
    "remove_extra_whitespaces": "bool",
    "precompiled_charsmap": "array[uint8]",
    "normalizer.lowercase": "bool",
    "normalizer.strip_accents": "bool",
}


@dataclass(frozen=True, slots=True)
class TokenizerMetadata:
    """GGUF metadata and the stored type of every key, as `Gguf.metadata` and `Gguf.kinds` have them.

    `losses`: what GGUF cannot say, one sentence each.
    """

    metadata: dict[str, Value]
    kinds: dict[str, str]
    losses: tuple[str, ...] = ()


def tokenizer_metadata(
    tokenizer: Json,
    tokenizer_config: Json,
    special_tokens: Json,
    config: Json,
    generation: Json,
    *,
    chat_templates: Mapping[str, str],
    vocab_size: int,
) -> TokenizerMetadata:
    """The tokenizer and the chat templates as GGUF has them.

    The mappings are tokenizer.json, tokenizer_config.json, special_tokens_map.json, config.json and
    generation_config.json, empty where a model has none. Ids up to `vocab_size` without a token become unused
    [PAD…] tokens. "llama" metadata has `merges` only where scores alone would not tell them; they spell a
    space as ▁. Raises ModelFormatError for files that contradict themselves or each other,
    UnsupportedModelError for tokenizers that GGUF, or Camelid, has no words for. Time and memory are linear
    in the files.
    """
    settings = read_settings(tokenizer_config, special_tokens, config, generation)
    write = _writer(tokenizer)
    published = _published(tokenizer, settings, vocab_size, chat_templates)
    words = write(published)
    return _words(_special_facts(published) | words.facts, chat_templates, tuple(words.losses))


def chat_metadata(
    tokenizer: Json,
    tokenizer_config: Json,
    special_tokens: Json,
    config: Json,
    generation: Json,
    *,
    chat_templates: Mapping[str, str],
    vocab_size: int,
) -> TokenizerMetadata:
    """What chats need of a tokenizer that GGUF has no words for: tokens, ids and templates.

    Arguments and errors as of `tokenizer_metadata`.
    """
    settings = read_settings(tokenizer_config, special_tokens, config, generation)
    vocab = _published(tokenizer, settings, vocab_size, {}).vocab
    facts: dict[str, object] = {"tokens": ["" if token is None else token for token in vocab.tokens]}
    for role in ("bos", "eos"):
        facts[f"{role}_token_id"] = next(iter(role_ids(settings, vocab, role)), None)
    return _words(facts, chat_templates, ())


def _words(
    facts: Mapping[str, object], templates: Mapping[str, str], lost: tuple[str, ...]
) -> TokenizerMetadata:
    metadata = {f"tokenizer.ggml.{key}": facts[key] for key in KINDS if facts.get(key) is not None}
    kinds = {f"tokenizer.ggml.{key}": KINDS[key] for key in KINDS if facts.get(key) is not None}
    for name, template in templates.items():
        key = "tokenizer.chat_template" + ("" if name == DEFAULT else f".{name}")
        metadata[key], kinds[key] = unicode(template, "chat_template"), "string"
    if others := [name for name in templates if name != DEFAULT]:
        metadata["tokenizer.chat_templates"], kinds["tokenizer.chat_templates"] = others, "array[string]"
    return TokenizerMetadata(cast("dict[str, Value]", metadata), kinds, lost)


def _published(
    tokenizer: Json, settings: Settings, vocab_size: int, templates: Mapping[str, str]
) -> Published:
    tokenizer = mapping(tokenizer, "tokenizer.json")
    model = mapping(tokenizer.get("model"), "model")
    vocab = vocabulary(tokenizer, model, settings.tokenizer, checked_size(vocab_size))
    around = read_processor(tokenizer)
    frame = (*around.before, *around.after)
    return Published(tokenizer, model, settings, steered(vocab, settings, frame, templates.values()))


def _writer(tokenizer: Json) -> Callable[[Published], Words]:
    kind = kind_of(mapping(mapping(tokenizer, "tokenizer.json").get("model"), "model"))
    if kind in WRITERS:
        return WRITERS[kind]
    raise UnsupportedModelError(
        f"tokenizers of kind {kind[:40]!r} cannot be written as GGUF, only {', '.join(WRITERS)}; {WAY_OUT}",
        kind="tokenizer",
        name=kind,
        known=list(WRITERS),
    )


def _special_facts(of: Published) -> dict[str, object]:
    """Ids of the special tokens, and whether texts are framed by them."""
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
    }


def _frame(of: Published) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """At most one token on each side. Raises UnsupportedModelError for more."""
    before, after = read_processor(of.tokenizer).ids(of.vocab.ids)
    if len(before) > 1 or len(after) > 1:
        cannot_say("post-processor", "is not [BOS] text [EOS]", {})
    return before, after


def _ends(ids: list[int], vocab: Vocabulary) -> dict[str, int]:
    """EOS first; GGUF has room for two more. Tokens that readers know by name need none."""
    others = sorted(ids[1:], key=lambda i: vocab.tokens[i] in ENDS)
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    dropped = [i for i in others[2:] if vocab.tokens[i] not in ENDS]
    if dropped:
        raise UnsupportedModelError(
            f"tokenizer: eos_token_id lists {len(ids)} ids, but GGUF has room for {len(keys)}; "
            f"{dropped[0]} would be left out; {WAY_OUT}",
            kind="tokenizer",
            name="eos_token_id",
        )
    return dict(zip(keys, [*ids[:1], *others], strict=False))
