"""Static server of the web page, with precompressed files and a strict Content-Security-Policy.

Ranges, validators (ETag, 304) and safe paths are Starlette's. This module adds the policy, the `.br` and
`.gz` siblings from web/build.py, and media types independent of the machine's MIME table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from camelid.errors import BackendError
from camelid.server.http.listen import listen

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.responses import FileResponse, Response
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ModuleNotFoundError as error:
    raise BackendError(
        f"the page's server needs {error.name}: pip install 'camelid[web]'", backend="server"
    ) from error

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".gguf": "application/octet-stream",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",  # browsers refuse streaming compilation of any other type
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
ENCODINGS = {"br": ".br", "gzip": ".gz"}  # in order of preference
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "worker-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Cross-origin isolation, which SharedArrayBuffer (threads) requires.
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    # File names are the same in every build: browsers must revalidate, mostly with a 304.
    "cache-control": "no-cache",
}


class Site(StaticFiles):
    """A folder of files with optional precompressed siblings."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """The file or its best accepted sibling; 304 if the browser's copy is current."""
        path = Path(full_path)
        headers = Headers(scope=scope)
        encoding = accepted_encoding(path, headers)
        body = Path(f"{path}{ENCODINGS[encoding]}") if encoding else path
        response = FileResponse(
            body,
            status_code=status_code,
            headers={"vary": "accept-encoding"} | ({"content-encoding": encoding} if encoding else {}),
            media_type=MEDIA_TYPES.get(path.suffix),
            stat_result=body.stat() if encoding else stat_result,
        )
        if self.is_not_modified(response.headers, headers):
            return Response(status_code=304, headers={"etag": response.headers["etag"]})
        return response


def accepted_encoding(path: Path, headers: Headers) -> str | None:
    """The best encoding that the browser accepts and the build provides; None for range requests."""
    if "range" in headers:
        return None
    choices = (choice.replace(" ", "") for choice in headers.get("accept-encoding", "").split(","))
    accepted = {choice.split(";")[0] for choice in choices if not choice.endswith(";q=0")}
    candidates = (name for name in ENCODINGS if name in accepted)
    return next((name for name in candidates if Path(f"{path}{ENCODINGS[name]}").exists()), None)


def application(root: Path) -> ASGIApp:
    """The ASGI application that serves `root`, with `HEADERS` on every response, errors included."""
    site = Starlette(routes=[Mount("/", app=Site(directory=root, html=True))])
    fixed = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *fixed]
            await send(message)

        await site(scope, receive, send_with_headers)

    return guarded


def find_site() -> Path:
    """The folder of the built page in this checkout. Raises BackendError before the first build."""
    site = Path(__file__).parents[3] / "build" / "web"
    if (site / "index.html").exists():
        return site
    raise BackendError(
        f"no built page at {site}; run `make web` (or `python web/build.py`) in a checkout", backend="server"
    )


def serve(
    root: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    ready: Callable[[str], object] | None = None,
) -> None:
    """Serves until interrupted. Calls `ready` with the address after binding; port 0 picks a free one."""
    app = application(root or find_site())
    # uvicorn raises KeyboardInterrupt again after its shutdown; Ctrl-C is a server's normal end.
    with listen(host, port) as listener, suppress(KeyboardInterrupt):
        if ready:
            name = f"[{host}]" if ":" in host else host
            ready(f"http://{name}:{listener.getsockname()[1]}/")
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])
