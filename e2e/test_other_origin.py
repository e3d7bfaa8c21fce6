"""A page of another origin and the server: a listed origin reads a stream, an unlisted one reads nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.served import served

from e2e.browser import open_browser

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEY = "sk-other-origin"
# A key and JSON make the browser send a preflight.
ASK = """async ([url, key]) => {
    const body = {messages: [{role: "user", content: "What is 12 plus 30?"}], temperature: 0, stream: true};
    const headers = {"content-type": "application/json", authorization: `Bearer ${key}`};
    try {
        const reply = await fetch(`${url}/v1/chat/completions`,
            {method: "POST", headers, body: JSON.stringify(body)});
        const id = reply.headers.get("x-request-id");
        const texts = (await reply.text()).split("\\n\\n").filter((frame) => frame.startsWith("data: {"))
            .map((frame) => JSON.parse(frame.slice(6)).choices[0]?.delta.content ?? "");
        return {status: reply.status, id, text: texts.join("")};
    } catch (error) {
        return {error: error.name};
    }
}"""


class EmptyPage(BaseHTTPRequestHandler):
    """Answers every request with an empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Another page</title>")

    def log_message(self, *args: Any) -> None: ...


@contextmanager
def pages() -> Iterator[str]:
    """A site of empty pages on a port of its own; yields its origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as site:
        thread = Thread(target=site.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{site.server_port}"
        site.shutdown()
        thread.join()


async def asked(origin: str, url: str, key: str) -> dict[str, Any]:
    """What a page of this origin reads from the server."""
    async with open_browser() as browser:
        page = await browser.new_page()
        await page.goto(origin)
        return await page.evaluate(ASK, [url, key])


def test_a_page_of_a_listed_origin_reads_a_stream() -> None:
    with pages() as origin, served("--api-key", KEY, "--cors-origin", origin) as server:
        found = asyncio.run(asked(origin, server.url, KEY))
        assert (found["status"], found["text"]) == (200, "12 + 30 = 42.")
        assert found["id"].startswith("req_"), "the page cannot read the request's id"
        assert asyncio.run(asked(origin, server.url, "wrong"))["status"] == 401


@pytest.mark.parametrize("listed", share_of([["--cors-origin", "https://friend.example"], []]))
def test_a_page_of_an_unlisted_origin_reads_nothing(listed: list[str]) -> None:
    with pages() as origin, served("--api-key", KEY, *listed) as server:
        assert asyncio.run(asked(origin, server.url, KEY)) == {"error": "TypeError"}
        refused = server.http.post(
            "/v1/chat/completions", json={}, headers={"origin": origin, "authorization": f"Bearer {KEY}"}
        )
        assert refused.status_code == 403
        assert origin in refused.json()["error"]["message"]
        assert "--cors-origin" in refused.json()["error"]["message"]
