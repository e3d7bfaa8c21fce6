"""How the oracle is asked for words alone."""

from __future__ import annotations

from tokenizers import PreTokenizedString, pre_tokenizers


def words_of(step: pre_tokenizers.PreTokenizer, text: str) -> list[str]:
    """What `step.pre_tokenize_str` gives, without places: to count characters takes it most of the time."""
    cut = PreTokenizedString(text)
    step.pre_tokenize(cut)
    return [word for word, _, _ in cut.get_splits(offset_referential="original", offset_type="byte")]
