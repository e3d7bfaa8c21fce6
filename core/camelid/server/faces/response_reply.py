"""Replies of POST /v1/responses: one response object, or its events in OpenAI's order."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from camelid.api.sessions.turns import StartedTurn, shown_ids
from camelid.requests.chat import TextOf
from camelid.requests.output_text import Completion
from camelid.requests.transcript import Transcript, with_answer
from camelid.server.faces.common import Body, created, model_tokenizer, timings
from camelid.server.faces.response_output import Output
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import sse
from camelid.server.service.response_store import StoredResponse
from camelid.server.service.service import Service, Started
from camelid.text.tokenizers.tokenizer import Tokenizer

# Fields that a response repeats from its request, with the values of absent ones.
REPEATED: Mapping[str, Any] = {
    "instructions": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "user": None,
}
PADDED = (".delta",)  # ends of the types of events whose length would tell the text's
MAX_PADDING = 16


@dataclass(slots=True)
class Turn:
    """One turn of a conversation: its own input, all items, their messages, and their token ids.

    `text_of` turns the answer's token ids into text; it is known once the prompt is rendered.
    """

    inputs: Sequence[Body]
    items: Sequence[Body]
    messages: list[Body]
    transcript: Transcript
    text_of: TextOf | None = None


def nested(own: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The fields of a field that is an object; none if it is absent."""
    return own.get(name) or {}


class ResponseReply:
    """The reply to one request for a response. `store` keeps it, unless the request has store false."""

    def __init__(
        self, service: Service, own: Mapping[str, Any], turn: Turn, *, id: str,
        store: Callable[[StoredResponse], object], tokenizer: Tokenizer | None,
    ) -> None:  # fmt: skip
        self._service, self._own, self._turn, self._id = service, own, turn, id
        self._store, self._tokenizer = store, tokenizer
        self._created = created()
        self._output = Output(tokenizer)
        self._number = 0
        self._is_padded = bool(nested(own, "stream_options").get("include_obfuscation"))
        self._fixed: Body = {"id": id, "object": "response"}
        self._stops: tuple[str, ...] = ()

    async def whole(self, started: Started) -> Body:
        """The reply as one object."""
        body: Body = {}
        async with aclosing(self._events(started)) as events:
            async for event in events:
                body = event.get("response", body)
        return body

    async def frames(self, started: Started) -> AsyncIterator[bytes]:
        """The reply as server-sent events."""
        async with aclosing(self._events(started)) as events:
            async for event in events:
                yield self._frame(event)

    def failed_frame(self, error: ApiError) -> bytes:
        """The last event of a response that failed after its first byte."""
        fault = {"code": error.code or "server_error", "message": error.message}
        return self._frame({"type": "response.failed", "response": self._body("failed", error=fault)})

    def _frame(self, event: Body) -> bytes:
        """An event with its number, in the order in which events are sent."""
        numbered = {**event, "sequence_number": self._number}
        self._number += 1
        if self._is_padded and event["type"].endswith(PADDED):
            numbered["obfuscation"] = secrets.token_urlsafe(MAX_PADDING)[: secrets.randbelow(MAX_PADDING)]
        return sse(numbered, event["type"])

    async def _events(self, started: Started) -> AsyncGenerator[Body, None]:
        """The events of an answer, without their numbers. Raises the request's error."""
        self._fixed = self._fixed_fields(started)
        yield {"type": "response.created", "response": self._body("in_progress")}
        yield {"type": "response.in_progress", "response": self._body("in_progress")}
        async with aclosing(started.batches()) as batches:
            async for batch in batches:
                for event in batch.events:
                    for change in self._output.read(event):
                        yield change
                if batch.completion:
                    for change in self._finish(batch.completion):
                        yield change

    def _finish(self, done: Completion) -> Iterable[Body]:
        """The last events; the response is stored before the last of them is sent."""
        status = "incomplete" if done.finish_reason == "length" else "completed"
        yield from self._output.finish(status)
        body = self._body(status, done)
        if self._own.get("store", True):
            self._store(self._stored(body, done))
        yield {"type": f"response.{status}", "response": body, "timings": body["timings"]}

    def _stored(self, body: Body, done: Completion) -> StoredResponse:
        items = [*self._turn.items, *self._output.items]
        return StoredResponse(body, self._turn.inputs, items, self._transcript(done))

    def _transcript(self, done: Completion) -> Transcript:
        """The token ids of the conversation with this answer."""
        turn = self._turn
        assert turn.text_of is not None, "the prompt was rendered"
        started = StartedTurn([], turn.transcript, turn.text_of, self._stops)
        token_ids, tail = shown_ids(started, done)
        return with_answer(turn.transcript, token_ids, model_tokenizer(self._service), tail=tail)

    def _fixed_fields(self, started: Started) -> Body:
        """The fields that no event changes."""
        own, sampling, options = self._own, started.request.sampling, started.job.options
        self._stops = tuple(options.get("stop", ()))
        form = {"format": {"type": "text"}, "verbosity": "medium", **nested(own, "text")}
        repeated = {name: own.get(name, value) for name, value in REPEATED.items()}
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "model": self._service.shown_name,
            "system_fingerprint": started.fingerprint,
            "background": False,
            "max_output_tokens": options.get("max_tokens"),
            "service_tier": "default",
            "store": own.get("store", True),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "text": form,
            "truncation": "disabled",
            **repeated,
        }

    def _body(self, status: str, done: Completion | None = None, *, error: Body | None = None) -> Body:
        """The response object in a state."""
        is_cut = status == "incomplete"
        return {
            **self._fixed,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "completed_at": created() if done else None,
            "output": self._output.items,
            "usage": self._usage(done) if done else None,
            **({"timings": timings(done)} if done else {}),
        }

    def _usage(self, done: Completion) -> Body:
        counts = done.usage
        return {
            "input_tokens": counts.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": counts.cached_tokens,
                "cache_write_tokens": counts.prompt_tokens - counts.cached_tokens,
            },
            "output_tokens": counts.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": self._output.n_reasoning},
            "total_tokens": counts.prompt_tokens + counts.completion_tokens,
        }
