"""The head of a prompt as a chain of hashes, and a bounded memory of the heads that a replica served.

Hashes are of the request's text, not of its tokens: the gate has no tokenizer, and equal text gives equal
tokens.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from camelid.server.http.errors import ApiError
from camelid.server.http.json_body import json_object

BLOCK_CHARS = 128
MAX_BLOCKS = 64  # of a head: 8,192 characters tell conversations apart
MAX_HEADS = 4096  # hashes that are remembered per replica
MAX_CHARS = BLOCK_CHARS * MAX_BLOCKS
HASH_BYTES = 8
ENCODER = json.JSONEncoder()  # by parts: a list of a million token ids is not encoded whole
PARTS = ("model", "cache_salt", "tools", "system", "instructions", "messages", "prompt", "input")

Head = tuple[int, ...]


def fields_of(body: bytes) -> Mapping[str, Any]:
    """The fields of a request; none for a body that is no JSON object, which the replica refuses."""
    try:
        return json_object(body)
    except ApiError:
        return {}


def head_of(fields: Mapping[str, Any]) -> Head:
    """The head of a request's prompt."""
    return chain(prompt_text(fields))


def prompt_text(fields: Mapping[str, Any]) -> str:
    """The fields that precede an answer, in the order of chat templates."""
    text = ""
    for part in encoded(fields):
        text += part
        if len(text) >= MAX_CHARS:
            break
    return text[:MAX_CHARS]


def encoded(fields: Mapping[str, Any]) -> Iterator[str]:
    """The JSON of these fields in pieces; a string is one piece."""
    for name in PARTS:
        if fields.get(name):
            yield from ENCODER.iterencode(fields[name])


def chain(text: str) -> Head:
    """One hash per whole block; each covers the text from its start."""
    digest, hashes = blake2b(digest_size=HASH_BYTES), list[int]()
    for end in range(BLOCK_CHARS, len(text) + 1, BLOCK_CHARS):
        digest.update(text[end - BLOCK_CHARS : end].encode("utf-8", "replace"))
        hashes.append(int.from_bytes(digest.digest(), "big"))
    return tuple(hashes)


@dataclass(slots=True)
class Heads:
    """Hashes of the latest heads, at most `most`; the least recently served leave first."""

    most: int = MAX_HEADS
    _hashes: OrderedDict[int, None] = field(default_factory=OrderedDict[int, None])

    def add(self, hashes: Iterable[int]) -> None:
        """Remembers a head. Its first blocks count as the latest, so that its end leaves first."""
        for each in reversed(tuple(hashes)):
            self._hashes[each] = None
            self._hashes.move_to_end(each)
        while len(self._hashes) > self.most:
            self._hashes.popitem(last=False)

    def match(self, head: Head) -> int:
        """Blocks of the head that were served here, from its start."""
        return next((i for i, each in enumerate(head) if each not in self._hashes), len(head))

    def latest(self, n: int) -> list[int]:
        """The `n` latest hashes, the latest last."""
        return list(self._hashes)[-n:]
