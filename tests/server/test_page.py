"""The chat page's files: public, complete, and under a strict policy; everything else needs the key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import dirname, join, normpath

import pytest
from tests.support.served import ROOT, Served, served

from camelid.server.app import ROUTES
from camelid.server.http.guard import PUBLIC
from camelid.server.page_files import FILES, content, folder

KEY = "sk-page"
IMPORT = re.compile(rb'from "(\.[^"]+)"')
LINK = re.compile(rb'(?:href|src)="([^"#]+)"')


@pytest.fixture(scope="module")
def locked() -> Iterator[Served]:
    with served("--backend", "cpu", "--api-key", KEY) as running:
        yield running


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_public_and_carries_the_policy(locked: Served, path: str) -> None:
    reply = locked.get(path)
    assert (reply.status_code, reply.content) == (200, content(path))
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_media_types(locked: Served) -> None:
    kinds = {PurePosixPath(path).suffix: locked.get(path).headers["content-type"] for path in FILES}
    assert kinds == {
        "": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
    }  # fmt: skip


def test_head_is_get_without_the_body(locked: Served) -> None:
    head, get = locked.http.head("/"), locked.get("/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(get.content))


def test_a_current_copy_is_not_sent_again(locked: Served) -> None:
    tag = locked.get("/page/style.css").headers["etag"]
    again = locked.get("/page/style.css", **{"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert locked.get("/page/style.css", **{"if-none-match": '"other"'}).status_code == 200
    assert locked.get("/page/server/style.css").headers["etag"] != tag


def test_only_the_files_and_health_are_public(locked: Served) -> None:
    """Every other route of the table answers 401 without a key."""
    gets = {route.path for route in ROUTES if route.method == "GET" and "{" not in route.path}
    open_paths = {path for path in gets if locked.get(path).status_code != 401}
    assert open_paths == PUBLIC & gets
    assert set(FILES) <= open_paths
    assert locked.post("/").status_code == 405


@pytest.mark.parametrize(
    "path", ["/page/", "/page/app.js", "/page/build.py", "/page/server/../../core", "/page"]
)
def test_no_other_file_of_the_folder_is_served(locked: Served, path: str) -> None:
    assert locked.get(path).status_code == 401
    assert locked.get(path, authorization=f"Bearer {KEY}").status_code == 404


def test_every_file_of_the_page_is_listed() -> None:
    own = {f"server/{path.name}" for path in (ROOT / "web/server").iterdir() if path.suffix != ".md"}
    assert own == {name for name in FILES.values() if name.startswith("server/")}


@pytest.mark.parametrize("path", [path for path in FILES if path.endswith(".js")])
def test_imports_are_served(path: str) -> None:
    wanted = {normpath(join(dirname(path), name.decode())) for name in IMPORT.findall(content(path))}
    assert wanted <= set(FILES)


def test_the_page_links_to_served_files_and_holds_no_inline_code() -> None:
    text = content("/")
    links = {f"/{name.decode()}" for name in LINK.findall(text)}
    assert {"/page/style.css", "/page/server/chat.js"} <= links <= set(FILES)
    assert not re.search(rb"<style|style=|\son\w+=|<script(?![^>]*src=)", text)
    assert text.startswith(b"<!doctype html>")


def test_the_folder_of_a_checkout() -> None:
    assert folder() == ROOT / "web"


def test_the_page_can_be_off() -> None:
    with served("--no-page") as server:
        paths = ("/", "/page/style.css", "/health")
        assert [server.get(path).status_code for path in paths] == [404, 404, 200]
