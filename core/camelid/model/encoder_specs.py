"""Encoders from metadata: which models encode texts, and how their rows become embeddings or scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from camelid.errors import RequestError, UnsupportedModelError
from camelid.model.arch import ROW_MIXERS, Arch
from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import EncoderSpec, LayerSpec, ModelSpec
from camelid.plan.weights import Weight

POOLINGS = ("", "mean", "cls", "last", "rank")  # by GGUF's pooling_type
PROMPT, DEFAULT_PROMPT = "embedding.prompt.", "embedding.default_prompt"  # keys; llama.cpp ignores them
MAX_LENGTH = "max_sequence_length"  # key of the length at which training cut texts


def read_encoder(
    metadata: MetadataReader, arch: Arch, layers: Sequence[LayerSpec], tensors: Mapping[str, Weight]
) -> EncoderSpec | None:
    """The encoder of an encoder's file, or of a decoder's file with a pooling; None for other decoders.

    Raises ModelFormatError for an unknown pooling, UnsupportedModelError for layers that need a KV cache.
    """
    kind = metadata.count("pooling_type", 0, least=0)
    if kind >= len(POOLINGS):
        metadata.fail("pooling_type", f"is {kind}, expected 0 to {len(POOLINGS) - 1}: {_named()}")
    is_causal = metadata.flag("attention.causal", default=not arch.is_encoder)
    if not kind and not arch.is_encoder:
        _check(metadata, "attention.causal", is_causal, "False in a model without pooling_type")
        return None
    _check(metadata, "attention.causal", not (arch.is_encoder and is_causal), "True in an encoder")
    mixer = "causal" if is_causal else "bidirectional"
    encodes = [replace(layer, mixer=mixer, state_group="kv") for layer in layers]
    has_states = any(layer.mixer not in ("attention", "bidirectional") for layer in layers)
    _check(metadata, "pooling_type", not has_states, f"{kind} in a model with recurrent layers")
    windows = [layer.window for layer in layers if layer.window]
    fits = not is_causal or min(windows, default=1 << 31) >= metadata.count("context_length")
    _check(metadata, "attention.sliding_window", fits, f"{min(windows, default=0)} in a causal encoder")
    n_labels = rows_of(tensors, "cls.output")
    is_ranking = POOLINGS[kind] == "rank"
    if is_ranking != (n_labels > 0):
        metadata.fail("pooling_type", f"is {kind} ({_named()}), but cls.output has {n_labels} rows")
    return EncoderSpec(
        layers=tuple(encodes),
        pooling=arch.rank_pooling if is_ranking else POOLINGS[kind],
        n_labels=n_labels,
        head_act=arch.head_act,
        max_tokens=metadata.count(MAX_LENGTH, 0, least=0),
        dense_size=rows_of(tensors, "dense_2"),
    )


def read_stacks(
    metadata: MetadataReader, layer: LayerSpec, n_tensors: int
) -> tuple[EncoderSpec, tuple[LayerSpec, ...]]:
    """The encoder and the decoder's layers of a model with both, all like `layer`."""
    n_encoder = metadata.count("block_count")
    n_decoder = metadata.count("decoder_block_count", n_encoder)
    if n_decoder > n_tensors:  # refused before it costs memory
        metadata.fail("decoder_block_count", f"is {n_decoder}, but the file has {n_tensors} tensors")
    encodes = replace(layer, mixer="bidirectional", residual="sequential")
    decodes = replace(layer, residual="cross")
    return EncoderSpec(layers=(encodes,) * n_encoder), (decodes,) * n_decoder


def with_pooling(spec: ModelSpec, pooling: str) -> ModelSpec:
    """The spec of a model that encodes texts by this pooling, whatever its file states; "none" gives the row
    of each token. A decoder's rows stay causal. A model with an encoder and a decoder keeps the encoder.

    Raises RequestError for a model with recurrent layers, a causal window, or a ranking head.
    """
    encoder, layers = spec.encoder, spec.file_layers
    is_plain = all(layer.mixer in ("attention", *ROW_MIXERS) and not layer.window for layer in spec.layers)
    if not is_plain or (encoder and encoder.n_labels):
        raise RequestError(
            f"pooling is {pooling!r}, which a model with a ranking head, recurrent layers or causal windows "
            "does not have; leave it out",
            field="pooling",
        )
    encoder = encoder or EncoderSpec(layers=tuple(replace(layer, mixer="causal") for layer in layers))
    return replace(spec, layers=(), encoder=replace(encoder, pooling="" if pooling == "none" else pooling))


def rows_of(tensors: Mapping[str, Weight], name: str) -> int:
    """The number of rows of a matrix; 0 if the file has none of that name. A vector is one row."""
    weight = tensors.get(f"{name}.weight")
    return 0 if weight is None else weight.shape[0] if len(weight.shape) > 1 else 1


def _check(metadata: MetadataReader, name: str, holds: bool, found: str) -> None:
    if not holds:
        raise UnsupportedModelError(
            f"{metadata.key(name)} is {found}, which is not supported for {metadata.prefix}",
            kind=metadata.key(name),
            name=found,
        )


def _named() -> str:
    return ", ".join(f"{i} {name or 'none'}" for i, name in enumerate(POOLINGS))
