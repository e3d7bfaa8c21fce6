"""Files of the chat page: paths of the server to files of `web/`, which an installation has as `_web`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from camelid.errors import BackendError

INDEX = "server/index.html"
NAMES = (
    "icon.svg",
    "style.css",
    "server/api.js",
    "server/chat.js",
    "server/conversation.js",
    "server/markdown.js",
    "server/panel.js",
    "server/style.css",
)
# Path -> file. Paths mirror the folder, so that one module finds another by the same relative name.
FILES = {"/": INDEX, **{f"/page/{name}": name for name in NAMES}}


@cache
def folder() -> Traversable:
    """The folder `web`. Raises BackendError if it is missing."""
    packaged = files("camelid") / "_web"
    checkout = Path(__file__).parents[3] / "web"
    for place in (packaged, checkout):
        if (place / INDEX).is_file():
            return place
    raise BackendError(
        f"no page at {packaged} or {checkout}; is the installation complete?", backend="server"
    )


def content(path: str) -> bytes:
    """The file of a path in FILES."""
    return (folder() / FILES[path]).read_bytes()
