"""What the page's worker calls: load a model, answer, stop.

Messages to the page are JSON, as text:

    progress   {"what": "stages", "done", "total", "text"}       loading goes on
    ready      {"model", "backend", "device", "context", "weight_bytes"}
    token      {"text", "token_id"}                              one event of the answer
    done       {"text", "token_ids", "finish_reason", ...}       the figures of the answer

Problems are raised, and told by web/worker.js.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from camelid.llm import LLM, aload
from camelid.opening import ModelSource
from camelid.stream import Stream

Tell = Callable[[str], object]


class Chat:
    """A loaded model and the answer that it is giving. One answer at a time, as a page has it."""

    def __init__(self, llm: LLM, tell: Tell) -> None:
        self._llm = llm
        self._tell = tell
        self._stream: Stream | None = None

    async def ask(self, messages: str, options: str) -> None:
        """Streams the answer to a conversation; both arguments are JSON."""
        prompt: list[dict[str, object]] = json.loads(messages)
        given: dict[str, Any] = json.loads(options)
        # A base model has no template, and goes on with the text.
        asked = prompt if self._llm.has_template else str(prompt[-1]["content"])
        self._stream = stream = self._llm.submit(asked, **given)
        try:
            async for event in stream:
                self._send("token", text=event.text, token_id=event.token_id)
        finally:
            self._stream = None
            await stream.aclose()
        self._send("done", **_figures(stream))

    def stop(self) -> None:
        """Ends the answer within one step."""
        if self._stream:
            self._stream.close()

    def _send(self, kind: str, **facts: object) -> None:
        self._tell(json.dumps({"kind": kind, **facts}))


async def start(source: ModelSource, tell: Tell, options: str) -> Chat:
    """Loads a model on webgpu. Raises CamelidError if that cannot be done here."""

    def progress(what: str, stage: int, of: int) -> None:
        tell(json.dumps({"kind": "progress", "what": "stages", "done": stage, "total": of, "text": what}))

    llm = await aload(source, backend="webgpu", parallel=1, progress=progress, **json.loads(options))
    chat, device = Chat(llm, tell), llm.capabilities
    facts = {"model": source.name, "backend": device.name, "device": device.device, "context": llm.context}
    tell(json.dumps({"kind": "ready", **facts, "weight_bytes": llm.weight_bytes}))
    return chat


def _figures(stream: Stream) -> dict[str, object]:
    answer = stream.completion
    return {
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.usage.prompt_tokens,
        "ttft_s": answer.timings.ttft_s,
        "decode_tps": answer.timings.decode_tps,
        "n_steps": answer.timings.n_steps,
    }
