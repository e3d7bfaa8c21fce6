"""GGUF metadata of a directory's embeddings: pooling, prompts, labels of a ranking head, longest text."""

from __future__ import annotations

from collections.abc import Iterator

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.sentence_transformers import CARD_ANSWERS, EmbeddingFiles
from camelid.model.encoder_specs import DEFAULT_PROMPT, MAX_LENGTH, POOLINGS, PROMPT
from camelid.model.hf_settings import HfSettings


def embedding_metadata(files: EmbeddingFiles, settings: HfSettings) -> dict[str, MetadataValue]:
    """Metadata beside that of config.json. Raises UnsupportedModelError for a ranking head without a row."""
    return dict(_metadata(files, settings))


def _metadata(files: EmbeddingFiles, settings: HfSettings) -> Iterator[tuple[str, MetadataValue]]:
    arch = settings.row.arch
    is_ranking = settings.is_ranking or bool(files.answers)
    if is_ranking and not settings.row.ranking:
        name = ", ".join(settings.config.texts("architectures"))
        raise UnsupportedModelError(
            f"config.json: architectures is {name}: its head is not supported",
            kind="architectures",
            name=name,
        )
    pooling = settings.config.text("classifier_pooling", "cls" if settings.arch.is_encoder else "last")
    if settings.is_ranking and pooling != settings.arch.rank_pooling:
        raise UnsupportedModelError(
            f"config.json: classifier_pooling is {pooling}; supported: {settings.arch.rank_pooling}",
            kind="classifier_pooling",
            name=pooling,
        )
    if is_ranking or files.pooling:
        yield f"{arch}.pooling_type", POOLINGS.index("rank" if is_ranking else files.pooling)
    if files.answers:
        yield f"{arch}.classifier.output_labels", list(CARD_ANSWERS[: len(files.answers)])
    elif is_ranking:
        labels = settings.config.get_dict("id2label").values()
        unnamed = (f"LABEL_{i}" for i in range(settings.n_labels))
        yield f"{arch}.classifier.output_labels", [*map(str, labels)] or [*unnamed]
    if files.max_tokens and files.max_tokens < settings.count("context_length"):
        yield f"{arch}.{MAX_LENGTH}", files.max_tokens
    for i, tensor in enumerate(files.dense):
        yield f"{arch}.dense_{i + 2}_feat_in", tensor.shape[-1]
        yield f"{arch}.dense_{i + 2}_feat_out", tensor.shape[0]
    yield from ((PROMPT + name, text) for name, text in files.prompts.items())
    if files.default_prompt:
        yield DEFAULT_PROMPT, files.default_prompt
