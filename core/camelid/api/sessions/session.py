"""A conversation that goes on: its messages, and the ids that the model has read and written so far.

A session owns ids, not pages. What a turn computed stays in the engine's prefix cache as long as there is
room; then the next turn pays for its new tokens alone, and otherwise the ids are computed again. Either way
they are the same ids: an answer's are kept as the model drew them.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, TypeAlias, Unpack

from camelid.api.runner import Runner
from camelid.api.sessions.file import (
    SavedSession,
    SessionHeader,
    misfit,
    read_head,
    read_rows,
    write,
    write_whole,
)
from camelid.api.sessions.fingerprint import fingerprint
from camelid.api.sessions.turns import (
    StartedTurn,
    answer_message,
    content_text,
    n_system,
    next_turn,
    plain_text,
    remembered,
    said,
    spoken,
)
from camelid.engine.state_transfer import ExportedState
from camelid.errors import DeviceLostError, RequestError
from camelid.formats.source import drive_async
from camelid.loading.model_file import ModelSource
from camelid.loading.start import RunningModel
from camelid.plan.plan import StateSpec
from camelid.requests.build import CHAT_OPTIONS, RequestBuilder
from camelid.requests.chat import RenderedChat
from camelid.requests.completion import Completion, Event, TextStream
from camelid.requests.messages import checked_messages
from camelid.requests.options import Message, Options, checked_stops
from camelid.requests.output_text import ChatPrompt
from camelid.requests.rendering import Past, answered, ids_of, renewed
from camelid.sampling.checks import bias_pairs
from camelid.version import __version__

# Submits a conversation's ids with its options.
StartStream: TypeAlias = Callable[[ChatPrompt, Mapping[str, Any]], Awaitable[TextStream]]


@dataclass(frozen=True, slots=True)
class SessionHost:
    """The model that sessions talk to."""

    running: RunningModel
    builder: RequestBuilder
    runner: Runner
    start: StartStream

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """The state groups whose rows a file can hold."""
        return self.running.deployment.states


class Turn(AsyncIterator[Event]):
    """One answer as it comes. The session has it once the events end, or the turn is closed before."""

    def __init__(self, stream: TextStream, finish: Callable[[Completion], object]) -> None:
        self._stream = stream
        self._finish: Callable[[Completion], object] | None = finish

    @property
    def completion(self) -> Completion:
        """The whole answer, once it has ended; RequestError before."""
        return self._stream.completion

    async def __anext__(self) -> Event:
        try:
            return await anext(self._stream)
        except BaseException:
            await self.aclose()
            raise

    def close(self) -> None:
        """Ends the answer within one step; what there is of it counts."""
        self._stream.close()

    async def aclose(self) -> None:
        """The same, and waits until its units are free."""
        await self._stream.aclose()
        self._end()

    def _end(self) -> None:
        finish, self._finish = self._finish, None
        if finish:
            finish(self._stream.completion)

    def __del__(self) -> None:
        self._stream.close()
        self._end()


class Session:
    """One conversation with one model. `messages` may be changed between turns, for tool results or edits.

    A model without a chat template goes on with the text of all messages. `options` hold for every turn that
    does not say otherwise; `note` says what of a restored session could not be used. With `overflow` "shift"
    the model no longer reads the oldest turns once the context is full: `n_forgotten` messages behind the
    system's.
    """

    def __init__(self, host: SessionHost, id: str | None = None) -> None:  # noqa: A002
        self.id = id or secrets.token_hex(4)
        self.messages: list[Message] = []
        self.options: dict[str, Any] = {}
        self.note = ""
        self.n_forgotten = 0
        self._host = host
        self._past: Past = ()
        self._n_drawn = 0
        self._is_answering = False

    @property
    def token_ids(self) -> list[int]:
        """What the model has read and written."""
        return ids_of(self._past)

    @property
    def cached_rows(self) -> int:
        """Of how many of these ids the next turn finds the state computed, as things are now."""
        return self._host.running.engine.cached_rows(self.token_ids, self._salt)

    @property
    def system(self) -> str | None:
        """The system message's text, if there is one first. Setting it makes, changes or removes it."""
        return content_text(self.messages[0]) if n_system(self.messages) else None

    @system.setter
    def system(self, text: str | None) -> None:
        self.messages = [*said("system", text), *self.messages[n_system(self.messages) :]]

    def reset(self) -> None:
        """Forgets the conversation; the system message and the options stay."""
        self._check_idle()
        self.messages = [*said("system", self.system)]
        self._past, self._n_drawn, self.n_forgotten = (), 0, 0

    def fork(self, id: str | None = None) -> Session:  # noqa: A002
        """Another session that goes on from here."""
        self._check_idle()
        twin = Session(self._host, id)
        twin.messages, twin.options = deepcopy(self.messages), deepcopy(self.options)
        twin._past, twin._n_drawn, twin.n_forgotten = self._past, self._n_drawn, self.n_forgotten
        return twin

    async def start(self, text: str | None = None, **options: Unpack[Options]) -> Turn:
        """Begins a turn with a user's text, or with the messages as they are. Raises as `LLM.agenerate`."""
        self._check_idle()
        given: dict[str, Any] = {**self.options, **options}
        chat = {name: given.pop(name, None) for name in CHAT_OPTIONS}
        stops = checked_stops(given.get("stop", ()))
        asked, prompt = self._asked(said("user", text), chat, stops, forgets=given.get("overflow") == "shift")
        self._is_answering = True
        try:
            stream = await self._host.start(prompt, given)
        except BaseException:
            self._is_answering = False
            raise
        return Turn(stream, lambda done: self._finish(asked, done))

    def _asked(
        self, new: list[Message], chat: Mapping[str, Any], stops: tuple[str, ...], *, forgets: bool
    ) -> tuple[StartedTurn, ChatPrompt]:
        """The turn and its prompt. What fills the context is cut to half of it at once if it `forgets`, so
        that the turns to come find their past as it was."""
        messages, context = [*self.messages, *new], self._host.running.engine.context
        n, most = self.n_forgotten, context - 1
        n = n if n <= len(self.messages) else 0  # others have taken their place
        while True:
            rendered = self._rendered(remembered(messages, n), chat)
            past = renewed(self._past, rendered.rendering, self._host.builder.tokenizer)
            token_ids, later = ids_of(past), next_turn(messages, n)
            if not forgets or len(token_ids) <= most or later is None:
                return StartedTurn(new, past, rendered.text_of, stops, n), rendered.prompt(token_ids)
            n, most = later, context // 2

    def _rendered(self, messages: list[Message], chat: Mapping[str, Any]) -> RenderedChat:
        builder = self._host.builder
        if self._host.running.file.template is not None:
            return builder.chat.rendered(messages, **chat)
        return plain_text(messages, builder.tokenizer, chat)

    def _finish(self, asked: StartedTurn, done: Completion) -> None:
        """Takes over what was asked and answered; nothing of a turn that failed."""
        self._is_answering = False
        if done.finish_reason == "error":
            return
        token_ids, tail = spoken(asked, done)
        self._past = answered(asked.past, token_ids, self._host.builder.tokenizer, tail=tail)
        self.messages += [*asked.messages, answer_message(done)]
        self._n_drawn, self.n_forgotten = self._n_drawn + len(done.token_ids), asked.n_forgotten

    def _check_idle(self) -> None:
        if self._is_answering:
            raise RequestError(
                f"session {self.id!r} is still answering; end that turn first", field="session"
            )

    async def astream(
        self, text: str | None = None, **options: Unpack[Options]
    ) -> AsyncGenerator[Event, None]:
        """The answer token by token. Leaving the loop ends it; what there is of it counts."""
        turn = await self.start(text, **options)
        try:
            async for event in turn:
                yield event
        finally:
            await turn.aclose()

    async def agenerate(self, text: str | None = None, **options: Unpack[Options]) -> Completion:
        """The whole answer."""
        turn = await self.start(text, **options)
        try:
            async for _ in turn:
                pass
        finally:
            await turn.aclose()
        return turn.completion

    def stream(
        self, text: str | None = None, **options: Unpack[Options]
    ) -> Generator[Event, None, Completion]:
        """As `astream`, for code without an event loop; the generator returns the completion."""
        run, run_step = self._host.runner.run, self._host.runner.run_step
        turn = run(self.start(text, **options))
        try:
            while event := run_step(_next(turn)):
                yield event
            return turn.completion
        finally:
            run(turn.aclose())

    def generate(self, text: str | None = None, **options: Unpack[Options]) -> Completion:
        """As `agenerate`, for code without an event loop."""
        return self._host.runner.run(self.agenerate(text, **options))

    async def acontent(self) -> Iterator[bytes]:
        """The bytes of a session file, in pieces: messages, ids, and the rows that are still cached."""
        self._check_idle()
        running = self._host.running
        saved = SavedSession(
            id=self.id,
            model=PurePath(running.file.name).name,
            fingerprint=await fingerprint(running.file),
            messages=self.messages,
            past=self._past,
            options=_as_json(self.options),
            drawn=self._n_drawn,
            forgotten=self.n_forgotten,
            camelid=__version__,
        )
        return write(saved, self._host.states, await self._rows())

    async def _rows(self) -> ExportedState:
        """The rows that are still cached; none of a device that is gone, since the conversation counts."""
        try:
            return await self._host.running.engine.export_rows(self.token_ids, self._salt)
        except DeviceLostError:
            return ExportedState(0, {}, {})

    async def asave(self, path: str | PathLike[str]) -> None:
        """Writes the session file, whole or not at all. ModelFormatError if it cannot be written."""
        write_whole(Path(path), await self.acontent())

    def save(self, path: str | PathLike[str]) -> None:
        """As `asave`, for code without an event loop."""
        self._host.runner.run(self.asave(path))

    @classmethod
    async def restored(cls, host: SessionHost, source: ModelSource) -> Session:
        """The session that a file holds, with its rows in the prefix cache as far as they fit this model.

        Raises RequestError if it was saved with another model, and as `sessions.file.read_head`.
        """
        head = await drive_async(read_head(source.size, source.name), source.read)
        await _check_model(host, head)
        session = cls(host, head.saved.id)
        checked_messages(head.saved.messages)
        session.messages = list(head.saved.messages)
        session.options = dict(head.saved.options)
        session._past, session._n_drawn = head.saved.past, head.saved.drawn
        session.n_forgotten = head.saved.forgotten
        session.note = await session._take_rows(head, source)
        return session

    async def _take_rows(self, head: SessionHeader, source: ModelSource) -> str:
        """Puts the rows into the prefix cache; why not, if that cannot be."""
        reason = misfit(head, self._host.states)
        if reason:
            return f"its rows cannot be used, since {reason}; the next turn computes them again"
        exported = await drive_async(read_rows(head), source.read)
        try:
            n = await self._host.running.engine.import_rows(self.token_ids, exported, self._salt)
        except RequestError as error:  # no room: nothing is lost but time
            return f"its rows cannot be used: {error.message}"
        short = f"of its {head.n_rows} rows {n} could be used; the next turn computes the others again"
        return short if n < head.n_rows else ""

    @property
    def _salt(self) -> str:
        """Sessions share rows with others of the same salt only."""
        return str(self.options.get("cache_salt", ""))


def _as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as JSON has them: it has no infinity, and a bias of False bans a token as well."""
    pairs = bias_pairs(options.get("logit_bias"))
    if pairs is None:
        return dict(options)
    return {**options, "logit_bias": [(token, False if bias == -inf else bias) for token, bias in pairs]}


async def _check_model(host: SessionHost, head: SessionHeader) -> None:
    saved, ours = head.saved, await fingerprint(host.running.file)
    if saved.fingerprint != ours:
        raise RequestError(
            f"{head.path} was saved with {saved.model} ({saved.fingerprint[:8]}), and this model is "
            f"{PurePath(host.running.file.name).name} ({ours[:8]}); load the one that it was saved with",
            field="session",
        )


async def _next(turn: Turn) -> Event | None:
    return await anext(turn, None)
