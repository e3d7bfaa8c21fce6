"""Images in the page: the tokens and log-probabilities of the library, whatever form an image has."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page
from tests.support.vision_chat import write_chat_ggufs
from tests.support.vision_models import image_of

import camelid
from e2e.browser import build_site, open_browser, serve_site
from e2e.chat_visit import say, turns
from e2e.firefox import open_firefox
from e2e.visit import (
    AXE,
    LOAD_MS,
    VIOLATIONS,
    Json,
    Notes,
    open_page,
    screen,
    settled,
    wait_ready,
)

Image: Any = pytest.importorskip("PIL.Image", reason="the extra vision is not installed")
pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SIZE = [50, 70]  # height and width
GREEDY: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "logprobs": 1}
CLOSE = 1e-4  # of log-probabilities: WebAssembly's exp is not the native one
# Loads the model, and answers about each image: {name: {token_ids, logprobs} or {error}}.
ASK = """async ({ options, images, how }) => {
  const { load } = await import(new URL("client/camelid.js", location.href));
  const llm = await load("/text.gguf", options);
  const bytes = (text) => Uint8Array.fromBase64(text);
  const forms = {
    blob: (text) => new Blob([bytes(text)]),
    uri: (text) => `data:image/png;base64,${text}`,
    rgb: (text, [height, width]) => ({ width, height, data: bytes(text) }),
    canvas: (text, [height, width]) => new ImageData(new Uint8ClampedArray(bytes(text)), width, height),
  };
  const found = { info: llm.info };
  for (const [name, { form, data, size }] of Object.entries(images)) {
    const part = { type: "image", image: forms[form](data, size) };
    const messages = [{ role: "user", content: [part, { type: "text", text: "What is this?" }] }];
    try {
      const stream = llm.stream(messages, how);
      const logprobs = [];
      for await (const event of stream) logprobs.push(event.logprob);
      const { token_ids, usage } = await stream.completion;
      found[name] = { token_ids, logprobs, rows: usage.prompt_tokens };
    } catch (error) {
      found[name] = { error: `${error.name}: ${error.message}` };
    }
  }
  await llm.close();
  return found;
}"""


def encoded(image: Any, kind: str, **how: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def turned() -> Any:
    """EXIF data of an image that lies on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


ONE_PIXEL = encoded(Image.fromarray(np.zeros((1, 1, 3), np.uint8)), "PNG")


def samples() -> dict[str, tuple[str, bytes]]:
    """Form and bytes of images by name."""
    pixels = image_of(5031, 0, SIZE)
    plain = Image.fromarray(pixels)
    alpha = np.dstack([pixels, pixels[:, :, 0]])  # 0 to 255
    clear = Image.fromarray(alpha)
    return {
        "png": ("blob", encoded(plain, "PNG")),
        "png uri": ("uri", encoded(plain, "PNG")),
        "transparent": ("blob", encoded(clear, "PNG")),
        "palette": ("blob", encoded(plain.convert("P"), "PNG")),
        "grey": ("blob", encoded(plain.convert("L"), "PNG")),
        "gif": ("blob", encoded(plain.convert("P"), "GIF")),
        "bmp": ("blob", encoded(plain, "BMP")),
        "webp": ("blob", encoded(plain, "WEBP", lossless=True)),
        "jpeg": ("blob", encoded(plain, "JPEG", quality=90)),
        "turned jpeg": ("blob", encoded(plain, "JPEG", quality=90, exif=turned())),
        "rgb": ("rgb", pixels.tobytes()),
        "rgba": ("rgb", alpha.tobytes()),
        "canvas": ("canvas", alpha.tobytes()),
    }


RAW = {"rgb", "canvas"}  # forms


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    text, mmproj = write_chat_ggufs(folder)
    extra = {
        "text.gguf": text.read_bytes(),
        "mmproj.gguf": mmproj.read_bytes(),
        "bare.html": b"<title>bare</title>",
    }
    build_site(folder / "site", extra)
    with serve_site(folder / "site") as url:
        yield url


async def ask(address: str, options: Json, images: Json) -> Json:
    async with open_browser() as browser:
        page, _ = await open_page(browser, f"{address}bare.html")
        return await page.evaluate(ASK, {"options": options, "images": images, "how": GREEDY})


def given(form: str, data: bytes) -> Json:
    return {"form": form, "data": base64.b64encode(data).decode(), "size": SIZE}


@pytest.fixture(scope="module")
def seen(address: str) -> Json:
    """Answers of the page on the processor."""
    images = {name: given(*sample) for name, sample in samples().items()}
    images["damaged"] = given("blob", samples()["png"][1][:200])
    images["tiff"] = given("blob", encoded(Image.fromarray(image_of(1, 0, SIZE)), "TIFF"))
    images["short"] = given("rgb", b"123")
    return asyncio.run(ask(address, {"mmproj": "/mmproj.gguf", "backend": "cpu"}, images))


@pytest.fixture(scope="module")
def wanted(folder: Path, address: str) -> Json:
    """The library's answers for the same images; raw pixels as PNG files."""
    answers: Json = {}
    with camelid.load(folder / "text.gguf", mmproj=folder / "mmproj.gguf", backend="cpu") as llm:
        for name, (form, data) in samples().items():
            if form in RAW:
                pixels = np.frombuffer(data, np.uint8).reshape(*SIZE, -1)[:, :, :3]
                data = encoded(Image.fromarray(pixels), "PNG")
            parts = [{"type": "image", "image": data}, {"type": "text", "text": "What is this?"}]
            events = list(llm.stream([{"role": "user", "content": parts}], **GREEDY))
            answers[name] = {
                "token_ids": [event.token_id for event in events],
                "logprobs": [event.logprob for event in events],
            }
    return answers


@pytest.mark.parametrize("name", samples())
def test_answers_are_the_librarys(seen: Json, wanted: Json, name: str) -> None:
    assert "error" not in seen[name], seen[name]
    assert seen[name]["token_ids"] == wanted[name]["token_ids"]
    assert np.allclose(seen[name]["logprobs"], wanted[name]["logprobs"], atol=CLOSE)


def test_the_answers_show_the_image(wanted: Json) -> None:
    """Another image has other log-probabilities, by far more than the tests' tolerance."""
    differences = [
        np.abs(np.subtract(wanted["png"]["logprobs"], wanted[name]["logprobs"])).max()
        for name in ("grey", "turned jpeg")
    ]
    assert min(differences) > 10 * CLOSE, differences


def test_an_image_that_cannot_be_read_is_one_clear_error(seen: Json) -> None:
    for name in ("damaged", "tiff"):
        error = seen[name]["error"]
        assert error.startswith("RequestError: image 1: found ") and "that are no readable image" in error
        assert error.endswith("expected an image as BMP, GIF, JPEG, PNG, WEBP")
    assert "expected 3 or 4 bytes a pixel" in seen["short"]["error"]


def test_info_states_that_the_model_takes_images(seen: Json) -> None:
    assert seen["info"]["takes_images"] is True


@pytest.mark.exhaustive
def test_the_model_and_its_tower_run_on_webgpu(address: str, wanted: Json) -> None:
    images = {name: given(*samples()[name]) for name in ("png", "transparent")}
    options = {"mmproj": "/mmproj.gguf", "backend": "webgpu", "adapter": "swiftshader"}
    found = asyncio.run(ask(address, options, images))
    assert [found["info"][name] for name in ("backend", "images_on", "why")] == ["webgpu", "webgpu", ""]
    for name in images:
        assert found[name]["token_ids"] == wanted[name]["token_ids"], found[name]


@pytest.mark.exhaustive
def test_firefox_reads_the_same_pixels(address: str, wanted: Json) -> None:
    images = {name: given(*sample) for name, sample in samples().items()}
    options = {"mmproj": "/mmproj.gguf", "backend": "cpu"}
    with open_firefox() as firefox:
        firefox.open(f"{address}bare.html")
        found = firefox.evaluate(ASK, {"options": options, "images": images, "how": GREEDY})
        has_webgl = firefox.evaluate("() => Boolean(new OffscreenCanvas(1, 1).getContext('webgl'))")
    if not has_webgl:
        error = found.pop("transparent")["error"]
        assert "its transparent pixels cannot be read in this browser" in error
    got = {name: answer.get("token_ids", answer) for name, answer in found.items() if name in images}
    assert got == {name: wanted[name]["token_ids"] for name in got}


def test_a_model_without_a_tower_refuses_images(address: str) -> None:
    images = {"png": given(*samples()["png"])}
    found = asyncio.run(ask(address, {"backend": "cpu"}, images))
    assert found["info"]["takes_images"] is False
    assert "RequestError: this model takes no images: load it with the mmproj file" in found["png"]["error"]


CHAT = "backend=cpu&temperature=0&max_tokens=8&model=text.gguf"
# Pastes or drops a file; the page's own listeners handle the event.
GIVE = """([target, kind, name, type, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.fromBase64(text)], name, { type }));
  const how = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent(kind, { ...how, clipboardData: data })
    : new DragEvent(kind, { ...how, dataTransfer: data });
  document.querySelector(target).dispatchEvent(event);
}"""
THUMBNAILS = "#transcript > .user .thumbnail"
WIDTHS = f"() => [...document.querySelectorAll('{THUMBNAILS}')].map((image) => image.naturalWidth)"


@dataclass
class Talk:
    """Observations of a chat with images."""

    said: str = ""
    again: str = ""  # after a reload
    opened: str = ""  # by a model and its tower that were chosen as files
    labels: dict[str, list[str]] = field(default_factory=dict)
    widths: list[list[int]] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    hidden: list[bool] = field(default_factory=list)
    title: str = ""
    axe: list[str] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)


async def give(page: Page, kind: str, name: str, mime: str, data: bytes) -> None:
    target = "#prompt" if kind == "paste" else "#form"
    await page.evaluate(GIVE, [target, kind, name, mime, base64.b64encode(data).decode()])


async def labels(page: Page, where: str) -> list[str]:
    return await page.locator(where).evaluate_all("(all) => all.map((one) => one.ariaLabel ?? one.alt)")


async def attach(page: Page, seen: Talk) -> None:
    """Three images: chosen, pasted and dropped; the last is removed; two wrong files."""
    png = encoded(Image.fromarray(image_of(5031, 0, SIZE)), "PNG")
    await page.set_input_files("#attach", [{"name": "a.png", "mimeType": "image/png", "buffer": png}])
    await page.wait_for_selector("#images li")
    for n, kind in enumerate(("paste", "drop")):
        await give(page, kind, "b.png", "image/png", samples()["jpeg"][1] if n else png)
        await page.wait_for_function("(n) => document.querySelectorAll('#images li').length === n", arg=n + 2)
    seen.labels["composer"] = await labels(page, "#images :is(img, button)")
    await page.get_by_role("button", name="Remove image 3").click()
    await give(page, "drop", "notes.txt", "text/plain", b"x")
    await page.wait_for_selector("#problem:not([hidden])")
    seen.problems["type"] = await page.inner_text("#problem-text")
    await page.click("#dismiss")


async def converse(page: Page, seen: Talk) -> None:
    """Sends two images, reloads, and asks further."""
    await attach(page, seen)
    await page.fill("#prompt", "What is this?")
    await screen(page, "images-composer")
    await page.press("#prompt", "Enter")
    await page.wait_for_selector("#transcript > .assistant:not([aria-busy])")
    await settled(page)
    seen.said = (await turns(page))[-1]
    seen.hidden.append(await page.locator("#images").is_hidden())
    await page.reload()
    await wait_ready(page)
    await page.wait_for_selector(THUMBNAILS)
    seen.widths.append(await page.evaluate(WIDTHS))
    seen.title = await page.inner_text("#title")
    seen.labels["transcript"] = await labels(page, THUMBNAILS)
    await page.evaluate(AXE.read_text("utf-8"))
    await say(page, "And now?")
    seen.again = (await turns(page))[-1]
    seen.axe = await page.evaluate(VIOLATIONS)
    await screen(page, "images-transcript")


async def visit_chat(address: str, files: list[Path]) -> Talk:
    seen = Talk()
    async with open_browser() as browser:
        page, seen.notes = await open_page(browser, f"{address}?{CHAT}&mmproj=mmproj.gguf")
        await wait_ready(page)
        seen.hidden.append(await page.locator("#attach-label").is_hidden())
        await converse(page, seen)
        page, _ = await open_page(browser, f"{address}?{CHAT}")
        await wait_ready(page)
        seen.hidden.append(await page.locator("#attach-label").is_hidden())
        await give(page, "paste", "a.png", "image/png", ONE_PIXEL)
        await page.wait_for_selector("#problem:not([hidden])")
        seen.problems["no tower"] = await page.inner_text("#problem-text")
        await page.set_input_files("#file", files)
        await page.wait_for_selector("#attach-label:not([hidden])", timeout=LOAD_MS)
        await give(page, "paste", "a.png", "image/png", samples()["png"][1])
        await page.wait_for_selector("#images li")
        await say(page, "What is this?")
        seen.opened = (await turns(page))[-1]
    return seen


@pytest.fixture(scope="module")
def talk(address: str, folder: Path) -> Talk:
    return asyncio.run(visit_chat(address, [folder / "mmproj.gguf", folder / "text.gguf"]))


def test_the_chat_answers_about_images(talk: Talk, folder: Path) -> None:
    png = encoded(Image.fromarray(image_of(5031, 0, SIZE)), "PNG")
    content = [{"type": "image", "image": png}] * 2 + [{"type": "text", "text": "What is this?"}]
    options: dict[str, Any] = {"max_tokens": 8, "temperature": 0}
    with camelid.load(folder / "text.gguf", mmproj=folder / "mmproj.gguf", backend="cpu") as llm:
        session = llm.session()
        session.messages = [{"role": "user", "content": content}]
        first = session.generate(None, **options).text
        second = session.generate("And now?", **options).text
        session.messages = [{"role": "user", "content": content[1:]}]
        third = session.generate(None, **options).text
    assert [talk.said, talk.again, talk.opened] == [text.strip() for text in (first, second, third)]


def test_images_are_attached_shown_and_kept(talk: Talk) -> None:
    names = [(f"Image {n}", f"Remove image {n}") for n in (1, 2, 3)]
    assert talk.labels["composer"] == [name for pair in names for name in pair]
    assert talk.labels["transcript"] == ["Image 1", "Image 2"]
    assert talk.widths == [[SIZE[1]] * 2] and talk.title == "What is this?"
    assert talk.axe == []
    assert talk.notes.errors == []


def test_the_chat_attaches_only_what_the_model_takes(talk: Talk) -> None:
    button, composer, without_tower = talk.hidden
    assert (button, composer, without_tower) == (False, True, True)
    assert talk.problems["type"] == "notes.txt is no image as BMP, GIF, JPEG, PNG or WebP."
    assert talk.problems["no tower"].startswith("This model takes no images.")
