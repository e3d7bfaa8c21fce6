"""The API of the page's worker: load a model, answer, stop, save and open sessions.

Messages to the page are JSON texts:

    progress   {"what": "stages", "done", "total", "text"}       loading progress
    ready      {"model", "backend", "device", "why", "context", "weight_bytes"}
    token      {"text", "token_id"}                              one token of the answer
    notice     {"text"}                                          the device was lost and is open again
    done       {"text", "token_ids", "finish_reason", ...}       the answer and its statistics
    opened     {"messages", "note", "tokens", "cached_rows"}     a saved session replaced the conversation

Errors are raised; web/worker.js catches them and sends them to the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from camelid.api.llm import LLM, Completion, ModelSource
from camelid.api.load import aload
from camelid.api.sessions.session import Session, Turn

Post = Callable[[str], object]  # sends a message to the page


class PageSession:
    """A loaded model, its current session, and the running turn.

    Runs one answer at a time. `defaults` are the options of new sessions, as JSON.
    """

    def __init__(self, llm: LLM, post: Post, defaults: str) -> None:
        self._llm = llm
        self._post = post
        self._defaults = defaults
        self._session = self._new()
        self._turn: Turn | None = None
        self._is_stopped = False

    async def ask(self, text: str, options: str, alone: bool) -> None:
        """Streams the answer to a text in the current session, or a new one if `alone`; `options` is JSON."""
        session = self._new() if alone else self._session
        self._is_stopped = False
        self._turn = turn = await session.start(text, **json.loads(options))
        if self._is_stopped:  # stopped while its programs were compiled
            turn.close()
        try:
            async for event in turn:
                self._send("token", text=event.text, token_id=event.token_id)
        finally:
            self._turn = None
            await turn.aclose()
        self._send("done", **_figures(turn.completion), n_forgotten=session.n_forgotten)

    def stop(self) -> None:
        """Stops the running answer within one step."""
        self._is_stopped = True
        if self._turn:
            self._turn.close()

    def reset(self) -> None:
        """Starts a new session."""
        self._session = self._new()

    async def save(self) -> list[bytes]:
        """The content of the session's file, in pieces."""
        return list(await self._session.acontent())

    async def open(self, source: ModelSource) -> None:
        """Restores a saved session and makes it the current one."""
        self._session = session = await self._llm.arestore(source)
        facts = {"messages": session.messages, "note": session.note, "tokens": len(session.token_ids)}
        self._send("opened", **facts, cached_rows=session.cached_rows)

    def _new(self) -> Session:
        session = self._llm.session()
        session.options = {"overflow": "shift", **json.loads(self._defaults)}
        return session

    def _send(self, kind: str, **facts: object) -> None:
        self._post(json.dumps({"kind": kind, **facts}))


async def start(source: ModelSource, post: Post, options: str, defaults: str) -> PageSession:
    """Loads a model; `options` are those of `load`, as JSON. Raises CamelidError if loading fails.

    `why` in the message `ready` is the reason why webgpu, the first choice of auto, was not selected.
    """

    def progress(text: str, done: int, total: int) -> None:
        post(json.dumps({"kind": "progress", "what": "stages", "done": done, "total": total, "text": text}))

    llm = await aload(source, parallel=1, progress=progress, **json.loads(options))
    llm.on_recovery(lambda text: post(json.dumps({"kind": "notice", "text": text})))
    chat, device = PageSession(llm, post, defaults), llm.capabilities
    facts = {"model": source.name, "backend": device.name, "device": device.device, "context": llm.context}
    facts |= {"why": _why_not_webgpu(llm), "weight_bytes": llm.weight_bytes}
    post(json.dumps({"kind": "ready", **facts}))
    return chat


def _why_not_webgpu(llm: LLM) -> str:
    """The part of the backend's note that gives the reason against webgpu; "" if there is none."""
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
