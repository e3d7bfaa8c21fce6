"""BPE of a tokenizer.json in GGUF's words: kind "gpt2" (byte-level) or "llama" (SentencePiece's way)."""

from __future__ import annotations

from camelid.text.to_gguf.losses import Published, Words, cannot_say, losses_of_bpe
from camelid.text.to_gguf.splitting import Splitting, read_splitting
from camelid.text.to_gguf.vocab import (
    Merges,
    filled,
    scores,
    spaceless,
    text_merges,
    token_types,
    told_by_scores,
)
from camelid.text.tokenizers.hf.values import SPACE
from camelid.text.tokenizers.hf.vocabulary import pairs
from camelid.text.tokenizers.vocab import USER_DEFINED


def bpe_words(of: Published) -> Words:
    """The vocabulary, its merges or scores, and how text is cut. UnsupportedModelError, ModelFormatError."""
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if of.model.get(key):
            cannot_say("model", f"uses {key}", of.model)
    splitting = read_splitting(of.tokenizer, of.model)
    if splitting.splits_words and any(SPACE in token[1:] for token in of.vocab.ids):
        cannot_say("pre-tokenizer", f"cuts words at {SPACE}, but there are tokens that reach over one", {})
    merges = spaceless(pairs(of.model, of.vocab.ids))
    losses = losses_of_bpe(of, splitting.model, merges, bool(splitting.add_space_prefix))
    return Words(_facts(of, splitting, merges), [*losses, *splitting.losses])


def _facts(of: Published, splitting: Splitting, merges: Merges) -> dict[str, object]:
    scored = splitting.model == "llama"
    types = token_types(of, merges, of.model.get("unk_token") if scored else None, scored)
    merges = text_merges(merges, of.vocab, types)
    told = scored and told_by_scores(of.vocab, merges, types)
    return {
        "model": splitting.model,
        "pre": splitting.pre,
        "tokens": spaced(filled(of.vocab), types) if scored else filled(of.vocab),
        "token_type": types,
        "scores": scores(of.vocab, merges, types) if scored else None,
        "merges": None if told else [f"{left} {right}" for left, right in merges],
        "add_space_prefix": splitting.add_space_prefix,
    }


def spaced(tokens: list[str], types: list[int]) -> list[str]:
    """The tokens as SentencePiece's kinds have them: readers compare user-defined ones with the text before
    they write ▁ for its spaces."""
    typed_tokens = zip(tokens, types, strict=True)
    return [token.replace(SPACE, " ") if kind == USER_DEFINED else token for token, kind in typed_tokens]
