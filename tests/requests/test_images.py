"""Images in conversations: content parts, placeholders, limits, the prefix cache and company."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.vision_chat import BOI, EOI, N_ROWS, SIZE, write_chat_model
from tests.support.vision_models import image_of, png_of

import camelid
from camelid.api.llm import LLM
from camelid.errors import RequestError
from camelid.images import decode
from camelid.images.decode import ImageFile, decoded, size_of

Image: Any = pytest.importorskip("PIL.Image", reason="the extra vision is not installed")
ONE, TWO = (png_of(image_of(5031, i, [40, 56])) for i in range(2))
GREEDY: dict[str, Any] = {"max_tokens": 6, "temperature": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_model(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with camelid.load(folder, backend="reference", context=400, chunk=16, parallel=3) as loaded:
        yield loaded


def asking(image: object, words: str = "What is this?") -> list[dict[str, Any]]:
    parts = [{"type": "image", "image": image}, {"type": "text", "text": words}]
    return [{"role": "user", "content": parts}]


Drawn = list[tuple[int | None, float]]  # token ids with their log-probabilities, which show every bit


async def drawn(llm: LLM, prompt: Any, **options: Any) -> Drawn:
    events = llm.astream(prompt, logprobs=1, **GREEDY, **options)
    return [(event.token_id, event.logprob) async for event in events]


def told(llm: LLM, prompt: Any, **options: Any) -> Drawn:
    stream = llm.stream(prompt, logprobs=1, **GREEDY, **options)
    return [(event.token_id, event.logprob) for event in stream]


def test_an_image_becomes_rows_between_its_words(llm: LLM) -> None:
    request = llm.request(asking(ONE))
    (image,) = request.media
    ids = list(request.prompt_ids)
    assert (image.start, image.end) == (ids.index(BOI) + 1, ids.index(EOI))
    assert image.end - image.start == N_ROWS
    around = llm.detokenize(ids[: image.start - 1])[-2:], llm.detokenize(ids[image.end + 1 :])[:2]
    assert around == ("\n\n", "\n\n")


def test_all_forms_of_an_image_give_one_answer(llm: LLM, tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    path.write_bytes(ONE)
    uri = "data:image/png;base64," + base64.b64encode(ONE).decode()
    want, bits = llm.chat(asking(ONE), **GREEDY), told(llm, asking(ONE))
    for form in (path, str(path), uri, Image.open(path)):
        assert told(llm, asking(form)) == bits
    part = {"type": "image_url", "image_url": {"url": uri}}
    words = {"type": "text", "text": "What is this?"}
    openai = llm.chat([{"role": "user", "content": [part, words]}], **GREEDY)
    assert (openai.token_ids, openai.usage.prompt_tokens) == (want.token_ids, want.usage.prompt_tokens)


def test_another_image_is_another_answer_and_no_prefix_hit(llm: LLM) -> None:
    assert told(llm, asking(ONE), cache_salt="a") == told(llm, asking(ONE), cache_salt="a")
    assert told(llm, asking(ONE), cache_salt="a") != told(llm, asking(TWO), cache_salt="a2")
    again = llm.chat(asking(ONE), cache_salt="a", **GREEDY)
    other = llm.chat(asking(TWO), cache_salt="a", **GREEDY)
    start = llm.request(asking(ONE)).media[0].start
    assert again.usage.cached_tokens == again.usage.prompt_tokens - 1
    assert other.usage.cached_tokens <= start


def test_a_prefix_hit_changes_no_bit(llm: LLM) -> None:
    long, short = asking(ONE, "What is this?"), asking(ONE, "?")
    alone = told(llm, short, cache_prompt=False)
    llm.chat(long, cache_salt="b", **GREEDY)
    before = llm.counters.prefix_hits
    assert told(llm, short, cache_salt="b") == alone
    assert llm.counters.prefix_hits > before


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_company_changes_no_bit(folder: Path, backend: str) -> None:
    async def runs() -> tuple[list[Drawn], list[Drawn]]:
        async with await camelid.aload(folder, backend=backend, context=300, chunk=16, parallel=3) as llm:
            prompts = [asking(ONE), asking(TWO, "Why?"), [{"role": "user", "content": "Tell me a story."}]]
            alone = [await drawn(llm, prompt, cache_prompt=False) for prompt in prompts]
            together = await asyncio.gather(*(drawn(llm, prompt, cache_prompt=False) for prompt in prompts))
            return alone, list(together)

    alone, together = asyncio.run(runs())
    assert together == alone


def test_a_conversation_goes_on_after_an_image(llm: LLM) -> None:
    first = llm.chat(asking(ONE), **GREEDY)
    talk = [
        *asking(ONE),
        {"role": "assistant", "content": first.text},
        *asking(TWO, "And this?"),
    ]
    request = llm.request(talk)
    assert [m.end - m.start for m in request.media] == [N_ROWS, N_ROWS]
    done = llm.chat(talk, **GREEDY)
    assert done.usage.cached_tokens >= request.media[0].end


def test_an_image_in_the_words_of_a_user_is_text(llm: LLM) -> None:
    request = llm.request([{"role": "user", "content": "a <start_of_image> b"}])
    assert not request.media
    assert BOI not in request.prompt_ids


def test_a_model_without_a_tower_refuses_images() -> None:
    with (
        camelid.load("cria", backend="reference", context=64) as llm,
        pytest.raises(RequestError, match="takes no images: load it with the mmproj file"),
    ):
        llm.chat(asking(ONE))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x", "no readable image"),
        (ONE[:200], "no readable image"),
        (b"", "found 0 bytes"),
        (b"GIF89a" + bytes(30), "no readable image"),
        (b"%PDF-1.7", "no readable image"),
    ],
)
def test_a_bad_image_is_one_clear_error(llm: LLM, data: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        llm.chat(asking(data))
    assert "BMP, GIF, JPEG, PNG" in str(caught.value) or "1 to" in str(caught.value)
    assert llm.is_idle


def test_a_huge_image_is_refused_before_it_is_decoded(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_PIXELS", 40 * 56 - 1)
    with pytest.raises(RequestError, match="56 x 40 pixels, expected at most 2,239 pixels"):
        llm.chat(asking(ONE))
    monkeypatch.setattr(decode, "MAX_BYTES", 100)
    with pytest.raises(RequestError, match="an image of 1 to 100 bytes"):
        llm.chat(asking(ONE))


def test_too_many_images_are_refused(llm: LLM) -> None:
    parts = [{"type": "image", "image": ONE}] * 65
    with pytest.raises(RequestError, match="65 images, expected at most 64"):
        llm.chat([{"role": "user", "content": parts}])


def test_a_context_shift_with_images_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="an image cannot be cut"):
        llm.chat(asking(ONE), overflow="shift", **GREEDY)


def test_an_image_that_is_not_encoded_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="asubmit encode images"):
        llm.submit(asking(ONE))


def test_images_are_turned_as_their_orientation_says() -> None:
    pixels = image_of(5041, 0, SIZE)[:24]  # 24 x 32
    for orientation, sides in ((1, (32, 24)), (3, (32, 24)), (6, (24, 32)), (8, (24, 32))):
        image = Image.fromarray(pixels)
        exif = Image.Exif()
        exif[decode.ORIENTATION] = orientation
        data = io.BytesIO()
        image.save(data, "PNG", exif=exif)
        file = ImageFile(data.getvalue())
        assert size_of(file, "image") == decoded(file, "image").size == sides
    corner = [channel[0] for channel in decoded(file, "image").channels()]
    assert corner == pixels[0, -1].tolist()  # turned left


def test_without_pillow_the_line_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(decode, "import_module", absent)
    with pytest.raises(RequestError, match=r'pip install "camelid\[vision\]"'):
        size_of(ImageFile(ONE), "image")


def test_a_session_keeps_its_images(llm: LLM, tmp_path: Path) -> None:
    uri = "data:image/png;base64," + base64.b64encode(ONE).decode()
    parts = [{"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": "What is this?"}]
    session = llm.session("talk")
    session.messages = [{"role": "user", "content": parts}]
    first = session.generate(None, **GREEDY)
    assert first.token_ids == llm.chat(asking(ONE), **GREEDY).token_ids
    second = session.generate("And now?", **GREEDY)
    assert second.usage.cached_tokens >= llm.request(asking(ONE)).media[0].end
    session.save(tmp_path / "talk")
    again = llm.restore(tmp_path / "talk")
    assert again.messages == session.messages
    assert again.generate("Why?", **GREEDY).token_ids == session.generate("Why?", **GREEDY).token_ids
    session.messages = [*asking(ONE)]  # bytes
    with pytest.raises(RequestError, match="cannot be written as JSON"):
        session.save(tmp_path / "talk")
