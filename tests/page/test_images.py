"""Images in the calls of the page's worker: decoded ahead of their request, kept while there is room."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.vision_chat import write_chat_ggufs
from tests.support.vision_models import image_of, png_of

import camelid
from camelid.errors import RequestError
from camelid.images.decode import ImageFile, decoded
from camelid.images.pixels import DECODED_AHEAD, Pixels
from camelid.loading.model_file import find_source
from camelid.page import images
from camelid.page.images import PageImages
from camelid.page.model import PageModel, start

pytest.importorskip("PIL.Image", reason="the extra vision is not installed")

Json = dict[str, Any]
ONE, TWO = (png_of(image_of(5031, i, [40, 56])) for i in range(2))
GREEDY = {"temperature": 0.0, "max_tokens": 6}
LOAD = {"backend": "reference", "context": 400}


@dataclass
class Files:
    """A model with its tower as GGUF files."""

    text: Path
    mmproj: Path


@dataclass
class Decoder:
    """Pillow in place of a browser; it yields to other requests first, and counts its images."""

    places: list[str] = field(default_factory=list)

    async def __call__(self, file: ImageFile, place: str) -> Pixels:
        self.places.append(place)
        await asyncio.sleep(0)
        return decoded(file, place)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(*write_chat_ggufs(tmp_path_factory.mktemp("model")))


@pytest.fixture(autouse=True)
def nothing_decoded() -> Iterator[None]:
    yield
    DECODED_AHEAD.clear()


def asking(*data: bytes) -> list[Json]:
    uris = [f"data:image/png;base64,{base64.b64encode(each).decode()}" for each in data]
    parts = [{"type": "image_url", "image_url": {"url": uri}} for uri in uris]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]


@asynccontextmanager
async def visit(files: Files, decoder: Decoder, *, tower: bool = True) -> AsyncIterator[Any]:
    """A function that calls a method of a loaded model and returns its result or its error."""
    told: list[Json] = []
    mmproj = find_source(files.mmproj) if tower else None
    made = await start(
        find_source(files.text), lambda text: told.append(json.loads(text)), 0, json.dumps(LOAD), mmproj
    )
    assert made is not None, told
    assert told[-1]["value"]["takes_images"] == tower
    model = PageModel(made._llm, lambda text: told.append(json.loads(text)), decoder)  # pyright: ignore[reportPrivateUsage]

    async def call(id: int, method: str, **given: Any) -> Any:
        await model.call(id, method, json.dumps(given))
        last = next(one for one in reversed(told) if one["id"] == id)
        return last.get("value", last.get("error"))

    yield call


def test_images_are_decoded_ahead_of_their_request(files: Files) -> None:
    decoder = Decoder()

    async def work() -> tuple[Json, Json, int]:
        async with visit(files, decoder) as call:
            prompt = asking(ONE, TWO)
            both = [call(i, "generate", prompt=prompt, options=GREEDY) for i in (1, 2)]
            first, second = await asyncio.gather(*both)
            assert first["token_ids"] == second["token_ids"]
            return first, second, await call(3, "count", prompt=prompt, options={})

    first, _, count = asyncio.run(work())
    with camelid.load(files.text, mmproj=files.mmproj, **LOAD) as llm:
        DECODED_AHEAD.clear()
        want = llm.chat(asking(ONE, TWO), **GREEDY)
    assert (first["token_ids"], count) == (want.token_ids, want.usage.prompt_tokens)
    assert set(decoder.places) == {"image 1", "image 2"}


def test_a_session_keeps_its_images_as_data_uris(files: Files) -> None:
    decoder = Decoder()

    async def work() -> None:
        async with visit(files, decoder) as call:
            await call(1, "session", options=GREEDY, system=None, messages=asking(ONE))
            first = await call(2, "turn", session=1, text=None, options={})
            assert first["session"]["messages"][:-1] == asking(ONE)
            DECODED_AHEAD.clear()  # as without room
            second = await call(3, "turn", session=1, text="And now?", options={})
            assert second["usage"]["cached_tokens"] > 16

    asyncio.run(work())
    assert decoder.places == ["image 1"] * 2


def test_a_model_without_a_tower_takes_no_images(files: Files) -> None:
    async def work() -> Json:
        async with visit(files, Decoder(), tower=False) as call:
            return await call(1, "generate", prompt=asking(ONE), options=GREEDY)

    error = asyncio.run(work())
    assert (
        error["name"] == "RequestError"
        and "this model takes no images: load it with the mmproj" in error["message"]
    )


def test_a_damaged_image_is_one_clear_error(files: Files) -> None:
    async def work() -> Json:
        async with visit(files, Decoder()) as call:
            error = await call(1, "generate", prompt=asking(ONE, b"x"), options=GREEDY)
            assert (await call(2, "generate", prompt=asking(ONE), options=GREEDY))["finish_reason"]
            return error

    error = asyncio.run(work())
    assert error["name"] == "RequestError" and error["message"].startswith(
        "image 2: found 1 bytes that are no"
    )


def test_unused_images_leave_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "KEPT_BYTES", 40 * 56 * 3)
    kept = PageImages(Decoder())
    one, two = (ImageFile(data).digest for data in (ONE, TWO))

    async def work() -> None:
        async with kept.ahead(asking(ONE)):
            async with kept.ahead(asking(TWO)):
                pass
            assert set(DECODED_AHEAD) == {one, two}, "the first is in use, the second has room"
        assert set(DECODED_AHEAD) == {two} or set(DECODED_AHEAD) == {one}
        async with kept.ahead(asking(ONE, TWO)):
            assert set(DECODED_AHEAD) == {one, two}, "a request has all its images"
        assert len(DECODED_AHEAD) == 1
        with pytest.raises(RequestError):
            async with kept.ahead(asking(b"x")):
                raise AssertionError("a damaged image has no context")
        assert not kept._uses  # pyright: ignore[reportPrivateUsage]

    asyncio.run(work())
