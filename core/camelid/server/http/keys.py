"""API keys: names, scopes and budgets. Only hashes of keys are kept."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from camelid.errors import RequestError

SCOPES = ("use", "learn", "admin")
HASH_PREFIX = "sha256-"


@dataclass(frozen=True, slots=True)
class Key:
    """A client's key. Budgets are per minute, and per moment for `concurrency`; 0 means no bound.

    `salt` separates the prefix caches of keys, so that no client can time another's prompts.
    """

    name: str
    digest: bytes
    scopes: frozenset[str] = frozenset({"use"})
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrency: int = 0

    @property
    def salt(self) -> str:
        return self.digest.hex()[:32] if self.digest else ""


# Without keys every client is the same anonymous client, with every scope.
ANONYMOUS = Key("anonymous", b"", frozenset(SCOPES))


class KeyRing:
    """The server's keys; empty if none is required."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def find(self, secret: str | None) -> Key | None:
        """The key with this secret, or None; compares with every key in constant time."""
        if not self._keys:
            return ANONYMOUS
        digest, found = digest_of(secret or ""), None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found if secret else None


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def plain_keys(secrets: Iterable[str]) -> list[Key]:
    """Keys from --api-key, with all scopes: named key-1, key-2, and so on."""
    return [
        Key(f"key-{i}", digest_of(secret), frozenset(SCOPES)) for i, secret in enumerate(secrets, start=1)
    ]


def read_key_file(path: Path) -> list[Key]:
    """The keys of a file, one a line; `#` begins a comment.

    A line is a secret alone, or `name:secret:scopes:requests:tokens:concurrency`, shortened at will: scopes
    joined by `+`, requests and tokens per minute, and requests at once. A secret may stand as its hash:
    `sha256-` and 64 hex digits. Raises RequestError, without a secret in its text.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise RequestError(f"the key file {path} cannot be read: {reason}", field="api_key_file") from None
    keys = [_key(line.strip(), i) for i, line in enumerate(lines, start=1) if _is_key(line)]
    names = [key.name for key in keys]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise RequestError(
            f"the key file names {twice!r} twice; give each key its own name", field="api_key_file"
        )
    if not keys:
        raise RequestError(f"the key file {path} has no key; add a line name:secret", field="api_key_file")
    return keys


def _is_key(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _key(line: str, number: int) -> Key:
    parts = line.split(":")
    if len(parts) == 1:
        return Key(f"line-{number}", _digest(parts[0], number), frozenset(SCOPES))
    if len(parts) > 6 or not parts[0] or not parts[1]:
        raise _malformed(number, "name:secret:scopes:requests:tokens:concurrency")
    name, secret, *rest = parts
    scopes = frozenset(rest[0].split("+")) if rest and rest[0] else frozenset({"use"})
    if scopes - set(SCOPES):
        raise _malformed(number, f"scopes out of {', '.join(SCOPES)}")
    budgets = [_budget(text, number) for text in rest[1:]]
    return Key(name, _digest(secret, number), scopes, *budgets)


def _digest(secret: str, number: int) -> bytes:
    if not secret.startswith(HASH_PREFIX):
        return digest_of(secret)
    if not re.fullmatch(r"[0-9a-f]{64}", secret.removeprefix(HASH_PREFIX)):
        raise _malformed(number, "64 hex digits after sha256-")
    return bytes.fromhex(secret.removeprefix(HASH_PREFIX))


def _budget(text: str, number: int) -> int:
    if text and not re.fullmatch(r"[0-9]{1,9}", text):
        raise _malformed(number, "whole numbers as budgets")
    return int(text or 0)


def _malformed(number: int, want: str) -> RequestError:
    return RequestError(f"line {number} of the key file is malformed, expected {want}", field="api_key_file")
