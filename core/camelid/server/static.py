"""Static server of the web page, with precompressed files and a strict Content-Security-Policy.

Ranges, validators (ETag, 304) and safe paths are Starlette's. This module adds the policy, the `.br` and
`.gz` siblings from web/build.py, media types independent of the machine's MIME table, and the hub's address.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from camelid.errors import BackendError, RequestError
from camelid.formats.hub.ids import HUB
from camelid.server.http.listen import listen
from camelid.server.site import find_site

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import FileResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ModuleNotFoundError as error:
    raise BackendError(
        f"the page's server needs {error.name}: pip install 'camelid[web]'", backend="server"
    ) from error

MEDIA_TYPES = {
    ".bin": "application/octet-stream",
    ".css": "text/css; charset=utf-8",
    ".gguf": "application/octet-stream",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm",  # browsers refuse streaming compilation of any other type
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
ENCODINGS = {"br": ".br", "gzip": ".gz"}  # in order of preference
# Hosts that the hub redirects downloads to, by https://huggingface.co/.well-known/meta.json. A policy applies
# to the target of a redirect, too.
HUB_HOSTS = (
    "cas-bridge.xethub.hf.co",
    "cdn-lfs.hf.co",
    "cdn-lfs-us-1.hf.co",
    "cdn-lfs-eu-1.hf.co",
    "cdn-lfs.huggingface.co",
    "cdn-lfs-us-1.huggingface.co",
    "aws.cdn.hf.co",
    "us.aws.cdn.hf.co",
    "us-east-1.aws.cdn.hf.co",
    "us-west-2.aws.cdn.hf.co",
    "eu-west-3.aws.cdn.hf.co",
    "ap-southeast-1.aws.cdn.hf.co",
    "us.gcp.cdn.hf.co",
    "us-east1.us.gcp.cdn.hf.co",
    "us-central1.us.gcp.cdn.hf.co",
    "us-west4.us.gcp.cdn.hf.co",
    "europe-west4.us.gcp.cdn.hf.co",
    "asia-southeast1.us.gcp.cdn.hf.co",
)
HUB_SETTING = "/models/hub.json"  # the page reads the hub's address from it
# A service worker keeps the headers of the site's files: another policy must make it another service worker.
SERVICE_WORKER, NO_POLICY = "service_worker.js", 'const POLICY = "";'
# The frame of wllama (web/glass/rival.html): its workers are made from blobs, and the page frames it.
FRAMED = "/glass/rival.html"
FRAME_POLICY = (
    "default-src 'none'; script-src 'self' blob: 'wasm-unsafe-eval'; worker-src 'self' blob:; "
    "connect-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = {
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


def policy(hub: str = HUB, connect: Sequence[str] = ()) -> str:
    """The Content-Security-Policy of a page that downloads models from `hub` and from the origins `connect`.

    Raises RequestError for an address that is no http(s) origin.
    """
    redirects = [f"https://{host}" for host in HUB_HOSTS] if hub.rstrip("/") == HUB else []
    origins = " ".join(dict.fromkeys([*map(origin, (hub, *connect)), *redirects]))
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'wasm-unsafe-eval'",
            "worker-src 'self'",
            f"connect-src 'self' {origins}",
            "img-src 'self' data:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def origin(address: str) -> str:
    """Scheme, host and port of an address. Raises RequestError if the address has no exact host."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.netloc or set(parts.netloc) & set(" ;,*@'\""):
        text = f"{address!r} is no address of a server; expected for example https://models.example"
        raise RequestError(text, field="connect")
    return f"{parts.scheme}://{parts.netloc}"


def application(root: Path, *, hub: str = HUB, connect: Sequence[str] = ()) -> ASGIApp:
    """The ASGI application that serves `root`, with `HEADERS` and the policy on every response.

    Raises RequestError for an invalid address in `hub` or `connect`.
    """
    headers = {**HEADERS, "content-security-policy": policy(hub, connect)}
    fixed = _encoded(headers)
    framed = _encoded({**headers, "content-security-policy": FRAME_POLICY})
    setting = json.dumps({"endpoint": hub})

    async def hub_setting(_: Request) -> Response:
        return Response(setting, media_type=MEDIA_TYPES[".json"])

    async def service_worker(_: Request) -> Response:
        text = service_worker_of(root, headers)
        return Response(text, 200 if text else 404, media_type=MEDIA_TYPES[".js"])

    routes = [Route(HUB_SETTING, hub_setting), Route(f"/{SERVICE_WORKER}", service_worker)]
    site = Starlette(routes=[*routes, Mount("/", app=Site(directory=root, html=True))])

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *(framed if scope["path"] == FRAMED else fixed)]
            await send(message)

        await site(scope, receive, send_with_headers)

    return guarded


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def service_worker_of(root: Path, headers: Mapping[str, str]) -> str:
    """The site's service worker with a stamp of the headers; "" if the site has none."""
    path = root / SERVICE_WORKER
    stamp = hashlib.sha256(json.dumps([headers, FRAME_POLICY]).encode()).hexdigest()[:8]
    return path.read_text("utf-8").replace(NO_POLICY, f'const POLICY = "{stamp}";') if path.is_file() else ""


def serve(
    root: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    hub: str = HUB,
    connect: Sequence[str] = (),
    ready: Callable[[str], object] | None = None,
) -> None:
    """Serves until interrupted. Calls `ready` with the address after binding; port 0 picks a free one.

    Pages look up hub ids at `hub`, and may fetch models from it and from the origins `connect`.
    """
    app = application(root or find_site(), hub=hub, connect=connect)
    # uvicorn raises KeyboardInterrupt again after its shutdown; Ctrl-C is a server's normal end.
    with listen(host, port) as listener, suppress(KeyboardInterrupt):
        if ready:
            name = f"[{host}]" if ":" in host else host
            ready(f"http://{name}:{listener.getsockname()[1]}/")
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])
