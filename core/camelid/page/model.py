"""The worker's side of web/client: a loaded model, its running requests and its sessions.

A call has an id, a method and JSON arguments. Messages to the client are JSON texts:

    progress   {"id", "what": "stages", "done", "total", "text"}   a stage of loading
    event      {"id", "event"}                                     one token of an answer
    notice     {"id", "text"}                                      the device was lost and is open again
    result     {"id", "value"}                                     the end of a call
    error      {"id", "error": {"name", "message", "facts"}}       the end of a call that failed
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from camelid.api.llm import LLM, Event, ModelSource
from camelid.api.load import aload
from camelid.api.sessions.session import Session
from camelid.errors import RequestError
from camelid.page.answer import Answer, Answering
from camelid.page.glass import Glass
from camelid.page.images import Decode, PageImages, decode
from camelid.page.records import (
    Json,
    completion_record,
    error_record,
    event_record,
    info_record,
    session_record,
)

Post = Callable[[str], object]  # sends a message to the client


class PageModel:
    """A loaded model for the client. A session's handle is the id of the call that made the session."""

    def __init__(self, llm: LLM, post: Post, decode: Decode = decode) -> None:
        self._llm = llm
        self._images = PageImages(decode)
        self._post = post
        self._answers: dict[int, Answer] = {}
        self._sessions: dict[int, Session] = {}
        self._glass = Glass(llm)

    async def call(
        self, id: int, method: str, arguments: str, source: ModelSource | None = None
    ) -> list[bytes]:
        """Runs a method of METHODS and sends its result or error. Returns a saved session's bytes in pieces.

        The caller sends these bytes itself, since they are no JSON.
        """
        given = json.loads(arguments) | ({"source": source} if source else {})
        try:
            value: Any = await METHODS[method](self, id, **given)
        except Exception as error:
            tell(self._post, id, "error", error=error_record(error))
            return []
        if method == "save":
            return value
        tell(self._post, id, "result", value=value)
        return []

    def cancel(self, id: int) -> None:
        """Ends a running answer within one step. Does nothing after the answer's end."""
        if answer := self._answers.get(id):
            answer.cancel()

    def read(self, id: int, n: int) -> None:
        """Notes that the client has read n more events of an answer."""
        if answer := self._answers.get(id):
            answer.read(n)

    async def generate(self, id: int, prompt: Any, options: Mapping[str, Any]) -> Json:
        """The answer to a prompt: text, token ids or messages."""

        async def begin() -> Answering:
            async with self._images.ahead(prompt):
                return await self._llm.asubmit(self._llm.request(prompt, **options))

        return await self._answer(id, begin())

    async def turn(self, id: int, session: int, text: str | None, options: Mapping[str, Any]) -> Json:
        """The answer in a session, with the session's new state as `session`."""
        found = self._session(session)

        async def begin() -> Answering:
            async with self._images.ahead(found.messages):
                return await found.start(text, **options)

        answer = await self._answer(id, begin())
        return answer | {"session": session_record(found)}

    async def tokenize(self, _: int, text: str, special: bool) -> list[int]:
        """Token ids of a text, without BOS."""
        return self._llm.tokenize(text, special)

    async def detokenize(self, _: int, token_ids: Sequence[int]) -> str:
        """Text of token ids, without control tokens."""
        return self._llm.detokenize(token_ids)

    async def token_bytes(self, _: int, token_ids: Sequence[int]) -> list[list[int]]:
        """The bytes of each token, of control tokens too; a character may be split between tokens."""
        return [list(self._llm.tokenizer.token_bytes(i)) for i in token_ids]

    async def count(self, _: int, prompt: Any, options: Mapping[str, Any]) -> int:
        """Number of a prompt's tokens, with those of the chat template."""
        async with self._images.ahead(prompt):
            return self._llm.request(prompt, **options).n_read

    async def embed(
        self, _: int, texts: str | Sequence[str], options: Mapping[str, Any] | None = None
    ) -> list[list[float]]:
        """The embedding of each text. `options` as in `LLM.embed`."""
        given: Any = options or {}
        return await self._llm.aembed(texts, **given)

    async def rerank(
        self, _: int, query: str, documents: Sequence[str], options: Mapping[str, Any] | None = None
    ) -> list[float]:
        """The relevance of each document. `options` as in `LLM.rerank`."""
        given: Any = options or {}
        return await self._llm.arerank(query, documents, **given)

    async def feedback(self, _: int, completion: str, rating: int, correction: str | None = None) -> int:
        """A thumb for an answer by its id; it acts until the page is closed. Returns the item's number."""
        return await self._llm.afeedback(completion, rating, correction=correction)

    async def forget(self, _: int, item: int) -> None:
        """Takes feedback back."""
        self._llm.learning.forget(item)

    async def load_adapter(
        self, _: int, source: ModelSource, name: str, scale: float, applies: bool, config: str
    ) -> str:
        """Loads an adapter of a GGUF file, or of safetensors with their adapter_config.json."""
        from camelid.loading.lora_source import fetch_adapter  # a page without adapters needs no reader

        adapter = await fetch_adapter(source, self._llm.running.file, name=name, config=config)
        return await self._llm.aload_adapter(adapter, scale=scale, applies=applies)

    async def unload_adapter(self, _: int, name: str) -> None:
        """Unloads an adapter."""
        self._llm.unload_adapter(name)

    async def adapters(self, _: int) -> list[Json]:
        """The loaded adapters: names, ranks, bytes, and their scales in requests that name them or none."""
        return [
            {"name": each.name, "rank": each.adapter.rank, "bytes": each.n_bytes, "scale": each.scale,
             "applied": each.applied}
            for each in self._llm.adapters
        ]  # fmt: skip

    async def session(
        self, id: int, options: Mapping[str, Any], system: str | None, messages: Sequence[Json]
    ) -> Json:
        """A new session; `options` are the defaults of its turns."""
        session = self._llm.session()
        session.options, session.messages = dict(options), list(messages)
        if system is not None:
            session.system = system
        self._sessions[id] = session
        return session_record(session)

    async def restore(self, id: int, source: ModelSource) -> Json:
        """The session of a file."""
        self._sessions[id] = session = await self._llm.arestore(source)
        return session_record(session)

    async def fork(self, id: int, session: int) -> Json:
        """A second session that continues from the same conversation."""
        self._sessions[id] = twin = self._session(session).fork()
        return session_record(twin)

    async def change(self, _: int, session: int, changes: Mapping[str, Any]) -> Json:
        """Sets `messages`, `options` or `system` of a session."""
        found = self._session(session)
        for name, value in changes.items():
            setattr(found, name, value)
        return session_record(found)

    async def reset(self, _: int, session: int) -> Json:
        """Clears a session's conversation."""
        found = self._session(session)
        found.reset()
        return session_record(found)

    async def save(self, _: int, session: int) -> list[bytes]:
        """The content of a session's file, in pieces."""
        return list(await self._session(session).acontent())

    async def release(self, _: int, session: int) -> None:
        """Forgets a session."""
        self._sessions.pop(session, None)

    async def plan(self, _: int, entry: str, held: int) -> Json:
        """The ops of a program."""
        return self._glass.plan(entry, held)

    async def source(self, _: int, entry: str, number: int) -> list[Json]:
        """The kernels of an op."""
        return self._glass.source(entry, number)

    async def profile(self, _: int, held: int) -> Json:
        """The time of each op of a decode step."""
        return await self._glass.profile(held)

    async def cache(self, _: int) -> Json:
        """The KV cache by units."""
        return self._glass.cache([*self._sessions.values()])

    async def token_texts(self, _: int, token_ids: Sequence[int]) -> list[str]:
        """The text of each token."""
        return self._glass.token_texts(token_ids)

    async def parity(self, id: int, records: Sequence[Json]) -> Json:
        """Outcomes of recorded cases on the model's device."""

        def report(done: int, total: int) -> None:
            tell(self._post, id, "progress", what="parity", done=done, total=total)

        return await self._glass.parity(records, report)

    async def _answer(self, id: int, starting: Awaitable[Answering]) -> Json:
        def send(event: Event) -> None:
            tell(self._post, id, "event", event=event_record(event))

        self._answers[id] = answer = Answer(send)
        try:
            return completion_record(await answer.run(starting))
        finally:
            del self._answers[id]

    def _session(self, handle: int) -> Session:
        """The session of a handle. Raises RequestError after its release."""
        if handle not in self._sessions:
            raise RequestError("this session was closed; make or restore another", field="session")
        return self._sessions[handle]


METHODS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "generate": PageModel.generate,
    "turn": PageModel.turn,
    "tokenize": PageModel.tokenize,
    "detokenize": PageModel.detokenize,
    "token_bytes": PageModel.token_bytes,
    "count": PageModel.count,
    "embed": PageModel.embed,
    "rerank": PageModel.rerank,
    "feedback": PageModel.feedback,
    "forget": PageModel.forget,
    "load_adapter": PageModel.load_adapter,
    "unload_adapter": PageModel.unload_adapter,
    "adapters": PageModel.adapters,
    "session": PageModel.session,
    "restore": PageModel.restore,
    "fork": PageModel.fork,
    "change": PageModel.change,
    "reset": PageModel.reset,
    "save": PageModel.save,
    "release": PageModel.release,
    "plan": PageModel.plan,
    "source": PageModel.source,
    "profile": PageModel.profile,
    "cache": PageModel.cache,
    "token_texts": PageModel.token_texts,
    "parity": PageModel.parity,
}


async def start(
    source: ModelSource, post: Post, id: int, options: str, mmproj: ModelSource | None = None
) -> PageModel | None:
    """Loads a model, with its vision tower from `mmproj`, and sends its facts, or the error.

    `options` are those of `load`, as JSON.
    """

    def progress(text: str, done: int, total: int) -> None:
        tell(post, id, "progress", what="stages", done=done, total=total, text=text)

    try:
        llm = await aload(source, progress=progress, **{"parallel": 1} | json.loads(options), mmproj=mmproj)
        if not llm.spec.embeds:
            await llm.start_learning()  # in memory: no feedback, no change
    except Exception as error:
        tell(post, id, "error", error=error_record(error))
        return None
    llm.on_recovery(lambda text: tell(post, id, "notice", text=text))
    tell(post, id, "result", value=info_record(llm, source.name))
    return PageModel(llm, post)


def tell(post: Post, id: int, kind: str, **facts: object) -> None:
    """Sends a message; a fact that JSON lacks becomes its text."""
    post(json.dumps({"id": id, "kind": kind, **facts}, default=str))
