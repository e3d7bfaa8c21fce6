"""web/source.js against servers with ranges, without ranges, with wrong ranges, truncating, changing."""

from __future__ import annotations

import asyncio
import base64
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from e2e.browser import open_browser
from e2e.page_host import write_bare_site

pytestmark = pytest.mark.faults

CHUNK = 8 << 20
BIG = bytes(range(256)) * (3 * CHUNK // 256) + b"the last bytes"
SMALL = BIG[: 1 << 20]
# 60 reads of 100,000 bytes in order, then a read across a chunk border, the file's last bytes, and zero
# bytes.
READS = [(i * 100_000, 100_000) for i in range(60)]
READS += [(CHUNK - 1000, 2000), (len(BIG) - 14, 14), (5, 0)]
TYPES = {".html": "text/html", ".js": "text/javascript"}


class Handler(BaseHTTPRequestHandler):
    """Serves BIG or SMALL with the behaviour that the path names, and the bare site's files."""

    protocol_version = "HTTP/1.1"
    site: Path
    requests: Counter[str]

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.requests[name] += 1
        if (manner := getattr(self, f"as_{name.partition('.')[0]}", None)) is not None:
            manner(*map(int, re.findall(r"\d+", self.headers.get("range", "0-0"))))
        elif (file := self.site / name).is_file():
            self.answer(200, file.read_bytes(), content_type=TYPES.get(file.suffix, "text/plain"))
        else:
            self.answer(404, b"")

    def as_ranges(self, start: int, last: int) -> None:
        self.part(start, BIG[start : last + 1])

    def as_plain(self, start: int, last: int) -> None:
        self.answer(200, BIG)

    def as_elsewhere(self, start: int, last: int) -> None:
        self.part(start + 1, BIG[start + 1 : last + 2])

    def as_unsaid(self, start: int, last: int) -> None:
        self.answer(206, BIG[start : last + 1])

    def as_short(self, start: int, last: int) -> None:
        self.part(start, BIG[start : last + 1], cut=100)

    def as_cut(self, start: int, last: int) -> None:
        self.answer(200, SMALL, cut=100)

    def as_changing(self, start: int, last: int) -> None:
        self.part(start, BIG[start : last + 1], etag=f'"{start}"')

    def part(self, start: int, data: bytes, cut: int = 0, **headers: str) -> None:
        place = f"bytes {start}-{start + len(data) - 1}/{len(BIG)}"
        self.answer(206, data, cut, content_range=place, **headers)

    def answer(self, status: int, data: bytes, cut: int = 0, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content_length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        if cut:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data[: len(data) - cut])

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serve(site: Path) -> Iterator[tuple[str, Counter[str]]]:
    requests: Counter[str] = Counter()
    handler = type("SiteHandler", (Handler,), {"site": site, "requests": requests})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", requests
        server.shutdown()
        thread.join()


CASES: dict[str, tuple[list[tuple[int, int]], bool]] = {
    "ranges.bin": (READS, False),
    "plain.bin": (READS, False),
    "elsewhere.bin": ([(0, 10)], False),
    "unsaid.bin": ([(0, 10)], False),
    "short.bin": ([(0, 10)], False),
    "cut.bin": ([(0, 10)], False),
    "changing.bin": ([(0, 10), (2 * CHUNK, 10)], False),
    "absent.bin": ([(0, 10)], False),
    "ranges.past-the-end": ([(len(BIG) - 5, 10)], False),
    "plain.file": (READS, True),
}


async def read_all(address: str) -> dict[str, Any]:
    async with open_browser() as browser:
        page = await browser.new_page()
        await page.goto(f"{address}bare.html")
        script = "(arguments) => globalThis.readSource(...arguments)"
        return {n: await page.evaluate(script, [n, list(r), f]) for n, (r, f) in CASES.items()}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Counter[str]]:
    site = tmp_path_factory.mktemp("bare")
    write_bare_site(site)
    with serve(site) as (address, requests):
        return asyncio.run(read_all(address)), requests


@pytest.mark.parametrize("name", ["ranges.bin", "plain.bin", "plain.file"])
def test_bytes_are_those_asked_for(name: str, outcome: tuple[dict[str, Any], Counter[str]]) -> None:
    value = outcome[0][name]["value"]
    assert value["size"] == len(BIG)
    got = [base64.b64decode(part) for part in value["parts"]]
    assert got == [BIG[offset : offset + length] for offset, length in READS]


def test_few_requests(outcome: tuple[dict[str, Any], Counter[str]]) -> None:
    results, requests = outcome
    # 63 reads touch three chunks; a server without ranges sends the whole file once.
    assert requests["ranges.bin"] == 3
    assert requests["plain.bin"] == 1
    assert results["plain.bin"]["value"]["arrived"] == len(BIG)
    assert results["ranges.bin"]["value"]["arrived"] == 2 * CHUNK + 14


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("elsewhere.bin", "bytes 0 to 8388608 were requested, the server sent bytes 1-"),
        ("unsaid.bin", "sent a part without a valid content-range"),
        ("short.bin", r"(?i)network error|ended after"),
        ("cut.bin", r"(?i)network error|ended after"),
        ("changing.bin", "changed on the server while it was being read"),
        ("absent.bin", r"absent\.bin: the server answered 404"),
        ("ranges.past-the-end", "has 25165838 bytes; bytes 25165833 to 25165843 were requested"),
    ],
)
def test_false_answers_are_errors(
    name: str, words: str, outcome: tuple[dict[str, Any], Counter[str]]
) -> None:
    assert re.search(words, outcome[0][name]["error"])
