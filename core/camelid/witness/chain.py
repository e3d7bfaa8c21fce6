"""The hash chain of a log: JSON lines, each with a hash over the previous hash and its own bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

Facts: TypeAlias = dict[str, Any]

FORMAT, VERSION = "camelid-witness", 1
GENESIS = "0" * 64  # the previous hash of the first line
# A log's first bytes: the header's first key in sorted order.
OPENING = b'{"camelid":"'
HASH = re.compile(rb',"hash":"([0-9a-f]{64})"\}\Z')


@dataclass(frozen=True, slots=True)
class Line:
    """One record and its hash. `body` are the line's bytes without the hash; without a hash it is ""."""

    facts: Facts
    body: bytes
    hash: str


@dataclass(frozen=True, slots=True)
class Link:
    """The place of the next record: its number and the hash of the record before it."""

    seq: int = 0
    prev: str = GENESIS

    @classmethod
    def before(cls, facts: Facts) -> Link:
        """The place of a file's first record. The header of a rotated log continues another file's chain."""
        prev, seq = facts.get("continues"), facts.get("seq")
        return cls(seq, prev) if isinstance(prev, str) and type(seq) is int else cls()

    def after(self, line: Line) -> Link:
        """The place after a record at this place."""
        return Link(self.seq + 1, line.hash)

    def write(self, facts: Mapping[str, object]) -> Line:
        """The record of these facts at this place. Raises TypeError or ValueError if they are not JSON."""
        numbered = {**facts, "seq": self.seq}
        body = canonical(numbered)
        return Line(numbered, body, self.digest(body))

    def digest(self, body: bytes) -> str:
        """The hash of a record at this place."""
        return hashlib.sha256(self.prev.encode() + body).hexdigest()

    def mismatch(self, line: Line) -> str:
        """The reason why a record cannot be at this place; "" if it can."""
        seq = line.facts.get("seq")
        if not line.hash:
            return "it has no hash, as every record has"
        if seq != self.seq or type(seq) is not int:
            return (
                f"its number is {seq!r:.40}, expected {self.seq}: lines before it were deleted, inserted "
                "or moved"
            )
        if self.digest(line.body) != line.hash:
            return "its hash does not fit: the line was changed, or is from another log"
        return ""


def canonical(value: object) -> bytes:
    """JSON with sorted keys, without spaces and non-ASCII characters: equal values give equal bytes.

    Raises TypeError or ValueError for a value that is not JSON.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def encode(line: Line) -> bytes:
    """The line's bytes, with its hash as the last key and a newline."""
    return line.body[:-1] + f',"hash":"{line.hash}"}}\n'.encode()


def decode(data: bytes) -> Line | None:
    """A line without its newline; None if it is no JSON object, as a line that was written in part."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    found = HASH.search(data)
    body = data[: found.start()] + b"}" if found else data
    return Line(cast(Facts, value), body, found[1].decode() if found else "")


def sha256(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()
