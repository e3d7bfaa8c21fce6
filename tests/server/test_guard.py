"""The guard: budgets over a reload of the keys, names of keys, and requests of other origins' pages."""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path

import pytest
from starlette.types import Scope

from camelid.errors import RequestError
from camelid.server.http import keys
from camelid.server.http.errors import ApiError
from camelid.server.http.guard import PUBLIC, Guard
from camelid.server.http.keys import ANONYMOUS, Key, KeyRing, digest_of, plain_keys
from camelid.server.server import Server
from camelid.server.setup import build, keys_of, reload
from camelid.server.sources import configure


def served(file: Path) -> Server:
    return build(configure({"api_key_file": str(file)}, {}))


def the_key(server: Server) -> Key:
    (key,) = server.guard.keys
    return key


def test_a_request_under_way_does_not_bring_old_limits_back(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("ann:sesame:use:0:100\n")
    server = served(file)
    old = the_key(server)
    server.guard.budget(old).spend(90)
    file.write_text("ann:sesame:use:0:1000000\n")
    asyncio.run(reload(server))
    server.guard.budget(old).spend(50)  # at the end of a request that began before
    new = server.guard.budget(the_key(server))
    assert (new.key.tokens_per_minute, new.tokens) == (1_000_000, 1_000_000)
    server.guard.budget(old).spend(50)
    assert server.guard.budget(the_key(server)) is new


def test_a_stale_budget_is_replaced() -> None:
    old, new = (Key("ann", digest_of("sesame"), tokens_per_minute=n) for n in (100, 200))
    guard = Guard(KeyRing([old]), 100, frozenset())
    assert guard.budget(old).key is old
    guard.keys = KeyRing([new])
    assert guard.budget(new).key is new
    assert guard.budget(old) is not guard.budget(new)
    assert [budget.key for budget in guard.budgets.values()] == [new]


def test_an_unchanged_key_keeps_its_budget(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("ann:sesame:use:0:100\n")
    server = served(file)
    server.guard.budget(the_key(server)).spend(90)
    file.write_text("ann:sesame:use:0:100\nbob:other\n")
    asyncio.run(reload(server))
    ann, _ = server.guard.keys
    assert server.guard.budget(ann).tokens == 10


def test_keys_of_flags_and_of_the_file_have_different_names(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("key-2:other:use:1\n")
    one = configure({"api_keys": ("sesame",), "api_key_file": str(file)}, {}).settings
    assert [key.name for key in keys_of(one)] == ["key-1", "key-2"]
    two = configure({"api_keys": ("sesame", "open"), "api_key_file": str(file)}, {}).settings
    with pytest.raises(RequestError, match="names 'key-2', as a key of --api-key is named") as refused:
        keys_of(two)
    assert "open" not in refused.value.message


def refusal(path: str, origins: frozenset[str] = frozenset(), **headers: str) -> str:
    """The code of the guard's refusal of a GET, or ""."""
    scope: Scope = {
        "type": "http",
        "path": path,
        "headers": [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in {"host": "localhost:8080", **headers}.items()
        ],
    }
    try:
        assert Guard(KeyRing(), 100, frozenset({"localhost"}), origins).check(scope) is ANONYMOUS
    except ApiError as error:
        assert error.status == 403
        return str(error.code)
    return ""


@pytest.mark.parametrize("path", ["/props", "/slots", "/v1/models", "/metrics"])
@pytest.mark.parametrize(
    ("site", "code"),
    [("cross-site", "origin_refused"), ("same-site", "origin_refused"), ("same-origin", ""), ("none", "")],
)
def test_images_and_frames_of_foreign_pages_get_nothing(path: str, site: str, code: str) -> None:
    """A browser sends no Origin for them, but says that another site asks."""
    assert refusal(path, sec_fetch_site=site) == code


def test_a_foreign_page_may_link_to_the_page_and_ask_for_liveness() -> None:
    assert {"/", "/health"} <= PUBLIC
    for path in PUBLIC:
        assert refusal(path, sec_fetch_site="cross-site") == ""
        assert refusal(path, sec_fetch_site="cross-site", origin="https://evil.example") == "origin_refused"


def test_listed_origins_ask_across_sites() -> None:
    friend = "https://friend.example"
    assert refusal("/props", frozenset({friend}), sec_fetch_site="cross-site", origin=friend) == ""
    assert refusal("/props", frozenset({friend}), sec_fetch_site="cross-site") == "origin_refused"
    assert refusal("/props", frozenset({"*"}), sec_fetch_site="cross-site") == ""
    own = "http://localhost:8080"
    assert refusal("/props", sec_fetch_site="same-origin", origin=own) == ""


@pytest.mark.parametrize("secret", ["first", "last", "wrong", "", None])
def test_every_key_is_compared_in_constant_time(secret: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody learns by the time of a refusal how much of a key was right, or which key it was."""
    ring = KeyRing(plain_keys(["first", "second", "last"]))
    compared, compare = list[bytes](), hmac.compare_digest

    def spied(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare(one, other)

    class Digest(bytes):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared byte by byte")

        __hash__ = bytes.__hash__

    monkeypatch.setattr(hmac, "compare_digest", spied)
    monkeypatch.setattr(keys, "digest_of", lambda secret: Digest(digest_of(secret)))
    found = ring.find(secret)
    assert (found.name if found else None) == {"first": "key-1", "last": "key-3"}.get(secret or "")
    assert compared == [key.digest for key in ring]
