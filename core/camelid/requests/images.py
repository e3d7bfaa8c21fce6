"""Images of a conversation: from content parts to the rows of a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from camelid.engine.media import Media
from camelid.errors import RequestError
from camelid.images.decode import ImageFile, size_of
from camelid.model.vision.grid import Grid, grid_of
from camelid.model.vision.projectors import PROJECTORS
from camelid.model.vision.spec import ImagePrompt, TowerSpec
from camelid.text.tokenizers.tokenizer import Tokenizer

Span = tuple[str, bool]  # text, and True where the template wrote it
MAX_IMAGES = 64  # of a request


def split_images(
    messages: Sequence[Mapping[str, object]], words: ImagePrompt | None
) -> tuple[list[dict[str, object]], list[ImageFile]]:
    """Checked messages as templates read them, and their images in order.

    Raises RequestError for an image without a tower, and for more than `MAX_IMAGES`.
    """
    images = images_of(messages)
    if images and words is None:
        raise RequestError(
            "this model takes no images: load it with the mmproj file of its vision tower, or choose a model "
            "that has one",
            field="messages",
        )
    if len(images) > MAX_IMAGES:
        raise RequestError(f"found {len(images)} images, expected at most {MAX_IMAGES}", field="messages")
    return [_without_images(message) for message in messages], images


def images_of(messages: Sequence[Mapping[str, object]]) -> list[ImageFile]:
    """The images of checked messages, in order."""
    return [part["image"] for message in messages for part in _parts(message) if part["type"] == "image"]


def _parts(message: Mapping[str, object]) -> list[dict[str, Any]]:
    content = message.get("content")
    return cast("list[dict[str, Any]]", content) if isinstance(content, list) else []


def _without_images(message: Mapping[str, object]) -> dict[str, object]:
    """The message with its images as parts {"type": "image"}."""
    parts = _parts(message)
    if not parts:
        return dict(message)
    return {**message, "content": [{k: v for k, v in part.items() if k != "image"} for part in parts]}


def placed_images(spans: Iterable[Span], words: ImagePrompt, n_images: int) -> list[Span]:
    """The rendered spans with the words around each image. Raises RequestError if an image has no place."""
    around = f"{words.before}{words.marker}{words.after}"
    placed: list[Span] = []
    n_found = 0
    for text, is_trusted in spans:
        n_found += text.count(words.marker) if is_trusted else 0
        placed.append((text.replace(words.marker, around) if is_trusted and n_images else text, is_trusted))
    if n_images and n_found != n_images:
        raise RequestError(
            f"the chat template placed {n_found} of {n_images} images, by its marker {words.marker!r}; "
            "choose a template for images",
            field="messages",
        )
    return placed


def with_image_rows(
    token_ids: Sequence[int], images: Sequence[ImageFile], tower: TowerSpec, tokenizer: Tokenizer
) -> tuple[list[int], tuple[Media, ...]]:
    """The token ids with one placeholder for each row of an image, and the images at their rows.

    Raises RequestError for an image that cannot be read.
    """
    words = PROJECTORS[tower.projector].prompt
    marker = _marker_id(words.marker, tokenizer)
    if token_ids.count(marker) != len(images):
        raise RequestError(
            f"the prompt has {token_ids.count(marker)} markers {words.marker!r} for {len(images)} images",
            field="messages",
        )
    ids: list[int] = []
    media: list[Media] = []
    files: Iterator[ImageFile] = iter(images)
    for token_id in token_ids:
        if token_id != marker or words.keeps_marker:
            ids.append(token_id)
        if token_id == marker:
            media.append(_media(next(files), len(media), len(ids), media, tower))
            ids += [marker] * (media[-1].end - media[-1].start)
    return ids, tuple(media)


def _media(file: ImageFile, number: int, start: int, before: Sequence[Media], tower: TowerSpec) -> Media:
    """One image whose rows begin at `start`."""
    grid = grid_of(tower, *size_of(file, f"image {number + 1}"))
    shift = before[-1].shift if before else 0
    positions = image_positions(grid, start + shift) if tower.axes else ()
    end = start + grid.n_rows
    if positions:
        shift += max(grid.height, grid.width) // grid.merge - grid.n_rows
    return Media(start=start, end=end, digest=file.digest, image=file, positions=positions, shift=shift)


def image_positions(grid: Grid, first: int) -> tuple[tuple[int, ...], ...]:
    """Time, row and column of each row of an image (M-RoPE, arXiv 2409.12191), from `first` on."""
    height, width = grid.height // grid.merge, grid.width // grid.merge
    return tuple((first, first + y, first + x) for y in range(height) for x in range(width))


def _marker_id(marker: str, tokenizer: Tokenizer) -> int:
    ids = tokenizer.encode(marker, special=True)
    if len(ids) != 1:
        raise RequestError(
            f"this model's vocabulary has no token {marker!r}, which marks an image", field="messages"
        )
    return ids[0]
