"""Weights of a Hugging Face directory by the names, shapes and values that mlx-lm stores them with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from camelid.errors import UnsupportedModelError, shown
from camelid.formats.hf_config import HfDirectory, HfTensor
from camelid.model.archs import HF_ROWS, row_name
from camelid.model.hf import ENDINGS, fold_tensors, name_tensors, read_settings
from camelid.model.hf_names import published_names, stacked_names
from camelid.model.hf_numbers import number_tensors
from camelid.model.hf_rows import HfRow
from camelid.model.hf_settings import HfSettings
from camelid.model.mlx_rows import MLX_FORMS
from camelid.plan.weights import Part, Weight

PUBLISHED_ONLY = "published_conv"  # the fold of families without a rule for mlx-lm's form


@dataclass(frozen=True, slots=True)
class MlxWeight:
    """A tensor that mlx-lm stores: its name and shape, and the values as a weight with a GGUF name.

    A tensor that is several weights in GGUF has the name of the first.
    """

    name: str
    shape: tuple[int, ...]
    weight: Weight


def mlx_weights(directory: HfDirectory) -> dict[str, MlxWeight]:
    """The tensors by mlx-lm's name, without those that it drops, such as the output matrix of a tied model.

    Only the folds of mlx-lm's `sanitize` are applied. Raises UnsupportedModelError for a model that mlx-lm
    does not run or stores in a form without a rule, and the errors of `checkpoint_of_hf`.
    """
    settings = read_settings(directory)
    if settings.arch.is_encoder_decoder:
        raise _refused(settings, "mlx-lm opens models that generate, not those with an encoder")
    if settings.arch.is_encoder or settings.is_ranking or directory.embedding.pooling:
        raise _refused(settings, "mlx-lm opens models that generate, not embedding or ranking models")
    stored = replace(settings, row=_stored_row(settings))
    folds = {name: fold for name, fold in settings.row.folds.items() if name not in stored.row.folds}
    folding = replace(settings, row=replace(settings.row, folds=folds, scales={}))
    found: dict[str, MlxWeight] = {}
    for name, weight in _weights(directory, settings, folding, stored):
        found.setdefault(name, MlxWeight(name, _shape(weight, stored), weight))
    _check_names(settings, found)
    return found | {t.name: _number(t) for t in number_tensors(directory, settings)}


def _number(tensor: HfTensor) -> MlxWeight:
    """A tensor of one number, whose shape may have no dimension."""
    part = Part(tensor.file, tensor.offset, tensor.n_bytes)
    return MlxWeight(
        tensor.name, tensor.shape, Weight(name=tensor.name, type=tensor.type, shape=(1,), parts=(part,))
    )


def _stored_row(settings: HfSettings) -> HfRow:
    """The row of mlx-lm's form. Refuses families that mlx-lm stores with other values."""
    plain = HF_ROWS[row_name(settings.config)]
    form = MLX_FORMS.get(row_name(settings.config))
    if not form and any(PUBLISHED_ONLY in fold.split() for fold in plain.folds.values()):
        raise _refused(settings, "mlx-lm stores its weights with other values, for which there is no rule")
    return form.row(plain) if form else plain


def _check_names(settings: HfSettings, found: Mapping[str, MlxWeight]) -> None:
    """Refuses matrices without the ending .weight, as planes replace that ending."""
    for name, each in found.items():
        is_matrix = each.weight.name.endswith(".weight") and len(each.shape) > 1
        if is_matrix and not name.endswith(".weight"):
            raise _refused(settings, f"mlx-lm stores {name} under another name")


def _refused(settings: HfSettings, why: str) -> UnsupportedModelError:
    name = row_name(settings.config)
    return UnsupportedModelError(
        f"model_type {shown(name)} has no form of MLX: {why}; write a GGUF, without --format mlx",
        kind="model_type",
        name=name,
    )


def _weights(
    directory: HfDirectory, settings: HfSettings, folding: HfSettings, stored: HfSettings
) -> Iterator[tuple[str, Weight]]:
    """Weights with the name that mlx-lm stores them by."""
    named = name_tensors(directory, settings).named
    for base, published in published_names(stored):
        if base == "output" and settings.is_tied:
            continue
        for ending in ENDINGS:
            if tensors := named.get(base + ending):
                weight = fold_tensors(base + ending, tensors, folding)
                yield from zip(
                    stacked_names(published + ending, stored), _each(weight, published), strict=True
                )


def _each(weight: Weight, published: str) -> list[Weight]:
    """The tensors of a stack, one per item, if mlx-lm stores them so."""
    if "{" not in published:
        return [weight]
    n, shape = weight.shape[0], weight.shape[1:]
    size = len(weight.parts) // n
    return [replace(weight, shape=shape, parts=weight.parts[i * size : (i + 1) * size]) for i in range(n)]


def _shape(weight: Weight, stored: HfSettings) -> tuple[int, ...]:
    """The shape in mlx-lm: a depthwise convolution [U, 1, W] has its dimension of 1 at the end."""
    name = weight.name.removesuffix(".weight").rpartition(".")[2]
    if stored.row.folds.get(name) != "squeeze" or weight.shape[-1] == 1:
        return weight.shape
    return (weight.shape[0], weight.shape[2], weight.shape[1])
