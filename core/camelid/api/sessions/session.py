"""A session: a conversation's messages, and the token ids that the model has read and drawn.

A session owns token ids, not pages. The rows of a turn stay in the engine's prefix cache until they are
evicted: the next turn computes its new tokens only, or after an eviction all tokens. The token ids are the
same in both cases: an answer keeps the ids that the model drew.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, TypeAlias, Unpack

from camelid.api.runner import Runner
from camelid.api.sessions.file import (
    SavedSession,
    SessionHeader,
    encode_session,
    read_header,
    read_rows,
    rows_mismatch,
    write_atomically,
)
from camelid.api.sessions.fingerprint import fingerprint
from camelid.api.sessions.turns import (
    StartedTurn,
    content_text,
    forget_next_turn,
    n_system,
    plain_text,
    shown_ids,
    text_messages,
    without_oldest,
)
from camelid.engine.adapters import NO_ADAPTER, RowKeys
from camelid.engine.state_transfer import ExportedState
from camelid.errors import DeviceLostError, RequestError
from camelid.formats.source import drive_async
from camelid.loading.model_file import ModelSource
from camelid.loading.start import RunningModel
from camelid.plan.plan import StateSpec
from camelid.requests.build import CHAT_OPTIONS, RequestBuilder, checked_stops
from camelid.requests.chat import RenderedChat
from camelid.requests.messages import checked_messages
from camelid.requests.options import Message, Options
from camelid.requests.output_text import ChatPrompt, Completion, Event, TextStream, answer_message
from camelid.requests.transcript import Transcript, transcript_ids, updated_transcript, with_answer
from camelid.sampling.checks import bias_pairs
from camelid.version import __version__

# Submits a rendered conversation with the options of a request; returns the keys of its rows, too.
StartStream: TypeAlias = Callable[[ChatPrompt, Mapping[str, Any]], Awaitable[tuple[TextStream, RowKeys]]]


@dataclass(frozen=True, slots=True)
class SessionHost:
    """The parts of a loaded model that its sessions share."""

    running: RunningModel
    builder: RequestBuilder
    runner: Runner
    start: StartStream

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """The state groups of the model; a session file stores their rows."""
        return self.running.deployment.states


class Turn(AsyncIterator[Event]):
    """The stream of one answer. The session records the answer at its end or when the turn is closed."""

    def __init__(self, stream: TextStream, finish: Callable[[Completion], object]) -> None:
        self._stream = stream
        self._finish: Callable[[Completion], object] | None = finish

    @property
    def completion(self) -> Completion:
        """The complete answer. Raises RequestError before its end."""
        return self._stream.completion

    async def __anext__(self) -> Event:
        try:
            return await anext(self._stream)
        except BaseException:
            await self.aclose()
            raise

    def close(self) -> None:
        """Ends the answer within one step; the session keeps the answer so far."""
        self._stream.close()

    async def aclose(self) -> None:
        """As `close`; waits until the request's state is freed."""
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

    A model without a chat template continues the joined text of all messages. `options` are the defaults of
    every turn; `note` gives the reason if rows of a restored session could not be used. With `overflow`
    "shift" a full context drops the oldest turns: `n_forgotten` messages after the system message.

    The option `adapter` names the adapters of every turn. The rows of a turn belong to its adapters: a turn
    with others computes them again, and so does a restored session if an adapter of that name has changed.
    """

    def __init__(self, host: SessionHost, id: str | None = None) -> None:
        self.id = id or secrets.token_hex(4)
        self.messages: list[Message] = []
        self.options: dict[str, Any] = {}
        self.note = ""
        self.n_forgotten = 0
        self._host = host
        self._transcript: Transcript = ()
        self._n_drawn = 0
        self._row_keys = NO_ADAPTER  # of the last turn
        self._is_answering = False

    @property
    def token_ids(self) -> list[int]:
        """Token ids that the model has read and drawn."""
        return transcript_ids(self._transcript)

    @property
    def cached_rows(self) -> int:
        """The number of leading token ids whose rows are in the prefix cache now."""
        return self._host.running.engine.cached_rows(self.token_ids, self._salt, self._row_keys)

    def cached_units(self) -> dict[str, list[int]]:
        """Units of these rows, by state group."""
        keys, state = self._row_keys, self._host.running.engine.state
        found = state.match_prefix(keys.ids(self.token_ids), keys.salt(self._salt))
        return {group: [unit for unit in units if unit] for group, units in found.units.items()}

    @property
    def system(self) -> str | None:
        """The text of a leading system message, or None. Setting it adds, changes or removes the message."""
        return content_text(self.messages[0]) if n_system(self.messages) else None

    @system.setter
    def system(self, text: str | None) -> None:
        self.messages = [*text_messages("system", text), *self.messages[n_system(self.messages) :]]

    def reset(self) -> None:
        """Clears the conversation; the system message and the options stay."""
        self._check_idle()
        self.messages = [*text_messages("system", self.system)]
        self._transcript, self._n_drawn, self.n_forgotten = (), 0, 0
        self._row_keys = NO_ADAPTER

    def fork(self, id: str | None = None) -> Session:
        """A new session that continues from the same conversation."""
        self._check_idle()
        twin = Session(self._host, id)
        twin.messages, twin.options = deepcopy(self.messages), deepcopy(self.options)
        twin._transcript, twin._n_drawn = self._transcript, self._n_drawn
        twin._row_keys = self._row_keys
        twin.n_forgotten = self.n_forgotten
        return twin

    async def start(self, text: str | None = None, **options: Unpack[Options]) -> Turn:
        """Begins a turn with a user's text; without `text`, with the messages as they are.

        Raises as `LLM.agenerate`.
        """
        self._check_idle()
        merged: dict[str, Any] = {**self.options, **options}
        chat = {name: merged.pop(name, None) for name in CHAT_OPTIONS}
        stops = checked_stops(merged.get("stop", ()))
        shifts = merged.get("overflow") == "shift"
        turn, prompt = self._prepare(text_messages("user", text), chat, stops, shifts=shifts)
        self._is_answering = True
        try:
            stream, keys = await self._host.start(prompt, merged)
        except BaseException:
            self._is_answering = False
            raise
        return Turn(stream, lambda done: self._finish(turn, done, keys))

    def _prepare(
        self, new: list[Message], chat: Mapping[str, Any], stops: tuple[str, ...], *, shifts: bool
    ) -> tuple[StartedTurn, ChatPrompt]:
        """The turn and its prompt.

        With `shifts`, a full context is cut to half its length at once, so that the prompts of the next
        turns begin with the same tokens and hit the prefix cache.
        """
        messages, context = [*self.messages, *new], self._host.running.engine.context
        n, most = self.n_forgotten, context - 1
        n = n if n <= len(self.messages) else 0  # the caller has replaced the messages
        while True:
            rendered = self._render(without_oldest(messages, n), chat)
            tokenizer = self._host.builder.tokenizer
            transcript = updated_transcript(self._transcript, rendered.rendering, tokenizer)
            token_ids, next_n = transcript_ids(transcript), forget_next_turn(messages, n)
            if not shifts or len(token_ids) <= most or next_n is None:
                turn = StartedTurn(new, transcript, rendered.text_of, stops, n)
                prompt = replace(rendered.prompt(token_ids), messages=messages, tools=chat.get("tools") or ())
                return turn, prompt
            n, most = next_n, context // 2

    def _render(self, messages: list[Message], chat: Mapping[str, Any]) -> RenderedChat:
        builder = self._host.builder
        if self._host.running.file.template is not None:
            return builder.chat.rendered(messages, **chat)
        return plain_text(messages, builder.tokenizer, chat)

    def _finish(self, turn: StartedTurn, done: Completion, keys: RowKeys) -> None:
        """Records the messages and token ids of the turn; a failed turn leaves the session unchanged."""
        self._is_answering = False
        if done.finish_reason == "error":
            return
        token_ids, tail = shown_ids(turn, done)
        tokenizer = self._host.builder.tokenizer
        self._transcript = with_answer(turn.transcript, token_ids, tokenizer, tail=tail)
        self.messages += [*turn.messages, answer_message(done)]
        self._n_drawn, self.n_forgotten = self._n_drawn + len(done.token_ids), turn.n_forgotten
        self._row_keys = keys

    def _check_idle(self) -> None:
        if self._is_answering:
            raise RequestError(
                f"session {self.id!r} is still answering; end that turn first", field="session"
            )

    async def astream(
        self, text: str | None = None, **options: Unpack[Options]
    ) -> AsyncGenerator[Event, None]:
        """The answer token by token. Leaving the loop ends the answer; the session keeps its text so far."""
        turn = await self.start(text, **options)
        try:
            async for event in turn:
                yield event
        finally:
            await turn.aclose()

    async def agenerate(self, text: str | None = None, **options: Unpack[Options]) -> Completion:
        """The complete answer."""
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
        """As `astream`, without an event loop; the generator returns the completion."""
        runner = self._host.runner
        loop = runner.loop()
        turn = runner.run(self.start(text, **options))
        try:
            while event := loop.run_until_complete(_next(turn)):
                yield event
            return turn.completion
        finally:
            runner.run(turn.aclose())

    def generate(self, text: str | None = None, **options: Unpack[Options]) -> Completion:
        """As `agenerate`, without an event loop."""
        return self._host.runner.run(self.agenerate(text, **options))

    async def acontent(self) -> Iterator[bytes]:
        """The bytes of a session file in chunks: messages, token ids, and the rows still cached."""
        self._check_idle()
        running = self._host.running
        saved = SavedSession(
            id=self.id,
            model=PurePath(running.file.name).name,
            fingerprint=await fingerprint(running.file),
            messages=self.messages,
            transcript=self._transcript,
            options=_as_json(self.options),
            n_drawn=self._n_drawn,
            n_forgotten=self.n_forgotten,
            camelid=__version__,
            row_keys=self._row_keys,
        )
        return encode_session(saved, self._host.states, await self._export_rows())

    async def _export_rows(self) -> ExportedState:
        """The rows still cached; none from a lost device, so that the conversation can still be saved."""
        try:
            engine = self._host.running.engine
            return await engine.export_rows(self.token_ids, self._salt, self._row_keys)
        except DeviceLostError:
            return ExportedState(0, {}, {})

    async def asave(self, path: str | PathLike[str]) -> None:
        """Writes the session file atomically. Raises ModelFormatError if it cannot be written."""
        write_atomically(Path(path), await self.acontent())

    def save(self, path: str | PathLike[str]) -> None:
        """As `asave`, without an event loop."""
        self._host.runner.run(self.asave(path))

    @classmethod
    async def restored(cls, host: SessionHost, source: ModelSource) -> Session:
        """The session of a file. Its rows go into the prefix cache as far as they fit this model.

        Raises RequestError if another model saved the file, and as `sessions.file.read_header`.
        """
        header = await drive_async(read_header(source.size, source.name), source.read)
        await _check_model(host, header)
        saved = header.saved
        session = cls(host, saved.id)
        checked_messages(saved.messages)
        session.messages = list(saved.messages)
        session.options = dict(saved.options)
        session._transcript, session._n_drawn = saved.transcript, saved.n_drawn
        session.n_forgotten = saved.n_forgotten
        session._row_keys = saved.row_keys
        session.note = await session._import_rows(header, source)
        return session

    async def _import_rows(self, header: SessionHeader, source: ModelSource) -> str:
        """Puts the rows into the prefix cache; returns the reason if some could not be used, else ""."""
        reason = rows_mismatch(header, self._host.states)
        if header.n_rows and not reason:
            reason = self._adapter_mismatch()
        if reason:
            return f"the session's rows cannot be used: {reason}; the next turn recomputes them"
        exported = await drive_async(read_rows(header), source.read)
        try:
            engine = self._host.running.engine
            n = await engine.import_rows(self.token_ids, exported, self._salt, self._row_keys)
        except RequestError as error:  # no room: the session works, and its next turn takes longer
            return f"the session's rows cannot be used: {error.message}"
        note = f"{n} of the session's {header.n_rows} rows could be used; the next turn recomputes the others"
        return note if n < header.n_rows else ""

    def _adapter_mismatch(self) -> str:
        """The reason why no turn with the session's adapter can use its rows; "" if one can."""
        try:
            found = self._host.running.adapters.select(self.options.get("adapter"), self.token_ids)
        except RequestError as error:
            return error.message
        is_same = (found.key if found else b"") == self._row_keys.adapter
        return "" if is_same else "they were computed with another adapter, or with none"

    @property
    def _salt(self) -> str:
        """The cache salt: sessions share rows only with requests of the same salt."""
        return str(self.options.get("cache_salt", ""))


def _as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as JSON values: JSON lacks -inf, so a bias of -inf becomes False."""
    pairs = bias_pairs(options.get("logit_bias"))
    if pairs is None:
        return dict(options)
    return {**options, "logit_bias": [(token, False if bias == -inf else bias) for token, bias in pairs]}


async def _check_model(host: SessionHost, header: SessionHeader) -> None:
    saved, ours = header.saved, await fingerprint(host.running.file)
    if saved.fingerprint != ours:
        raise RequestError(
            f"{header.path} was saved with {saved.model} ({saved.fingerprint[:8]}), but this model is "
            f"{PurePath(host.running.file.name).name} ({ours[:8]}); load the model that saved the session",
            field="session",
        )


async def _next(turn: Turn) -> Event | None:
    return await anext(turn, None)
