"""What a backend had its host do, kept as plain data: hosts replay it without camelid."""

from __future__ import annotations

import json
from pathlib import Path

from camelid.backends.common.host import Json

FORMAT = "camelid-tape"
VERSION = 1


class Recording:
    """How the host was opened; from `start` on, its sections, and steps with the ids that came back."""

    def __init__(self) -> None:
        self.tape: Json = {"format": FORMAT, "version": VERSION, "open": {}, "sections": [], "steps": []}
        self._is_on = False

    def start(self) -> None:
        """Sections and steps are kept from now on."""
        self._is_on = True

    def section(self, data: Json) -> Json:
        """The section, kept if recording."""
        if self._is_on:
            self.tape["sections"].append(data)
        return data

    def step(self, program: int, words: bytes) -> Json:
        """The record of a step, in which `ids` are to be put."""
        record: Json = {"program": program, "ids": []}
        if self._is_on:
            self.tape["steps"].append(record := record | {"words": words.hex()})
        return record

    def save(self, path: str) -> None:
        """Writes what was kept, as JSON."""
        Path(path).write_text(json.dumps(self.tape), encoding="utf-8")
