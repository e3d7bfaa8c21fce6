"""Images in requests of every dialect, on a tiny Gemma 3 with its tower."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.served import Served, served
from tests.support.vision_chat import N_ROWS, write_chat_model
from tests.support.vision_models import image_of, png_of

pytest.importorskip("PIL", reason="the extra vision is not installed")
PNG = base64.b64encode(png_of(image_of(5051, 0, [30, 44]))).decode()
URI = f"data:image/png;base64,{PNG}"
WORDS = "What is this?"
TEXT = {"type": "text", "text": WORDS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write_chat_model(tmp_path_factory.mktemp("model") / "tiny")
    with served(str(folder), "--backend", "cpu", "--context", "300", "--parallel", "2") as running:
        yield running


def openai(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}], "max_tokens": 4, "temperature": 0}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}


def test_every_dialect_gives_the_model_the_same_prompt(server: Served) -> None:
    reply = server.post("/v1/chat/completions", openai(image(URI), TEXT)).json()
    n_prompt, answer = reply["usage"]["prompt_tokens"], reply["choices"][0]["message"]["content"]
    alone = server.post("/v1/chat/completions", openai(TEXT)).json()["usage"]["prompt_tokens"]
    assert n_prompt == alone + N_ROWS + 6  # two marks and two empty lines around the rows
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    blocks = [{"type": "image", "source": source}, TEXT]
    asked = {"messages": [{"role": "user", "content": blocks}], "max_tokens": 4, "temperature": 0}
    theirs = server.post("/v1/messages", asked).json()
    read = theirs["usage"]["input_tokens"] + theirs["usage"]["cache_read_input_tokens"]
    assert (read, theirs["content"][0]["text"]) == (n_prompt, answer)
    options = {"num_predict": 4, "temperature": 0}
    message = {"role": "user", "content": WORDS, "images": [PNG]}
    chat = server.post("/api/chat", {"messages": [message], "stream": False, "options": options}).json()
    assert (chat["prompt_eval_count"], chat["message"]["content"]) == (n_prompt, answer)
    asked = {"prompt": WORDS, "images": [PNG], "stream": False, "options": options}
    assert server.post("/api/generate", asked).json()["response"] == answer
    parts = [{"type": "input_image", "image_url": URI}, {"type": "input_text", "text": WORDS}]
    asked = {"input": [{"role": "user", "content": parts}], "max_output_tokens": 4, "temperature": 0}
    own = server.post("/v1/responses", asked).json()
    assert own["usage"]["input_tokens"] == n_prompt
    assert own["output"][0]["content"][0]["text"] == answer


@pytest.mark.parametrize(
    ("url", "said_by"),
    [
        ("https://example.org/cat.png", "addresses are not fetched"),
        ("file:///etc/passwd", "addresses are not fetched"),
        ("/etc/passwd", "addresses are not fetched"),
        ("data:image/png;base64,AAAA", "no readable image"),
        ("data:image/png;base64,*", "invalid base64"),
        ("data:image/png,abc", "base64"),
    ],
)
def test_a_bad_image_is_refused(server: Served, url: str, said_by: str) -> None:
    reply = server.post("/v1/chat/completions", openai(image(url), TEXT))
    assert (reply.status_code, said_by in reply.text) == (400, True), reply.text


@pytest.mark.parametrize("kind", ["image", "input_image"])
def test_a_path_of_the_library_is_no_part_of_a_request(server: Served, kind: str) -> None:
    reply = server.post("/v1/chat/completions", openai({"type": kind, kind: "/etc/passwd"}, TEXT))
    assert reply.status_code == 501, reply.text


def test_an_address_in_anthropics_source_is_refused(server: Served) -> None:
    block = {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}
    asked = {"messages": [{"role": "user", "content": [block]}], "max_tokens": 4}
    reply = server.post("/v1/messages", asked)
    assert (reply.status_code, "not fetched" in reply.text) == (400, True), reply.text


def test_the_capability_is_listed(server: Served) -> None:
    assert server.get("/props").json()["modalities"]["vision"] is True
    assert "multimodal" in server.get("/models").json()["models"][0]["capabilities"]
    assert "vision" in server.post("/api/show", {"model": "tiny"}).json()["capabilities"]
