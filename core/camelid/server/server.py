"""The server's parts in one object, which every endpoint receives."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from camelid.server.http.errors import retry_later
from camelid.server.http.guard import Guard
from camelid.server.operations import Operations
from camelid.server.service.entry import Entry
from camelid.server.service.host import Batch
from camelid.server.service.models import Models
from camelid.server.service.response_store import ResponseStore
from camelid.server.service.service import Service, Started
from camelid.server.service.slots import SlotSettings
from camelid.server.settings import Settings
from camelid.witness.log import WitnessLog

Phase = Literal["loading", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class TokenBudgets:
    """Observes answers, and spends the token budgets of their keys as tokens come.

    A client that hangs up before the end has spent the tokens up to then.
    """

    guard: Guard

    def submitted(self, started: Started) -> None:
        """Spends the prompt, once for all choices."""
        self._spend(started, started.request.n_read)

    def advanced(self, started: Started, batch: Batch) -> None:
        """Spends the tokens of a batch; an event of withheld text has none."""
        self._spend(started, sum(event.token_id is not None for event in batch.events))

    def closed(self, started: Started) -> None:
        """Spends the tokens that the client left unread."""
        self._spend(started, started.answer.n_unread)

    def _spend(self, started: Started, n_tokens: int) -> None:
        budget = self.guard.budgets.get(started.job.key.name)
        if budget:  # none without keys, and for a key whose limits were changed meanwhile
            budget.spend(n_tokens)


@dataclass(slots=True)
class Server:
    """Models, guard and settings of one server."""

    models: Models
    guard: Guard
    settings: Settings = field(default_factory=Settings)
    phase: Phase = "loading"
    slots: SlotSettings = field(default_factory=SlotSettings)
    started: float = field(default_factory=time.time)
    operations: Operations = field(default_factory=Operations)
    responses: ResponseStore = field(default_factory=ResponseStore)
    witness: WitnessLog | None = None

    def __post_init__(self) -> None:
        self.operations.attach(self.models)
        self.models.on_load.append(self.operations.tally.loaded)
        self.models.observers = (*self.models.observers, self.operations.tally, TokenBudgets(self.guard))

    @property
    def is_strict(self) -> bool:
        """True if unknown fields of a request are refused."""
        return self.settings.strict

    def close(self) -> None:
        """Writes the waiting records of the witness log, log lines and spans."""
        if self.witness:
            self.witness.close()
        self.operations.close()

    def model_name(self, name: str | None) -> str | None:
        """The name to look up; None for the default model.

        The only model answers to every name, as llama-server's does: clients of one model often send a name
        that they were written with. Under --strict, and beside a folder of models, that is an error.
        """
        return None if self.models.is_single and not self.is_strict else name

    async def entry(self, name: str | None) -> Entry:
        """The model of a name, loaded or not. Raises ApiError 404."""
        return await self.models.known(self.model_name(name))

    async def shown(self, name: str | None) -> Entry:
        """The model of a name, for a question, which loads nothing: any page can make a browser ask one.

        Raises ApiError 404, and 503 while the first model is loaded at the start.
        """
        entry = await self.entry(name)
        if self.phase == "loading" and entry.service is None:
            raise retry_later(503, "Loading model", 1, "model_loading")
        return entry

    async def service(self, name: str | None) -> Service:
        """The service of a model's or an adapter's name, loaded if it is not. Raises ApiError as `shown`."""
        entry = await self.shown(name)
        service = await self.models.service(self.model_name(name))
        return service.with_adapter(entry.adapter(name))
