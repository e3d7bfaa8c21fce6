"""A Hugging Face directory with its tokenizer as one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from camelid.errors import UnsupportedModelError
from camelid.formats.hf_config import HfDirectory
from camelid.loading.rerank_template import rerank_template
from camelid.model.checkpoint import Checkpoint
from camelid.model.hf import checkpoint_of_hf
from camelid.plan.weights import Weight
from camelid.text.templates.named import RERANK
from camelid.text.to_gguf.tokenizer import TokenizerMetadata, chat_metadata, tokenizer_metadata
from camelid.text.tokenizers.hf.files import TokenizerFiles


def checkpoint_of_directory(directory: HfDirectory) -> Checkpoint:
    """Metadata, tensors and tokenizer of a directory.

    Raises ModelFormatError, and the errors of `checkpoint_of_hf`.
    """
    checkpoint = checkpoint_of_hf(directory)
    tokenizer, problem = _tokenizer(directory, checkpoint.tensors)
    header = checkpoint.header
    metadata, kinds = {**header.metadata, **tokenizer.metadata}, {**header.kinds, **tokenizer.kinds}
    if text := rerank_template(directory):
        metadata[RERANK], kinds[RERANK] = text, "string"
    header = replace(header, metadata=metadata, kinds=kinds)
    return replace(checkpoint, header=header, no_tokenizer=problem, losses=tokenizer.losses)


def _tokenizer(
    directory: HfDirectory, tensors: Mapping[str, Weight]
) -> tuple[TokenizerMetadata, UnsupportedModelError | None]:
    """The tokenizer as GGUF metadata, and the error of a tokenizer that GGUF cannot express."""
    embedding = tensors.get("token_embd.weight")
    if not directory.tokenizer or embedding is None:
        return TokenizerMetadata({}, {}), None
    files, size = tokenizer_files(directory), embedding.shape[0]
    try:
        return tokenizer_metadata(files, size), None
    except UnsupportedModelError as problem:
        return chat_metadata(files, size), problem


def tokenizer_files(directory: HfDirectory) -> TokenizerFiles:
    """The files of a directory that state its tokenizer."""
    return TokenizerFiles(
        directory.tokenizer,
        directory.tokenizer_config,
        directory.special_tokens,
        directory.config,
        directory.generation,
        directory.chat_templates,
    )
