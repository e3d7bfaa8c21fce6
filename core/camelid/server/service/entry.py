"""A model on offer and its service, if it is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from camelid.loading.lora import LoraFile, lora_files
from camelid.server.service.file_mark import Mark
from camelid.server.service.rows import ModelRow
from camelid.server.service.service import Service

State = Literal["unloaded", "loading", "loaded", "failed"]
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 60.0  # before a failed engine is loaded again


@dataclass(slots=True, eq=False)
class Entry:
    """A model and its service, if it is loaded. `is_lost`: its engine failed and no other replaced it."""

    row: ModelRow
    state: State = "unloaded"
    service: Service | None = None
    error: Exception | None = None
    is_lost: bool = False
    used: float = 0.0
    n_waiting: int = 0  # requests that wait until it is loaded
    n_bytes: int = 0
    context: int | None = None  # of the last service, so that no question loads the model
    mark: Mark = ()
    keep_s: float | None = None  # idle time by a request, instead of the row's
    retry: float = 0.0  # when a lost engine is loaded again
    pause_s: float = FIRST_PAUSE_S
    timer: asyncio.TimerHandle | None = None
    loading: asyncio.Task[None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    lora_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one adapter is loaded at a time

    @property
    def lora(self) -> tuple[LoraFile, ...]:
        """The adapters on offer, loaded or not: a service that is started later has them, too."""
        return lora_files(self.row.options.lora)

    @lora.setter
    def lora(self, files: Iterable[LoraFile]) -> None:
        self.row = replace(self.row, options=replace(self.row.options, lora=tuple(files)))

    def adapter(self, name: str | None) -> str:
        """The name, if it is that of an adapter on offer; else ""."""
        return name if name and any(file.name == name for file in self.lora) else ""

    @property
    def keep_alive_s(self) -> float:
        """Idle seconds until it is unloaded; negative for never."""
        return self.row.keep_alive_s if self.keep_s is None else self.keep_s

    @property
    def is_loading(self) -> bool:
        """True while a load is under way."""
        return self.loading is not None and not self.loading.done()

    @property
    def n_places(self) -> int:
        """Requests under way."""
        return self.service.n_places if self.service else 0

    @property
    def is_idle(self) -> bool:
        """True if it is loaded and no request uses it or waits for it."""
        return self.service is not None and not self.n_places and not self.n_waiting
