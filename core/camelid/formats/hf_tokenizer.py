"""A Hugging Face tokenizer as GGUF metadata, so that one reader serves both.

Types, ids and flags follow what converters write (the gguf package's vocab.py), with these differences:
where names and the post-processor disagree about BOS and EOS the post-processor counts, because it is what
encodes; scores of SentencePiece-style vocabularies are -rank of the merges, not -1000 for all.
GGUF cannot say that a token takes the spaces beside it along (`lstrip`, `rstrip`, `single_word`), nor that no
space goes before a text that begins with one (Metaspace): left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.hf_splitting import (
    SPACE,
    Json,
    Splitting,
    array,
    mapping,
    read_splitting,
    refuse,
    steps,
    typed,
)
from camelid.formats.hf_vocab import (
    Vocabulary,
    scores,
    shown,
    token_types,
    told_by_scores,
    unicode,
    vocabulary,
)
from camelid.text.metadata import EOS_NAMES
from camelid.text.vocab import USER_DEFINED

Value: TypeAlias = str | int | bool | list[str] | list[int] | list[float]

MAX_VOCAB = 1 << 22  # sixteen times the largest known; every id costs memory, also without a token
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
class Settings:
    """The small files around tokenizer.json, as they are."""

    tokenizer: Json
    special_tokens: Json
    config: Json
    generation: Json


@dataclass(frozen=True, slots=True)
class Frame:
    """What the post-processor puts around a text."""

    bos: str | None = None
    eos: str | None = None


def tokenizer_metadata(
    tokenizer: Json,
    tokenizer_config: Json,
    special_tokens: Json,
    config: Json,
    generation: Json,
    *,
    chat_template: str | None,
    vocab_size: int,
) -> tuple[dict[str, Value], dict[str, str]]:
    """GGUF metadata, and the stored type of every key, as `Gguf.metadata` and `Gguf.kinds` have them.

    The mappings are tokenizer.json, tokenizer_config.json, special_tokens_map.json, config.json and
    generation_config.json, empty where a model has none; `chat_template` is chat_template.jinja, which counts
    before the one in tokenizer_config. Ids up to `vocab_size` without a token become unused [PAD…] tokens.
    "llama" metadata has `merges` only where scores alone would not tell them; they spell a space as ▁.
    Raises ModelFormatError for files that contradict themselves or each other, UnsupportedModelError for
    tokenizers that GGUF, or Camelid, has no words for. Time and memory are linear in the files.
    """
    settings = Settings(
        mapping(tokenizer_config, "tokenizer_config.json"),
        mapping(special_tokens, "special_tokens_map.json"),
        mapping(config, "config.json"),
        mapping(generation, "generation_config.json"),
    )
    tokenizer = mapping(tokenizer, "tokenizer.json")
    model = _bpe_model(tokenizer)
    splitting = read_splitting(tokenizer, model)
    vocab = vocabulary(tokenizer, model, tokenizer_config, _checked_size(vocab_size))
    facts = _facts(splitting, vocab, _named(settings, model), model)
    facts |= _special_facts(settings, vocab, _frame(tokenizer), model)
    metadata = {f"tokenizer.ggml.{key}": facts[key] for key in KINDS if facts.get(key) is not None}
    kinds = {f"tokenizer.ggml.{key}": KINDS[key] for key in KINDS if facts.get(key) is not None}
    if (template := _template(tokenizer_config, chat_template)) is not None:
        metadata["tokenizer.chat_template"], kinds["tokenizer.chat_template"] = template, "string"
    return cast("dict[str, Value]", metadata), kinds


def _checked_size(vocab_size: int) -> int:
    if 0 < typed(vocab_size, int, "vocab_size") <= MAX_VOCAB:
        return vocab_size
    raise ModelFormatError(
        f"tokenizer: vocab_size is {shown(vocab_size)}, want 1 to {MAX_VOCAB}", key="vocab_size"
    )


def _bpe_model(tokenizer: Json) -> Json:
    model = mapping(tokenizer.get("model"), "model")
    guessed = "BPE" if "merges" in model else "WordPiece or WordLevel"  # old files do not say
    kind = typed(model.get("type", guessed), str, "model.type")
    if kind != "BPE":
        raise UnsupportedModelError(
            f"tokenizers of kind {kind[:40]!r} are not supported, only BPE; give token ids instead of text",
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
    scored = splitting.model == "llama"
    types = token_types(vocab, named, model.get("unk_token") if scored else None, scored)
    tokens = [f"[PAD{i}]" if token is None else token for i, token in enumerate(vocab.tokens)]
    if scored:  # readers compare these with the text before they write ▁ for its spaces
        pairs = zip(tokens, types, strict=True)
        tokens = [token.replace(SPACE, " ") if kind == USER_DEFINED else token for token, kind in pairs]
    told = scored and told_by_scores(vocab, types)
    return {
        "model": splitting.model,
        "pre": splitting.pre,
        "tokens": tokens,
        "token_type": types,
        "scores": scores(vocab, types) if scored else None,
        "merges": None if told else [f"{left} {right}" for left, right in vocab.merges],
        "add_space_prefix": splitting.add_space_prefix,
    }


def _named(settings: Settings, model: Json) -> list[str]:
    """Every token that the small files name as special."""
    roles = [_name(settings, role) for role in ("bos", "eos", "pad", "unk")]
    return [name for name in (*roles, model.get("unk_token")) if isinstance(name, str)]


def _name(settings: Settings, role: str) -> str | None:
    """The token of a role, such as "bos": a string, or an added token."""
    for file in (settings.tokenizer, settings.special_tokens):
        value = file.get(f"{role}_token")
        if isinstance(value, Mapping):
            value = cast(Json, value).get("content")
        if value is not None:
            return typed(value, str, f"{role}_token")
    return None


def _special_facts(settings: Settings, vocab: Vocabulary, frame: Frame, model: Json) -> dict[str, object]:
    """Ids of the special tokens, and whether texts are framed by them."""
    bos = _frame_id(vocab, frame.bos)
    eos = _frame_id(vocab, frame.eos)
    ends = [*([] if eos is None else [eos]), *_role_ids(settings, vocab, "eos")]
    unknown = _role_ids(settings, vocab, "unk")
    if not unknown and isinstance(token := model.get("unk_token"), str):
        unknown = [vocab.ids[token]] if token in vocab.ids else []
    firsts = {"bos": [bos] if bos is not None else _role_ids(settings, vocab, "bos")[:1], "eos": ends[:1]}
    return {
        "bos_token_id": next(iter(firsts["bos"]), None),
        **_ends(list(dict.fromkeys(ends)), vocab),
        "unknown_token_id": next(iter(unknown), None),
        "padding_token_id": next(iter(_role_ids(settings, vocab, "pad")), None),
        "add_bos_token": bool(firsts["bos"]) and _adds(settings, "bos", bos is not None),
        "add_eos_token": bool(firsts["eos"]) and _adds(settings, "eos", eos is not None),
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


def _adds(settings: Settings, role: str, framed: bool) -> bool:
    key = f"add_{role}_token"
    value = settings.tokenizer.get(key)
    return framed if value is None else typed(value, bool, key)


def _frame_id(vocab: Vocabulary, name: str | None) -> int | None:
    if name is None or name in vocab.ids:
        return None if name is None else vocab.ids[name]
    raise ModelFormatError(
        f"tokenizer: the post-processor adds {shown(name)}, which is not in the vocabulary", token=name
    )


def _role_ids(settings: Settings, vocab: Vocabulary, role: str) -> list[int]:
    """Ids of a role: by the token's name, then from generation_config.json, else from config.json."""
    name = _name(settings, role)
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


def _frame(tokenizer: Json) -> Frame:
    bos: str | None = None
    eos: str | None = None
    for kind, step in steps(tokenizer, "post_processor", "processors"):
        if kind in ("RobertaProcessing", "BertProcessing"):
            bos, eos = _first_text(step.get("cls"), "cls"), _first_text(step.get("sep"), "sep")
        elif kind == "TemplateProcessing":
            bos, eos = _template_frame(array(step.get("single"), "post_processor.single"))
        elif kind != "ByteLevel":
            refuse("post-processor", f"is of kind {kind[:40]!r}, which GGUF cannot say", {})
    return Frame(bos, eos)


def _first_text(value: object, key: str) -> str:
    pair = array(value, f"post_processor.{key}")
    return typed(pair[0] if pair else None, str, f"post_processor.{key}[0]")


def _template_frame(pieces: list[object]) -> tuple[str | None, str | None]:
    """The special tokens before and after the text, at most one each."""
    around: tuple[list[str], list[str]] = ([], [])
    seen = 0
    for piece in pieces:
        item = mapping(piece, "post_processor.single")
        if "SpecialToken" in item:
            token = mapping(item["SpecialToken"], "post_processor.single")
            around[min(seen, 1)].append(typed(token.get("id"), str, "SpecialToken.id"))
        else:
            seen += 1
    if seen != 1 or any(len(side) > 1 for side in around):
        refuse("post-processor", "is not [BOS] text [EOS], which is all that GGUF can say", {})
    before, after = around
    return next(iter(before), None), next(iter(after), None)


def _template(tokenizer_config: Json, given: str | None) -> str | None:
    """The chat template; of several named ones that called "default"."""
    value = tokenizer_config.get("chat_template") if given is None else given
    if isinstance(value, list):
        named = [mapping(item, "chat_template") for item in cast("list[object]", value)]
        value = next((item.get("template") for item in named if item.get("name") == "default"), None)
    return None if value is None else unicode(typed(value, str, "chat_template"))
