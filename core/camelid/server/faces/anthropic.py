"""POST /v1/messages and /v1/messages/count_tokens, Anthropic's API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from camelid.requests.output_text import Completion
from camelid.server.faces.anthropic_blocks import Blocks, content_blocks, parts_of
from camelid.server.faces.anthropic_prompt import (
    continues,
    conversation,
    group,
    template_variables,
    tool_options,
)
from camelid.server.faces.common import Body, new_id
from camelid.server.fields.anthropic import COUNT, MESSAGES
from camelid.server.fields.table import Values
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, anthropic_body
from camelid.server.http.reply import JsonReply, Reply, StreamReply, sse
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.job import Job
from camelid.server.service.service import Service, Started

COUNTED = ("tools", "variables", "continue_final_message")  # options that the prompt depends on
REASONS = {"stop": "end_turn", "tool_calls": "tool_use"}


async def messages(server: Server, call: Call) -> Reply:
    """One answer to a conversation, whole or streamed."""
    values = MESSAGES.read(call.json(), call)
    service = await server.service(values.own.get("model"))
    id = new_id("msg_")
    started = await service.start(replace(messages_job(values, service, call), reply_id=id))
    call.closing.callback(started.close)
    reply = MessageReply(started, id, shows_thinking(values.own))
    headers = {"request-id": call.request_id}
    if values.own.get("stream"):
        return StreamReply(reply.frames(), lambda error: failed_frame(error, call.request_id), headers)
    return JsonReply(await reply.whole(), headers=headers)


async def count_tokens(server: Server, call: Call) -> Reply:
    """The tokens of a prompt, exactly as `messages` would read it."""
    values = COUNT.read(call.json(), call)
    service = await server.service(values.own.get("model"))
    with service.text_place():
        job = messages_job(values, service, call)
        counted = {name: job.options[name] for name in COUNTED if name in job.options}
        request = await service.request(replace(job, options=counted))
    return JsonReply({"input_tokens": request.n_prompt}, headers={"request-id": call.request_id})


def shows_thinking(own: Mapping[str, Any]) -> bool:
    return group(own, "thinking").get("display") != "omitted"


def messages_job(values: Values, service: Service, call: Call) -> Job:
    """The job of a request. An answer longer than the context ends there with its own stop reason."""
    own, chat = values.own, service.builder.chat
    options: Body = {**values.options, **tool_options(own), "overflow": "stop"}
    format_ = group(own, "output_config").get("format")
    if format_:
        options["json_schema"] = json.dumps(format_["schema"])
    if variables := service.template_variables(template_variables(own, chat, call)):
        options["variables"] = variables
    messages = conversation(own, service)
    if continues(messages):
        options["continue_final_message"] = True
    return Job(
        prompt=messages, options=options, endpoint="messages", request_id=call.request_id,
        key=call.key,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MessageReply:
    """The replies to one request."""

    started: Started
    id: str
    shows_thinking: bool

    async def whole(self) -> Body:
        """The reply as one object."""
        events, done = await self.started.collected()
        blocks = content_blocks(parts_of(events), shows_thinking=self.shows_thinking)
        return self.message(blocks, usage(done)) | self.end(done)

    def message(self, blocks: list[Body], counts: Body) -> Body:
        """A message object."""
        return {
            "id": self.id, "type": "message", "role": "assistant", "model": self.started.service.shown_name,
            "content": blocks, "stop_reason": None, "stop_sequence": None, "usage": counts,
        }  # fmt: skip

    def end(self, done: Completion) -> Body:
        """The fields that say why the answer ended."""
        return {"stop_reason": self.stop_reason(done), "stop_sequence": done.stop_sequence}

    def stop_reason(self, done: Completion) -> str:
        if done.stop_sequence is not None:
            return "stop_sequence"
        if done.finish_reason != "length":
            return REASONS[done.finish_reason]
        most = self.started.request.max_tokens
        is_full = most is not None and done.usage.completion_tokens >= most
        return "max_tokens" if is_full else "model_context_window_exceeded"

    async def frames(self) -> AsyncIterator[bytes]:
        """The reply as server-sent events."""
        blocks = Blocks(shows_thinking=self.shows_thinking)
        first = self.first_events()
        async with aclosing(self.started.batches()) as batches:
            async for batch in batches:
                events, first = [*first, *blocks.events(parts_of(batch.events))], []
                if batch.completion:
                    events += [*blocks.close(), *self.last_events(batch.completion)]
                if events:
                    yield b"".join(sse(event, event["type"]) for event in events)

    def first_events(self) -> list[Body]:
        """The events before the first block; its count of the prompt includes cached tokens."""
        counts = {
            "input_tokens": self.started.request.n_prompt, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": 0,
        }  # fmt: skip
        return [{"type": "message_start", "message": self.message([], counts)}, {"type": "ping"}]

    def last_events(self, done: Completion) -> list[Body]:
        """The events after the last block."""
        delta = {"type": "message_delta", "delta": self.end(done), "usage": usage(done)}
        return [delta, {"type": "message_stop"}]


def usage(done: Completion) -> Body:
    """Anthropic's counts: input tokens exclude cached ones."""
    n_cached = done.usage.cached_tokens
    return {
        "input_tokens": done.usage.prompt_tokens - n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
        "output_tokens": done.usage.completion_tokens,
    }


def failed_frame(error: ApiError, request_id: str) -> bytes:
    """The last event of a stream that failed after its first byte."""
    return sse(anthropic_body(error, request_id), "error")


ROUTES = (
    Route("POST", "/v1/messages", messages, MESSAGES),
    Route("POST", "/v1/messages/count_tokens", count_tokens, COUNT),
)
