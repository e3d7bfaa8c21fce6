"""A tokenizer.json as a Pipeline with the ids of the `tokenizers` package.

Truncation and padding are ignored: they serve training batches, and transformers sets its own.
Intended differences from `tokenizers`:
- Untrusted text never becomes a control token. In `tokenizers` the model's own vocabulary may make a control
  token from text that spells it; here the model's vocabulary leaves control tokens out. The rules of
  control_tokens.py apply even if the file states an ordinary token, as in GGUF files made from it.
- A character without a token is an error, not dropped, if the vocabulary has no unknown token either.
- Invalid UTF-8 decodes to one U+FFFD per broken character, not per byte, so that streaming gives equal text.
- Added tokens of byte-level vocabularies are text, not spelled in the byte alphabet.
- BPEDecoder's space after the last word stays. A piece such as ##ing opens a decoded text without its marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.decoders import read_decoder
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.models import EncodeWord, read_model
from camelid.text.tokenizers.hf.normalizers import read_normalizer
from camelid.text.tokenizers.hf.pretokenizers import read_pre_tokenizer, spelled
from camelid.text.tokenizers.hf.processors import TokensAround, read_processor
from camelid.text.tokenizers.hf.roles import (
    Settings,
    named_tokens,
    read_settings,
    role_ids,
    with_control_tokens,
)
from camelid.text.tokenizers.hf.values import mapping, shown, typed
from camelid.text.tokenizers.hf.vocabulary import MAX_VOCAB, Vocabulary, size_of, vocabulary
from camelid.text.tokenizers.metadata import known_ends
from camelid.text.tokenizers.pipeline import Frame, Pipeline, Roles
from camelid.text.tokenizers.specials import Named, Specials
from camelid.text.tokenizers.vocab import CONTROL, NORMAL, UNUSED, USER_DEFINED, Vocab


def tokenizer_from_json(files: TokenizerFiles, vocab_size: int | None = None) -> Pipeline:
    """Builds the tokenizer of parsed files; the markers that chat templates write are control tokens.

    `vocab_size`: by default the highest id plus one; ids without a token have no bytes. Raises
    ModelFormatError for inconsistent files, and UnsupportedModelError for a step without a row. Time and
    memory are linear in the files.
    """
    tokenizer = mapping(files.tokenizer, "tokenizer.json")
    settings = read_settings(files)
    model = mapping(tokenizer.get("model"), "model")
    size = checked_size(size_of(tokenizer, model, settings.tokenizer) if vocab_size is None else vocab_size)
    around = read_processor(tokenizer)
    frame = (*around.before, *around.after)
    table = vocabulary(tokenizer, model, settings.tokenizer, size)
    table = with_control_tokens(table, settings, frame, files.chat_templates.values())
    types = token_types(table, settings)
    normalize = read_normalizer(tokenizer)
    piece, opening = read_decoder(tokenizer)
    specials = Specials(named(table, types), normalize)
    vocab = Vocab(["" if token is None else token for token in table.tokens], types, piece, specials)
    pre = read_pre_tokenizer(tokenizer)
    encode_word = read_model(model, table.ids, vocab.text_ids())
    return Pipeline(
        vocab,
        partial(_spelled_first, encode_word) if pre.spells_bytes else encode_word,
        roles=roles(around, settings, table, vocab),
        prepare=pre.prepare,
        split=pre.split,
        opening=opening,
    )


def _spelled_first(encode_word: EncodeWord, word: str) -> Sequence[int]:
    return encode_word(spelled(word))


def checked_size(vocab_size: int) -> int:
    """`vocab_size` itself. Raises ModelFormatError unless it is 1 to MAX_VOCAB."""
    if 0 < typed(vocab_size, int, "vocab_size") <= MAX_VOCAB:
        return vocab_size
    raise ModelFormatError(
        f"tokenizer: vocab_size is {shown(vocab_size)}, expected 1 to {MAX_VOCAB}", key="vocab_size"
    )


def token_types(table: Vocabulary, settings: Settings) -> list[int]:
    """Types by id. The special tokens of tokenizer_config.json are control tokens too.

    A token of one character is text, even as padding, such as "!": vocabularies spell text with it.
    """
    control = {name for name in named_tokens(settings) if len(name) > 1} | table.control_texts
    control |= {t.content for t in table.added.values() if t.is_control and len(t.content) > 1}

    def kind(token_id: int, token: str | None) -> int:
        if token is None:
            return UNUSED
        if token in control:  # by text, since a token may occur twice in Unigram's vocabulary
            return CONTROL
        added = table.added.get(token_id)
        return NORMAL if added is None or added.is_control else USER_DEFINED

    return [kind(token_id, token) for token_id, token in enumerate(table.tokens)]


def named(table: Vocabulary, types: list[int]) -> Iterator[Named]:
    """Yields the tokens that text may name, special tokens first: they win if normalized texts are equal."""
    order = sorted(table.added.items(), key=lambda item: not item[1].special)
    for token_id, added in order:
        is_control = added.is_control or types[token_id] == CONTROL
        sides = added.lstrip, added.rstrip, added.single_word
        yield Named(added.content, token_id, is_control, *sides, added.normalized)
    known = {added.content for added in table.added.values()}
    for token_id, token in enumerate(table.tokens):
        if token is not None and types[token_id] == CONTROL and token not in known:
            yield Named(token, token_id, is_control=True)


def roles(around: TokensAround, settings: Settings, table: Vocabulary, vocab: Vocab) -> Roles:
    """Ids of the tokens that open and end texts, and of the frame around every text."""
    before, after = around.ids(table.ids)
    bos_ids = [*role_ids(settings, table, "bos"), *before[:1]]
    eos_ids = [*role_ids(settings, table, "eos"), *after[-1:]]
    return Roles(
        bos_id=next(iter(bos_ids), None),
        eos_id=next(iter(eos_ids), None),
        eos_ids=frozenset(eos_ids) | known_ends(vocab),
        frame=Frame(before, after),
    )
