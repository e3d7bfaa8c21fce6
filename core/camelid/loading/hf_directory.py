"""A Hugging Face directory with its tokenizer as one checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from camelid.errors import UnsupportedModelError
from camelid.formats.hf_config import HfDirectory
from camelid.model.checkpoint import Checkpoint
from camelid.model.hf import checkpoint_of_hf
from camelid.plan.weights import Weight
from camelid.text.to_gguf.tokenizer import TokenizerMetadata, chat_metadata, tokenizer_metadata


def checkpoint_of_directory(directory: HfDirectory) -> Checkpoint:
    """Metadata, tensors and tokenizer of a directory.

    Raises ModelFormatError, and the errors of `checkpoint_of_hf`.
    """
    checkpoint = checkpoint_of_hf(directory)
    tokenizer, problem = _tokenizer(directory, checkpoint.tensors)
    header = checkpoint.header
    header = replace(
        header, metadata={**header.metadata, **tokenizer.metadata}, kinds={**header.kinds, **tokenizer.kinds}
    )
    return replace(checkpoint, header=header, no_tokenizer=problem, losses=tokenizer.losses)


def _tokenizer(
    directory: HfDirectory, tensors: Mapping[str, Weight]
) -> tuple[TokenizerMetadata, UnsupportedModelError | None]:
    """The tokenizer as GGUF metadata, and the error of a tokenizer that GGUF cannot express."""
    embedding = tensors.get("token_embd.weight")
    if not directory.tokenizer or embedding is None:
        return TokenizerMetadata({}, {}), None
    try:
        return _metadata(tokenizer_metadata, directory, embedding.shape[0]), None
    except UnsupportedModelError as problem:
        return _metadata(chat_metadata, directory, embedding.shape[0]), problem


def _metadata(read: Callable[..., TokenizerMetadata], directory: HfDirectory, size: int) -> TokenizerMetadata:
    return read(
        directory.tokenizer,
        directory.tokenizer_config,
        directory.special_tokens,
        directory.config,
        directory.generation,
        chat_templates=directory.chat_templates,
        vocab_size=size,
    )
