"""The model of `camelid chat`: loaded here, or behind a server, by the same methods."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from camelid.api.llm import LLM
from camelid.api.sessions.session import Session
from camelid.cli.format import human
from camelid.loading.lora import SCALE
from camelid.requests.options import Message
from camelid.requests.output_text import Completion, Event

OFF, DEFAULT = "off", "default"  # no adapter, and those that act by themselves


def chosen(word: str) -> str | tuple[str, float]:
    """NAME, or NAME:SCALE as name and scale."""
    name, colon, scale = word.rpartition(":")
    return (name, float(scale)) if colon and SCALE.fullmatch(scale) else word


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

    async def feedback(self, done: Completion, rating: int, correction: str | None) -> int:
        """Gives feedback on an answer; returns the item's number."""
        ...

    def stats(self, talk: Talk) -> list[str]:
        """The lines of /stats that follow the last answer's lines."""
        ...

    def adapters(self, talk: Talk) -> list[str]:
        """The loaded adapters, a line each; those of the conversation are marked."""
        ...

    def choose(self, talk: Talk, words: str) -> None:
        """Makes adapters act on the conversation's further answers."""
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

    async def feedback(self, done: Completion, rating: int, correction: str | None) -> int:
        """As `LLM.afeedback`."""
        return await self.llm.afeedback(done, rating, correction=correction)

    def adapters(self, talk: Talk) -> list[str]:
        """The loaded adapters with their scales in this conversation; 0 for one that does not act."""
        selection, loaded = talk.options.get("adapter"), sorted(self.llm.adapters, key=lambda each: each.id)
        scales = {each.name: each.applied for each in loaded}
        if selection is not None:
            found = self.llm.running.adapters.select(selection)
            scales = {part.name: part.scale for part in found.parts} if found else {}
        return [
            f"{'*' if scales.get(each.name) else ' '} adapter {each.name}: rank {each.adapter.rank}, scale "
            f"{scales.get(each.name, 0.0):g}"
            for each in loaded
        ]

    def choose(self, talk: Talk, words: str) -> None:
        """NAME or NAME:SCALE, several with commas; "off" is none, "default" those that act by themselves."""
        if words == DEFAULT:
            talk.options.pop("adapter", None)
            return
        selection = [] if words == OFF else [chosen(word.strip()) for word in words.split(",")]
        self.llm.running.adapters.select(selection)
        talk.options["adapter"] = selection

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
