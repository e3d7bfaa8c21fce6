"""The patches of one image: their number, their order in a tower's steps, and the positions of its rows."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.errors import RequestError
from camelid.model.vision.spec import Resizing, TowerSpec

MAX_RATIO = 200  # of an image's sides, as the image processors of Qwen2-VL allow


@dataclass(frozen=True, slots=True)
class Grid:
    """`height` x `width` patches of `size` pixels; `merge` x `merge` of them make one row for the decoder."""

    height: int
    width: int
    size: int
    merge: int

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width of the resized image."""
        return self.height * self.size, self.width * self.size

    @property
    def squares(self) -> tuple[int, int]:
        """Rows for the decoder by height and width."""
        return self.height // self.merge, self.width // self.merge

    @property
    def n_patches(self) -> int:
        return self.height * self.width

    @property
    def n_rows(self) -> int:
        """Rows for the decoder."""
        return self.n_patches // self.merge**2


def grid_of(tower: TowerSpec, width: int, height: int) -> Grid:
    """The grid of an image of this size. Raises RequestError for sides that differ too much."""
    high, wide = resized_sides(tower.resizing, height, width)
    return Grid(high // tower.patch_size, wide // tower.patch_size, tower.patch_size, tower.merge)


def image_rows(tower: TowerSpec) -> int:
    """Rows of every image; 0 if they depend on its size."""
    side = tower.resizing.size // tower.patch_size // tower.merge
    return side * side


def resized_sides(how: Resizing, height: int, width: int) -> tuple[int, int]:
    """The sides of the resized image, as transformers computes them: fixed, or near the image's own."""
    if how.size:
        return how.size, how.size
    if max(height, width) > MAX_RATIO * min(height, width):
        raise RequestError(
            f"the image has {width} x {height} pixels, expected sides of a ratio up to {MAX_RATIO}",
            field="image",
        )
    high, wide = (round(side / how.factor) * how.factor for side in (height, width))
    if high * wide > how.most:
        scale = (height * width / how.most) ** 0.5
        high, wide = (
            max(int(side / scale / how.factor) * how.factor, how.factor) for side in (height, width)
        )
    elif high * wide < how.least:
        scale = (how.least / (height * width)) ** 0.5
        high, wide = (-int(-side * scale // how.factor) * how.factor for side in (height, width))
    return high, wide
