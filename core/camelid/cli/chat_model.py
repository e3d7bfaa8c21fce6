"""The model of `camelid chat`: loaded here, or behind a server, by the same methods."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from camelid.api.llm import LLM
from camelid.api.sessions.session import Session
from camelid.cli.format import human
from camelid.requests.options import Message
from camelid.requests.output_text import Completion, Event


class Answer(AsyncIterable[Event], Protocol):
    """The stream of one answer."""

    @property
    def completion(self) -> Completion:
        """The complete answer, after its end or `aclose`."""
        ...

    async def aclose(self) -> None:
        """Ends the answer; the conversation keeps its text so far."""
        ...


class Talk(Protocol):
    """One conversation: a `Session`, or its counterpart of a server."""

    id: str
    messages: list[Message]
    options: dict[str, Any]
    note: str

    @property
    def system(self) -> str | None:
        """The text of a leading system message, or None."""
        ...

    @system.setter
    def system(self, text: str | None) -> None: ...

    def reset(self) -> None:
        """Clears the conversation; the system message and the options stay."""
        ...

    def fork(self, id: str | None = None) -> Talk:
        """A copy."""
        ...

    async def start(self, text: str | None = None) -> Answer:
        """Begins a turn with a user's text; without it, with the messages as they are."""
        ...


class Model(Protocol):
    """The parts of the slash commands that differ between a loaded model and a server."""

    async def save(self, talk: Talk, path: Path) -> None:
        """Writes a session file."""
        ...

    async def restore(self, path: Path) -> Talk:
        """The conversation of a session file."""
        ...

    def size(self, talk: Talk) -> str:
        """The conversation's size in words."""
        ...

    def stats(self, talk: Talk) -> list[str]:
        """The lines of /stats that follow the last answer's lines."""
        ...


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model loaded in this process; its conversations are sessions."""

    llm: LLM

    async def save(self, talk: Talk, path: Path) -> None:
        """Writes the session with the rows of its state."""
        await cast(Session, talk).asave(path)

    async def restore(self, path: Path) -> Talk:
        """The session, with its rows in the prefix cache."""
        return await self.llm.arestore(path)

    def size(self, talk: Talk) -> str:
        """Messages and tokens."""
        return f"{len(talk.messages)} messages, {len(cast(Session, talk).token_ids)} tokens"

    def stats(self, talk: Talk) -> list[str]:
        """The conversation, the engine's state and its rows."""
        engine, counters = self.llm.stats(), self.llm.counters
        return [
            f"{talk.id}: {self.size(talk)}, context length {self.llm.context}",
            f"state: {human(engine.cached_bytes)} cached of {human(engine.total_bytes)}",
            f"rows: {counters.prefill_rows:,} prefilled, {counters.cached_rows:,} from the prefix cache, "
            f"{counters.decode_rows:,} decoded",
        ]
