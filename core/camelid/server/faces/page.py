"""GET / and the files of the chat page. They are public; the page's requests need a key."""

from __future__ import annotations

from hashlib import sha256
from pathlib import PurePosixPath

from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.page_files import FILES, content
from camelid.server.server import Server
from camelid.server.static import MEDIA_TYPES

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # names are the same in every version: browsers revalidate
}


async def page(server: Server, call: Call) -> Reply:
    """One file; 304 if the browser's copy is current. Raises ApiError 404 under --no-page."""
    if not server.settings.page:
        raise ApiError(404, "the page is off here; start the server without --no-page", code="not_found")
    body = content(call.path)
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = {**HEADERS, "etag": tag}
    kind = MEDIA_TYPES[PurePosixPath(FILES[call.path]).suffix]
    if tag in call.headers.get("if-none-match", ""):
        return JsonReply(b"", 304, headers, kind)
    return JsonReply(body, 200, headers, kind)


ROUTES = tuple(
    Route("GET", path, page, media=MEDIA_TYPES[PurePosixPath(file).suffix]) for path, file in FILES.items()
)
