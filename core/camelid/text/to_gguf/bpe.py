"""BPE of a tokenizer.json as GGUF's kind "gpt2" (byte-level) or "llama" (SentencePiece-style)."""

from __future__ import annotations

from camelid.text.to_gguf.losses import GgufFields, Published, losses_of_bpe, not_in_gguf
from camelid.text.to_gguf.splitting import Splitting, read_splitting
from camelid.text.to_gguf.vocab import (
    Merges,
    filled,
    scores,
    scores_imply_merges,
    spaceless,
    text_merges,
    token_types,
)
from camelid.text.tokenizers.hf.values import SPACE
from camelid.text.tokenizers.hf.vocabulary import pairs
from camelid.text.tokenizers.vocab import USER_DEFINED


def bpe_fields(of: Published) -> GgufFields:
    """The vocabulary, its merges or scores, and the pre-tokenizer.

    Raises UnsupportedModelError, ModelFormatError.
    """
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if of.model.get(key):
            not_in_gguf("model", f"uses {key}", of.model)
    splitting = read_splitting(of.tokenizer, of.model)
    if splitting.splits_words and any(SPACE in token[1:] for token in of.vocab.ids):
        not_in_gguf("pre-tokenizer", f"cuts words at {SPACE}, but some tokens have {SPACE} inside", {})
    merges = spaceless(pairs(of.model, of.vocab.ids))
    losses = losses_of_bpe(of, splitting.model, merges, bool(splitting.add_space_prefix))
    return GgufFields(_fields(of, splitting, merges), [*losses, *splitting.losses])


def _fields(of: Published, splitting: Splitting, merges: Merges) -> dict[str, object]:
    scored = splitting.model == "llama"
    types = token_types(of, merges, of.model.get("unk_token") if scored else None, scored)
    merges = text_merges(merges, of.vocab, types)
    implied = scored and scores_imply_merges(of.vocab, merges, types)
    return {
        "model": splitting.model,
        "pre": splitting.pre,
        "tokens": spaced(filled(of.vocab), types) if scored else filled(of.vocab),
        "token_type": types,
        "scores": scores(of.vocab, merges, types) if scored else None,
        "merges": None if implied else [f"{left} {right}" for left, right in merges],
        "add_space_prefix": splitting.add_space_prefix,
    }


def spaced(tokens: list[str], types: list[int]) -> list[str]:
    """The tokens as SentencePiece's kinds spell them.

    Readers match user-defined tokens before they replace spaces by ▁.
    """
    typed_tokens = zip(tokens, types, strict=True)
    return [token.replace(SPACE, " ") if kind == USER_DEFINED else token for token, kind in typed_tokens]
