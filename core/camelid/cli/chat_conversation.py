"""Sessions and turns of `camelid chat`. The engine runs on its own thread; this thread prints the events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from itertools import count

from camelid.api.sessions.turns import content_text
from camelid.api.thread import EngineThread
from camelid.cli.chat_model import Model, Talk
from camelid.cli.chat_screen import Screen
from camelid.cli.command import Terminated
from camelid.errors import RequestError
from camelid.requests.options import Message
from camelid.requests.output_text import Completion, Event


@dataclass(slots=True)
class Conversation:
    """Sessions by name, the current one, and the last completion.

    Sessions in `foreign` were loaded from other files during a conversation and are never saved to the file
    of --session.
    """

    model: Model
    thread: EngineThread
    screen: Screen
    session: Talk
    is_verbose: bool = False
    sessions: dict[str, Talk] = field(default_factory=dict[str, Talk])
    foreign: set[str] = field(default_factory=set[str])
    last: Completion | None = None
    images: list[Message] = field(default_factory=list[Message])  # parts of the next message

    def __post_init__(self) -> None:
        self.switch_to(self.session)

    def switch_to(self, session: Talk) -> None:
        """Makes a session the current one."""
        self.session = self.sessions[session.id] = session

    def adopt(self, session: Talk) -> None:
        """Switches to a restored session, renamed if a conversation already has its name."""
        existing = self.sessions.get(session.id)
        if existing and existing.messages:
            names = (f"{session.id}-{i}" for i in count(2))
            session.id = next(name for name in names if name not in self.sessions)
        self.foreign |= {session.id} if self.session.messages else set()
        self.switch_to(session)

    def fork(self, name: str | None) -> None:
        """Switches to a copy of the current session."""
        twin = self.session.fork(name)
        self.foreign |= {twin.id} if self.session.id in self.foreign else set()
        self.switch_to(twin)

    def send(self, text: str | None) -> None:
        """One turn: streams the answer to a text, or to the messages so far.

        Ctrl-C stops the answer and keeps its text so far; a turn stopped before any token is removed. Raises
        the error of a failed turn.
        """
        before = list(self.session.messages)
        self.last = None
        if text is not None and self.images:
            parts = [*self.images, {"type": "text", "text": text}]
            self.session.messages = [*before, {"role": "user", "content": parts}]
            self.images, text = [], None
        feed = self.thread.stream(self._answer(text))
        try:
            for event in feed:
                self.screen.event(event)
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt, Terminated):
                raise
        finally:
            feed.close()
            self.screen.end(self.last.text if self.last else "")
            if self.last is None or self.last.finish_reason == "error":
                self.session.messages = before
        if self.last:
            self._close_turn(self.last, before)

    async def _answer(self, text: str | None) -> AsyncGenerator[Event, None]:
        """Streams a turn on the engine's thread; sets `last` also after an error."""
        turn = await self.session.start(text)
        try:
            async for event in turn:
                yield event
        finally:
            await turn.aclose()
            self.last = turn.completion

    def _close_turn(self, done: Completion, before: list[Message]) -> None:
        if done.finish_reason == "cancelled":
            if done.usage.completion_tokens:
                self.screen.note("stopped; the answer so far is kept")
            else:
                self.session.messages = before
                self.screen.note("stopped before the first token; the message is removed")
        if self.is_verbose:
            self.screen.note(figures(done))

    def undo(self) -> str:
        """Removes the last turn and returns its message's text. Raises RequestError without a turn."""
        messages = self.session.messages
        starts = [i for i, message in enumerate(messages) if message["role"] == "user"]
        if not starts:
            raise RequestError("no turn to undo", field="messages")
        text = content_text(messages[starts[-1]])
        self.session.messages = messages[: starts[-1]]
        return text

    def regenerate(self) -> None:
        """Replaces the last answer by a new one; a turn without any token restores the old one."""
        before = list(self.session.messages)
        self.undo()
        n_left = len(self.session.messages)
        self.session.messages = before[: n_left + 1]
        try:
            self.send(None)
        finally:
            if len(self.session.messages) <= n_left + 1:
                self.session.messages = before


def figures(done: Completion) -> str:
    """Statistics of a completion, on one line; a server may keep prompt tokens and seed to itself."""
    usage, timings = done.usage, done.timings
    cached = f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens cached"
    parts = (
        f"{usage.completion_tokens} tokens ({done.finish_reason})",
        f"{timings.decode_tps:.1f} tok/s",
        f"first token after {timings.ttft_s:.3f} s",
        *([cached] if usage.prompt_tokens else []),
        *([f"seed {done.seed}"] if done.seed >= 0 else []),
    )
    return " · ".join(parts)
