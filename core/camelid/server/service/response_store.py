"""Responses that clients may read again or continue: in memory, bounded, each key's apart."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from camelid.requests.transcript import Transcript
from camelid.server.http.errors import ApiError
from camelid.server.http.keys import Key

Body = dict[str, Any]
MAX_RESPONSES = 1000  # of one key
MAX_BYTES = 32 << 20  # of one key's conversations


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, its own input, and the items of the conversation up to its end.

    `transcript` has the token ids that the model read and drew, for the next turn with the same model.
    """

    body: Body
    inputs: Sequence[Body]
    items: Sequence[Body]
    transcript: Transcript = ()

    @property
    def n_bytes(self) -> int:
        """Size as JSON of the whole conversation, which a later turn keeps alive."""
        return len(json.dumps([self.body, self.items]))


@dataclass(slots=True)
class ResponseStore:
    """The responses of each key by id. Beyond a key's bounds its oldest are dropped.

    `tag` names the replica that holds them, "" for a server without replicas.
    """

    max_responses: int = MAX_RESPONSES
    max_bytes: int = MAX_BYTES
    tag: str = ""
    _shelves: dict[bytes, Shelf] = field(default_factory=dict[bytes, "Shelf"])

    @property
    def prefix(self) -> str:
        """The beginning of each id, which leads later requests to the replica that holds the response."""
        return f"resp_{self.tag}_" if self.tag else "resp_"

    def add(self, key: Key, stored: StoredResponse) -> None:
        """Stores a response, which may be too large to stay."""
        shelf = self._shelves.setdefault(key.digest, Shelf())
        shelf.add(stored)
        while shelf.n_bytes > self.max_bytes or len(shelf.found) > self.max_responses:
            shelf.remove(next(iter(shelf.found)))

    def find(self, key: Key, id: str) -> StoredResponse:
        """A response of this key. Raises ApiError 404, also for the response of another key."""
        shelf = self._shelves.get(key.digest)
        found = shelf and shelf.found.get(id)
        if not found:
            is_foreign = self.tag and not id.startswith(self.prefix)
            ended = ", or the replica that held it has ended" if is_foreign else ""
            raise ApiError(
                404, f"there is no response {id!r:.100}: it was not stored, or was deleted or dropped{ended}",
                code="response_not_found", param="response_id",
            )  # fmt: skip
        return found[0]

    def remove(self, key: Key, id: str) -> None:
        """Deletes a response. Raises ApiError 404."""
        self.find(key, id)
        self._shelves[key.digest].remove(id)


@dataclass(slots=True)
class Shelf:
    """One key's responses with their sizes, oldest first."""

    found: OrderedDict[str, tuple[StoredResponse, int]] = field(
        default_factory=OrderedDict[str, tuple[StoredResponse, int]]
    )
    n_bytes: int = 0

    def add(self, stored: StoredResponse) -> None:
        """Adds a response as the latest."""
        size = stored.n_bytes
        self.found[stored.body["id"]] = (stored, size)
        self.n_bytes += size

    def remove(self, id: str) -> None:
        """Removes a response."""
        self.n_bytes -= self.found.pop(id)[1]
