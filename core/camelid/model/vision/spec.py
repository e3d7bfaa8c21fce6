"""A vision tower as data: the encoder of an image's patches, and the projector to decoder embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from camelid.model.spec import ModelSpec
from camelid.plan.weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePrompt:
    """The words of a prompt around an image, as the model was trained.

    `marker` is the control token by which a chat template places an image. The text `before` and `after` is
    added around the marker. The image's rows follow the marker, or replace it if not `keeps_marker`.
    """

    marker: str
    before: str = ""
    after: str = ""
    keeps_marker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing:
    """How an image becomes pixels: resized to `size` x `size`, or to sides that are multiples of `factor`
    with `least` to `most` pixels if `size` is 0; then (value / 255 - mean) / std per channel."""

    size: int = 0
    factor: int = 1
    least: int = 0
    most: int = 0
    resample: str = "bilinear"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerSpec:
    """One tower. `layers` has the encoder's sizes and layers; `projector` is a row of `PROJECTORS`.

    An image is cut into patches of `patch_size` pixels; `merge` x `merge` patches make one row of `out_size`
    floats for the decoder, `1 + len(taps)` times as many if `taps` are layers whose output the decoder's
    first layers add (DeepStack, arXiv 2406.04334). Layers outside `full_layers` attend within windows of
    `window` x `window` patches (0: none). `n_positions` are the rows of the learned position table (0: none).
    With `axes`, an image's rows in the decoder have positions by time, height and width.
    """

    projector: str
    layers: ModelSpec
    patch_size: int
    merge: int
    out_size: int
    resizing: Resizing
    n_frames: int = 1
    n_positions: int = 0
    window: int = 0
    full_layers: tuple[int, ...] = ()
    taps: tuple[int, ...] = ()
    axes: bool = False

    @property
    def patch_cols(self) -> int:
        """Floats of one patch: channels x height x width."""
        return 3 * self.patch_size**2

    @property
    def side_cols(self) -> int:
        """Floats of one row for the decoder."""
        return self.out_size * (1 + len(self.taps))


@dataclass(frozen=True, slots=True)
class Tower:
    """A spec with its weights by our names: those of layers as in a text model (`blk.0.attn_q`)."""

    spec: TowerSpec
    weights: Mapping[str, Weight]

    @property
    def weight_bytes(self) -> int:
        return sum(w.n_bytes for w in self.weights.values())
