"""What the page's worker calls: load a model, talk, stop, save and open sessions.

Messages to the page are JSON, as text:

    progress   {"what": "stages", "done", "total", "text"}       loading goes on
    ready      {"model", "backend", "device", "why", "context", "weight_bytes"}
    token      {"text", "token_id"}                              one event of the answer
    done       {"text", "token_ids", "finish_reason", ...}       the figures of the answer
    opened     {"messages", "note", "tokens", "cached_rows"}     a session took the place of the conversation

Problems are raised, and told by web/worker.js.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from camelid.api.llm import LLM, Completion, ModelSource, aload
from camelid.api.sessions.session import Session, Turn

Tell = Callable[[str], object]


class PageSession:
    """A loaded model, the session with it, and the answer that it is giving.

    One answer at a time, as a page has it. `defaults` are the options of new sessions, as JSON.
    """

    def __init__(self, llm: LLM, tell: Tell, defaults: str) -> None:
        self._llm = llm
        self._tell = tell
        self._defaults = defaults
        self._session = self._new()
        self._turn: Turn | None = None
        self._is_stopped = False

    async def ask(self, text: str, options: str, alone: bool) -> None:
        """Streams the answer to a text, in the session or `alone`; `options` are JSON."""
        session = self._new() if alone else self._session
        self._is_stopped = False
        self._turn = turn = await session.start(text, **json.loads(options))
        if self._is_stopped:  # while programs were compiled for it
            turn.close()
        try:
            async for event in turn:
                self._send("token", text=event.text, token_id=event.token_id)
        finally:
            self._turn = None
            await turn.aclose()
        self._send("done", **_figures(turn.completion), n_forgotten=session.n_forgotten)

    def stop(self) -> None:
        """Ends the answer within one step."""
        self._is_stopped = True
        if self._turn:
            self._turn.close()

    def reset(self) -> None:
        """Begins a new session."""
        self._session = self._new()

    async def save(self) -> list[bytes]:
        """The session's file, in pieces."""
        return list(await self._session.acontent())

    async def open(self, source: ModelSource) -> None:
        """Goes on with a saved session."""
        self._session = session = await self._llm.arestore(source)
        facts = {"messages": session.messages, "note": session.note, "tokens": len(session.token_ids)}
        self._send("opened", **facts, cached_rows=session.cached_rows)

    def _new(self) -> Session:
        session = self._llm.session()
        session.options = {"overflow": "shift", **json.loads(self._defaults)}
        return session

    def _send(self, kind: str, **facts: object) -> None:
        self._tell(json.dumps({"kind": kind, **facts}))


async def start(source: ModelSource, tell: Tell, options: str, defaults: str) -> PageSession:
    """Loads a model; `options` are those of `load`, as JSON. Raises CamelidError if that cannot be done here.

    `why` in the page's `ready` is the reason against webgpu, where it was asked first and not taken.
    """

    def progress(what: str, stage: int, of: int) -> None:
        tell(json.dumps({"kind": "progress", "what": "stages", "done": stage, "total": of, "text": what}))

    llm = await aload(source, parallel=1, progress=progress, **json.loads(options))
    chat, device = PageSession(llm, tell, defaults), llm.capabilities
    facts = {"model": source.name, "backend": device.name, "device": device.device, "context": llm.context}
    facts |= {"why": _why_not_webgpu(llm), "weight_bytes": llm.weight_bytes}
    tell(json.dumps({"kind": "ready", **facts}))
    return chat


def _why_not_webgpu(llm: LLM) -> str:
    """What the backend's note says after the name of the one that was taken: why it was not the first."""
    device = llm.capabilities
    return llm.backend_note.removeprefix(f"{device.name} on {device.device}").removeprefix("; not webgpu: ")


def _figures(answer: Completion) -> dict[str, Any]:
    return {
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.usage.prompt_tokens,
        "cached_tokens": answer.usage.cached_tokens,
        "ttft_s": answer.timings.ttft_s,
        "decode_tps": answer.timings.decode_tps,
        "n_steps": answer.timings.n_steps,
    }
