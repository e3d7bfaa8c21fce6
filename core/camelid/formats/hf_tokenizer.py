"""A Hugging Face tokenizer as GGUF metadata, so that one reader serves both.

Types, ids and flags follow what converters write (the gguf package's vocab.py), with these differences:
where names, flags and the post-processor disagree about BOS and EOS the post-processor counts, because it is
what encodes; scores of SentencePiece-style vocabularies are -rank of the merges, not -1000 for all.
What GGUF cannot say is refused, or told as a loss (hf_losses.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from camelid.errors import UnsupportedModelError
from camelid.formats.hf_losses import losses
from camelid.formats.hf_splitting import Splitting, read_splitting
from camelid.formats.hf_vocab import scores, spaceless, token_types, told_by_scores
from camelid.text.hf.models import kind_of
from camelid.text.hf.processors import Around, read_processor
from camelid.text.hf.roles import Settings, named_tokens, read_settings, role_ids
from camelid.text.hf.tokenizer import checked_size
from camelid.text.hf.values import SPACE, Json, mapping, refuse, unicode
from camelid.text.hf.vocabulary import Vocabulary, pairs, vocabulary
from camelid.text.metadata import EOS_NAMES
from camelid.text.vocab import USER_DEFINED

Value: TypeAlias = str | int | bool | list[str] | list[int] | list[float]

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
    "add_bos_token": "bool",
    "add_eos_token": "bool",
    "add_space_prefix": "bool",
}


@dataclass(frozen=True, slots=True)
class GgufWords:
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
) -> GgufWords:
    """The tokenizer and the chat templates as GGUF has them.

    The mappings are tokenizer.json, tokenizer_config.json, special_tokens_map.json, config.json and
    generation_config.json, empty where a model has none. Ids up to `vocab_size` without a token become unused
    [PAD…] tokens. "llama" metadata has `merges` only where scores alone would not tell them; they spell a
    space as ▁. Raises ModelFormatError for files that contradict themselves or each other,
    UnsupportedModelError for tokenizers that GGUF, or Camelid, has no words for. Time and memory are linear
    in the files.
    """
    settings = read_settings(tokenizer_config, special_tokens, config, generation)
    tokenizer = mapping(tokenizer, "tokenizer.json")
    model = _bpe_model(tokenizer)
    splitting = read_splitting(tokenizer, model)
    vocab = vocabulary(tokenizer, model, settings.tokenizer, checked_size(vocab_size))
    facts = _facts(splitting, vocab, _named(settings, model), model)
    facts |= _special_facts(settings, vocab, _frame(tokenizer), model)
    return _words(facts, chat_templates, tuple(losses(tokenizer, splitting, vocab, pairs(model, vocab.ids))))


def chat_metadata(
    tokenizer: Json,
    tokenizer_config: Json,
    special_tokens: Json,
    config: Json,
    generation: Json,
    *,
    chat_templates: Mapping[str, str],
    vocab_size: int,
) -> GgufWords:
    """What chats need of a tokenizer that GGUF has no words for: tokens, ids and templates.

    Arguments and errors as of `tokenizer_metadata`.
    """
    settings = read_settings(tokenizer_config, special_tokens, config, generation)
    model = mapping(mapping(tokenizer, "tokenizer.json").get("model"), "model")
    vocab = vocabulary(tokenizer, model, settings.tokenizer, checked_size(vocab_size))
    facts: dict[str, object] = {"tokens": ["" if token is None else token for token in vocab.tokens]}
    for role in ("bos", "eos"):
        facts[f"{role}_token_id"] = next(iter(role_ids(settings, vocab, role)), None)
    return _words(facts, chat_templates, ())


def _words(facts: Mapping[str, object], templates: Mapping[str, str], lost: tuple[str, ...]) -> GgufWords:
    metadata = {f"tokenizer.ggml.{key}": facts[key] for key in KINDS if facts.get(key) is not None}
    kinds = {f"tokenizer.ggml.{key}": KINDS[key] for key in KINDS if facts.get(key) is not None}
    for name, template in templates.items():
        key = "tokenizer.chat_template" + ("" if name == DEFAULT else f".{name}")
        metadata[key], kinds[key] = unicode(template, "chat_template"), "string"
    if others := [name for name in templates if name != DEFAULT]:
        metadata["tokenizer.chat_templates"], kinds["tokenizer.chat_templates"] = others, "array[string]"
    return GgufWords(cast("dict[str, Value]", metadata), kinds, lost)


def _bpe_model(tokenizer: Json) -> Json:
    model = mapping(tokenizer.get("model"), "model")
    kind = kind_of(model)
    if kind != "BPE":
        raise UnsupportedModelError(
            f"tokenizers of kind {kind[:40]!r} cannot be written as GGUF, only BPE; use the directory itself",
            kind="tokenizer",
            name=kind,
            known=["BPE"],
        )
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(key):
            refuse("model", f"uses {key}, which GGUF cannot say", model)
    return model


def _facts(splitting: Splitting, vocab: Vocabulary, named: Iterable[str], model: Json) -> dict[str, object]:
    """The vocabulary in GGUF's words."""
    if splitting.splits_words and any(SPACE in token[1:] for token in vocab.ids):
        refuse("pre-tokenizer", f"cuts words at {SPACE}, but there are tokens that reach over one", {})
    merges = spaceless(pairs(model, vocab.ids))
    scored = splitting.model == "llama"
    types = token_types(vocab, merges, named, model.get("unk_token") if scored else None, scored)
    tokens = [f"[PAD{i}]" if token is None else token for i, token in enumerate(vocab.tokens)]
    if scored:  # readers compare these with the text before they write ▁ for its spaces
        typed_tokens = zip(tokens, types, strict=True)
        tokens = [
            token.replace(SPACE, " ") if kind == USER_DEFINED else token for token, kind in typed_tokens
        ]
    told = scored and told_by_scores(vocab, merges, types)
    return {
        "model": splitting.model,
        "pre": splitting.pre,
        "tokens": tokens,
        "token_type": types,
        "scores": scores(vocab, merges, types) if scored else None,
        "merges": None if told else [f"{left} {right}" for left, right in merges],
        "add_space_prefix": splitting.add_space_prefix,
    }


def _named(settings: Settings, model: Json) -> list[str]:
    """Every token that the small files name as special."""
    named = [*named_tokens(settings), model.get("unk_token")]
    return [name for name in named if isinstance(name, str)]


def _special_facts(settings: Settings, vocab: Vocabulary, frame: Around, model: Json) -> dict[str, object]:
    """Ids of the special tokens, and whether texts are framed by them."""
    before, after = frame.ids(vocab.ids)
    ends = [*after, *role_ids(settings, vocab, "eos")]
    unknown = role_ids(settings, vocab, "unk")
    if not unknown and isinstance(token := model.get("unk_token"), str):
        unknown = [vocab.ids[token]] if token in vocab.ids else []
    return {
        "bos_token_id": next(iter([*before, *role_ids(settings, vocab, "bos")]), None),
        **_ends(list(dict.fromkeys(ends)), vocab),
        "unknown_token_id": next(iter(unknown), None),
        "padding_token_id": next(iter(role_ids(settings, vocab, "pad")), None),
        "add_bos_token": bool(before),
        "add_eos_token": bool(after),
    }


def _ends(ids: list[int], vocab: Vocabulary) -> dict[str, int]:
    """EOS first; GGUF has room for two more. Tokens that readers know by name need none."""
    others = sorted(ids[1:], key=lambda i: vocab.tokens[i] in EOS_NAMES)
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    dropped = [i for i in others[2:] if vocab.tokens[i] not in EOS_NAMES]
    if dropped:
        raise UnsupportedModelError(
            f"tokenizer: eos_token_id lists {len(ids)} ids, but GGUF has room for {len(keys)}; "
            f"{dropped[0]} would be left out",
            kind="tokenizer",
            name="eos_token_id",
        )
    return dict(zip(keys, [*ids[:1], *others], strict=False))


def _frame(tokenizer: Json) -> Around:
    """At most one token on each side. Raises UnsupportedModelError for more."""
    frame = read_processor(tokenizer)
    if len(frame.before) > 1 or len(frame.after) > 1:
        refuse("post-processor", "is not [BOS] text [EOS], which is all that GGUF can say", {})
    return frame
