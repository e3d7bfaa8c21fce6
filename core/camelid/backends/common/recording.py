"""Recording of a host's work as a tape, plain data that hosts replay without camelid."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from camelid.backends.common.host import Json

FORMAT = "camelid-tape"
VERSION = 1


class Recording:
    """A tape: the request that opened the host; from `start` on, its sections and steps with sampled ids."""

    def __init__(self) -> None:
        self.tape: Json = {"format": FORMAT, "version": VERSION, "open": {}, "sections": [], "steps": []}
        self._is_on = False

    def start(self) -> None:
        """Starts recording of sections and steps."""
        self._is_on = True

    @contextmanager
    def paused(self) -> Generator[None]:
        """Records nothing in the block."""
        was_on, self._is_on = self._is_on, False
        try:
            yield
        finally:
            self._is_on = was_on

    def section(self, data: Json) -> Json:
        """Returns the section, after adding it to the tape if recording."""
        if self._is_on:
            self.tape["sections"].append(data)
        return data

    def step(self, program: int, words: bytes) -> Json:
        """The record of a step; the caller fills its `ids`. It is added to the tape if recording."""
        record: Json = {"program": program, "ids": []}
        if self._is_on:
            self.tape["steps"].append(record := record | {"words": words.hex()})
        return record

    def save(self, path: str) -> None:
        """Writes the tape as JSON."""
        Path(path).write_text(json.dumps(self.tape), encoding="utf-8")
