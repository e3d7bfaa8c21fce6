"""A chat's conversations and turns: the engine works on its own thread, this one shows what comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from itertools import count

from camelid.api.llm import LLM
from camelid.api.sessions.session import Session
from camelid.api.sessions.turns import content_text
from camelid.api.thread import EngineThread
from camelid.cli.chat_screen import Screen
from camelid.cli.command import Terminated
from camelid.errors import RequestError
from camelid.requests.completion import Completion, Event
from camelid.requests.options import Message


@dataclass(slots=True)
class Conversation:
    """Sessions by name, the one that goes on, and the last answer.

    Those in `foreign` are of other files and came beside a conversation; --session's file is not theirs.
    """

    llm: LLM
    thread: EngineThread
    screen: Screen
    session: Session
    is_verbose: bool = False
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    foreign: set[str] = field(default_factory=set[str])
    last: Completion | None = None

    def __post_init__(self) -> None:
        self.take(self.session)

    def take(self, session: Session) -> None:
        """Goes on with this session."""
        self.session = self.sessions[session.id] = session

    def adopt(self, session: Session) -> None:
        """Goes on with a file's session, under another name where a conversation has its own."""
        here = self.sessions.get(session.id)
        if here and here.messages:
            names = (f"{session.id}-{i}" for i in count(2))
            session.id = next(name for name in names if name not in self.sessions)
        self.foreign |= {session.id} if self.session.messages else set()
        self.take(session)

    def fork(self, name: str | None) -> None:
        """Goes on in a copy."""
        twin = self.session.fork(name)
        self.foreign |= {twin.id} if self.session.id in self.foreign else set()
        self.take(twin)

    def say(self, text: str | None) -> None:
        """One turn: the answer to a text, or to the messages as they are.

        Ctrl-C stops the answer, and what there is of it counts; a turn without an answer leaves no trace.
        Raises what made the turn fail.
        """
        before = list(self.session.messages)
        self.last = None
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
        if self.last:
            self._close_turn(self.last, before)

    async def _answer(self, text: str | None) -> AsyncGenerator[Event, None]:
        """On the engine's thread. The completion is kept however the turn ends."""
        turn = await self.session.start(text)
        try:
            async for event in turn:
                yield event
        finally:
            await turn.aclose()
            self.last = turn.completion

    def _close_turn(self, done: Completion, before: list[Message]) -> None:
        if done.finish_reason == "cancelled":
            if done.token_ids:
                self.screen.note("stopped; what was said so far counts")
            else:
                self.session.messages = before
                self.screen.note("stopped before an answer began; the question is taken back")
        if self.is_verbose:
            self.screen.note(figures(done))

    def undo(self) -> str:
        """Takes the last turn back; the text that began it. RequestError if there is none."""
        messages = self.session.messages
        begins = [i for i, message in enumerate(messages) if message["role"] == "user"]
        if not begins:
            raise RequestError("there is no turn to take back", field="messages")
        text = content_text(messages[begins[-1]])
        self.session.messages = messages[: begins[-1]]
        return text

    def regenerate(self) -> None:
        """Another answer in place of the last one, which stays if none comes."""
        before = list(self.session.messages)
        text = self.undo()
        n_left = len(self.session.messages)
        try:
            self.say(text)
        finally:
            if len(self.session.messages) == n_left:
                self.session.messages = before


def figures(done: Completion) -> str:
    """An answer's figures, as a line."""
    usage, timings = done.usage, done.timings
    parts = (
        f"{usage.completion_tokens} tokens ({done.finish_reason})",
        f"{timings.decode_tps:.1f} tok/s",
        f"first token after {timings.ttft_s:.3f} s",
        f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens were known",
        f"seed {done.seed}",
    )
    return " · ".join(parts)
