"""The guard before every route: size, host, origin, key and rate, in this order."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from camelid.server.http.body import Bodies, too_large
from camelid.server.http.errors import ApiError, retry_later
from camelid.server.http.keys import ANONYMOUS, Key, KeyRing
from camelid.server.page_files import FILES

# Readable without a key: liveness, which a supervisor asks, and the page's own files.
PUBLIC = frozenset(
    {"/health", "/v1/health", "/live", "/ready", "/v2/health/live", "/v2/health/ready", *FILES}
)
MIN_BODIES = 256 << 20  # bytes of all bodies under way: 16 of the usual largest size
METHODS = "GET, POST, DELETE, OPTIONS"
# Values of Sec-Fetch-Site for a request of another origin's page: https://www.w3.org/TR/fetch-metadata/
FOREIGN = frozenset({"cross-site", "same-site"})
# Without this list a page of another origin reads none of these headers:
# https://fetch.spec.whatwg.org/#http-access-control-expose-headers
READABLE = "x-request-id, warning, retry-after, x-should-retry"


@dataclass(slots=True)
class Budget:
    """A key's use: token buckets that refill over a minute, and the requests under way."""

    key: Key
    now: Callable[[], float] = time.monotonic
    requests: float = field(init=False)
    tokens: float = field(init=False)
    n_running: int = 0
    _refilled: float = field(init=False)

    def __post_init__(self) -> None:
        self.requests = float(self.key.requests_per_minute)
        self.tokens = float(self.key.tokens_per_minute)
        self._refilled = self.now()

    def enter(self) -> None:
        """Counts a request. Raises ApiError 429 beyond the key's budget."""
        self._refill()
        key = self.key
        if key.concurrency and self.n_running >= key.concurrency:
            raise self._spent(f"{key.concurrency} requests at once", 1.0)
        if key.requests_per_minute and self.requests < 1:
            raise self._spent(
                f"{key.requests_per_minute} requests a minute",
                (1 - self.requests) * 60 / key.requests_per_minute,
            )
        if key.tokens_per_minute and self.tokens <= 0:
            raise self._spent(
                f"{key.tokens_per_minute} tokens a minute", (1 - self.tokens) * 60 / key.tokens_per_minute
            )
        self.requests -= 1
        self.n_running += 1

    def leave(self) -> None:
        """Ends a request."""
        self.n_running -= 1

    def spend(self, n_tokens: int) -> None:
        """Counts tokens of prompt and answer; the bucket may fall below zero."""
        self.tokens -= n_tokens

    def _refill(self) -> None:
        now, key = self.now(), self.key
        minutes = max(now - self._refilled, 0.0) / 60
        self._refilled = now
        self.requests = min(self.requests + minutes * key.requests_per_minute, key.requests_per_minute)
        self.tokens = min(self.tokens + minutes * key.tokens_per_minute, key.tokens_per_minute)

    def _spent(self, what: str, seconds: float) -> ApiError:
        return retry_later(
            429, f"the key {self.key.name!r} has spent its budget of {what}", seconds, "rate_limit_exceeded"
        )


@dataclass(slots=True)
class Guard:
    """Checks that precede every route. `hosts` and `origins` hold allowed values; `*` allows all.

    `bodies` bounds the bytes of all requests under way.
    """

    keys: KeyRing
    max_body: int
    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()
    public: frozenset[str] = PUBLIC
    budgets: dict[str, Budget] = field(default_factory=dict[str, Budget])
    bodies: Bodies = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = Bodies(max(16 * self.max_body, MIN_BODIES))

    def check(self, scope: Scope) -> Key:
        """The client's key. Raises ApiError 400, 401, 403, 413 or 429."""
        headers = Headers(scope=scope)
        self._check_size(headers)
        self._check_host(headers)
        self._check_origin(scope["path"], headers)
        return self._check_key(scope["path"], headers)

    def budget(self, key: Key) -> Budget:
        """The budget of a key. One that the ring no longer has gets a budget that nobody else sees."""
        found = self.budgets.get(key.name)
        if found and found.key == key:
            return found
        found = Budget(key)
        if key in self.keys:
            self.budgets[key.name] = found
        return found

    def _check_size(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.max_body:
            raise too_large(self.max_body)

    def _check_host(self, headers: Headers) -> None:
        """Refuses a foreign name, which a page reaches by DNS rebinding. Addresses cannot be rebound."""
        host = host_name(headers.get("host", ""))
        if "*" in self.hosts or host in self.hosts or is_address(host):
            return
        raise ApiError(
            403, f"the host {host!r:.80} is not served here; allow it by --allowed-host", code="host_refused"
        )

    def _check_origin(self, path: str, headers: Headers) -> None:
        """Refuses pages of other origins, also where a browser names none: for images, frames and links."""
        origin = headers.get("origin")
        if origin is None:
            is_foreign = headers.get("sec-fetch-site") in FOREIGN and path not in self.public
        else:
            is_foreign = not is_same_origin(origin, headers.get("host", ""))
        if is_foreign and not self.allows(origin or ""):
            shown = f"the origin {origin!r:.80}" if origin else "a page of another origin, without its name,"
            raise ApiError(403, f"{shown} is not allowed; list it by --cors-origin", code="origin_refused")

    def allows(self, origin: str) -> bool:
        """True if pages of this origin may call."""
        return "*" in self.origins or origin in self.origins

    def cors(self, headers: Headers) -> Mapping[str, str]:
        """The CORS headers of a reply; none without an allowed origin. Never with credentials."""
        origin = headers.get("origin")
        if origin is None or not self.allows(origin):
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": READABLE,
            "vary": "Origin",
        }

    def preflight(self, headers: Headers) -> Mapping[str, str]:
        """The headers of a preflight's reply."""
        wanted = headers.get("access-control-request-headers", "authorization, content-type")
        return {
            **self.cors(headers),
            "access-control-allow-methods": METHODS,
            "access-control-allow-headers": wanted,
            "access-control-max-age": "600",
        }

    def _check_key(self, path: str, headers: Headers) -> Key:
        if path in self.public:
            return ANONYMOUS if not self.keys else Key("public", b"", frozenset())
        key = self.keys.find(secret_of(headers))
        if key is None:
            raise ApiError(
                401, "Invalid API Key: send the header 'Authorization: Bearer KEY'", code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )  # fmt: skip
        return key


def secret_of(headers: Headers) -> str | None:
    """The secret that a client sent: a bearer token, or Anthropic's header."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret:
        return secret.strip()
    return headers.get("x-api-key")


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_same_origin(origin: str, host: str) -> bool:
    """True for a page that this server itself served."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
