"""A tokenizer.json as a Pipeline that gives the ids which the `tokenizers` package gives.

Truncation and padding are left aside: they belong to batches for training, and transformers sets its own.
What differs from `tokenizers`, on purpose:
- text that is not trusted never becomes a steering token. There a model's own vocabulary may make one of text
  that spells it; here that vocabulary leaves steering tokens out. Tokens of steering.py's rules steer
  even if the file calls them ordinary, as in GGUF files made from it.
- a character for which the vocabulary has neither a token nor one for unknown text is an error, not dropped.
- bytes that are no UTF-8 decode to one U+FFFD a broken character, not one a byte, so that a stream can agree.
- added tokens of byte-level vocabularies are text, not spelled in the byte alphabet.
- BPEDecoder's space after the last word stays, and a text that opens with a piece such as ##ing shows it
  without its marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.decoders import read_decoder
from camelid.text.tokenizers.hf.models import EncodeWord, read_model
from camelid.text.tokenizers.hf.normalizers import read_normalizer
from camelid.text.tokenizers.hf.pretokenizers import read_pre_tokenizer, spelled
from camelid.text.tokenizers.hf.processors import TokensAround, read_processor
from camelid.text.tokenizers.hf.roles import Settings, named_tokens, read_settings, role_ids, steered
from camelid.text.tokenizers.hf.values import Json, mapping, shown, typed
from camelid.text.tokenizers.hf.vocabulary import MAX_VOCAB, Vocabulary, size_of, vocabulary
from camelid.text.tokenizers.metadata import known_ends
from camelid.text.tokenizers.pipeline import Frame, Pipeline, Roles
from camelid.text.tokenizers.specials import Named, Specials
from camelid.text.tokenizers.vocab import CONTROL, NORMAL, UNUSED, USER_DEFINED, Vocab

EMPTY: Mapping[str, object] = {}
NO_TEMPLATES: Mapping[str, str] = {}


def tokenizer_from_json(
    tokenizer: Json,
    tokenizer_config: Json = EMPTY,
    special_tokens: Json = EMPTY,
    config: Json = EMPTY,
    generation: Json = EMPTY,
    *,
    chat_templates: Mapping[str, str] = NO_TEMPLATES,
    vocab_size: int | None = None,
) -> Pipeline:
    """The tokenizer that the parsed files describe; all but the first may be empty.

    `chat_templates`: sources by name; the tokens that they write steer.

    Ids up to `vocab_size` (left out: up to the last token) that have no token stand for nothing. Raises
    ModelFormatError for files that contradict themselves or each other, UnsupportedModelError, by name, for
    a step that has no row. Time and memory are linear in the files.
    """
    tokenizer = mapping(tokenizer, "tokenizer.json")
    settings = read_settings(tokenizer_config, special_tokens, config, generation)
    model = mapping(tokenizer.get("model"), "model")
    size = checked_size(size_of(tokenizer, model, settings.tokenizer) if vocab_size is None else vocab_size)
    found = vocabulary(tokenizer, model, settings.tokenizer, size)
    around = read_processor(tokenizer)
    found = steered(found, settings, (*around.before, *around.after), chat_templates.values())
    types = token_types(found, settings)
    normalize = read_normalizer(tokenizer)
    piece, opening = read_decoder(tokenizer)
    specials = Specials(named(found, types), normalize)
    vocab = Vocab(["" if token is None else token for token in found.tokens], types, piece, specials)
    pre = read_pre_tokenizer(tokenizer)
    encode_word = read_model(model, found.ids, vocab.text_ids())
    return Pipeline(
        vocab,
        partial(_spelled_first, encode_word) if pre.spells_bytes else encode_word,
        roles=roles(around, settings, found, vocab),
        prepare=pre.prepare,
        split=pre.split,
        opening=opening,
    )


def _spelled_first(encode_word: EncodeWord, word: str) -> Sequence[int]:
    return encode_word(spelled(word))


def checked_size(vocab_size: int) -> int:
    """`vocab_size`, or ModelFormatError if it cannot be one."""
    if 0 < typed(vocab_size, int, "vocab_size") <= MAX_VOCAB:
        return vocab_size
    raise ModelFormatError(
        f"tokenizer: vocab_size is {shown(vocab_size)}, want 1 to {MAX_VOCAB}", key="vocab_size"
    )


def token_types(found: Vocabulary, settings: Settings) -> list[int]:
    """The type of every id. Tokens that tokenizer_config.json names as special steer too.

    A single character, such as "!" given to padding, is text all the same: vocabularies spell text with it.
    """
    steering = {name for name in named_tokens(settings) if len(name) > 1} | found.steering
    steering |= {one.content for one in found.added.values() if one.steers and len(one.content) > 1}

    def kind(token_id: int, token: str | None) -> int:
        if token is None:
            return UNUSED
        if token in steering:  # by name: Unigram's vocabulary may have a token twice
            return CONTROL
        added = found.added.get(token_id)
        return NORMAL if added is None or added.steers else USER_DEFINED

    return [kind(token_id, token) for token_id, token in enumerate(found.tokens)]


def named(found: Vocabulary, types: list[int]) -> Iterator[Named]:
    """The tokens that text may name; special ones first, which counts where normalising makes two alike."""
    order = sorted(found.added.items(), key=lambda item: not item[1].special)
    for token_id, one in order:
        steers = one.steers or types[token_id] == CONTROL
        yield Named(one.content, token_id, steers, one.lstrip, one.rstrip, one.single_word, one.normalized)
    known = {one.content for one in found.added.values()}
    for token_id, token in enumerate(found.tokens):
        if token is not None and types[token_id] == CONTROL and token not in known:
            yield Named(token, token_id, steering=True)


def roles(around: TokensAround, settings: Settings, found: Vocabulary, vocab: Vocab) -> Roles:
    """Which tokens open and end texts, and what goes around them."""
    before, after = around.ids(found.ids)
    bos_ids = [*role_ids(settings, found, "bos"), *before[:1]]
    eos_ids = [*role_ids(settings, found, "eos"), *after[-1:]]
    return Roles(
        bos_id=next(iter(bos_ids), None),
        eos_id=next(iter(eos_ids), None),
        eos_ids=frozenset(eos_ids) | known_ends(vocab),
        frame=Frame(before, after),
    )
