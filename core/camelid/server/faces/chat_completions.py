"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

from camelid.requests.options import Message
from camelid.requests.output_text import Completion, Event
from camelid.server.faces.common import (
    Body,
    answer_limit_s,
    check_stream_options,
    created,
    model_tokenizer,
    new_id,
    scheduling_options,
    timings,
    token_logprobs,
    usage,
)
from camelid.server.faces.images import no_media, of_data_uri
from camelid.server.faces.native_reply import final_body
from camelid.server.faces.openai_stream import CHAT_KIND, DONE, ChunkHead, failed_frame
from camelid.server.faces.progress import LiveTimings, prompt_progress, wants_progress
from camelid.server.fields.openai import CHAT
from camelid.server.fields.table import Values
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply, StreamReply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.host import Batch
from camelid.server.service.job import Job
from camelid.server.service.service import Service, Started
from camelid.text.templates.template import STANDARD
from camelid.text.toolcalls.parts import CallArguments, CallStart, Content, Part, Reasoning, ToolCall

# OpenAI's roles that templates do not know -> the role that they mean.
ROLES = {"developer": "system"}
ANSWER_FIELDS = ("refusal", "annotations", "audio", "function_call")  # of answers that clients send back
# Type of a content part -> the input that it would be.
MEDIA = {
    "input_image": "image", "image": "image", "input_audio": "audio", "audio": "audio",
    "file": "file", "input_file": "file", "video_url": "video",
}  # fmt: skip
# The delta that opens a choice: null as llama.cpp has it, so that no client shows an empty text.
ROLE: Mapping[str, Any] = {"role": "assistant", "content": None}


async def chat_completions(server: Server, call: Call) -> Reply:
    """One answer to a conversation, whole or streamed."""
    values = CHAT.read(call.json(), call)
    service = await server.service(values.own.get("model"))
    id = new_id("chatcmpl-")
    job = replace(chat_job(values, service, call), reply_id=id)
    started = await service.start(job)
    call.closing.callback(started.close)
    own = {**values.own, "verbose": values.own.get("verbose") or server.slots.is_verbose}
    reply = ChatReply(service, own, id)
    if values.own.get("stream"):
        return StreamReply(reply.frames(started), failed_frame)
    return JsonReply(await reply.whole(started))


def chat_job(values: Values, service: Service, call: Call) -> Job:
    """The job of a chat request."""
    own, options = values.own, values.options
    check_stream_options(own)
    options |= answer_options(own, options)
    options |= tool_options(own)
    if continues(own, options):
        options["continue_final_message"] = True
        options.pop("add_generation_prompt", None)  # its text opens the message that goes on
    if own.get("reasoning_format") == "none":
        options["reasoning_format"] = "none"
    variables = known_variables(template_variables(own, service), service, call)
    if variables:
        options["variables"] = variables
    return Job(
        prompt=cast("Sequence[Message]", [openai_message(message, service) for message in own["messages"]]),
        options=options,
        n=own.get("n", 1),
        endpoint="chat_completions",
        request_id=call.request_id,
        key=call.key,
        id_slot=own.get("id_slot", -1),
        reports_progress=wants_progress(own),
        max_answer_s=answer_limit_s(own),
    )


def continues(own: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """True if the answer continues the last message: by request, or by default an assistant's."""
    wanted = own.get("continue_final_message")
    if wanted and options.get("add_generation_prompt"):
        raise ApiError(
            400, "add_generation_prompt and continue_final_message are both true; leave one out",
            param="continue_final_message",
        )  # fmt: skip
    if wanted is not None or not is_answer_text(own["messages"][-1]):
        return bool(wanted)
    if any(map(is_answer_text, own["messages"][-2:-1])):
        raise ApiError(
            400, "the last two messages are the assistant's; join them, or end with a user's message",
            param="messages",
        )  # fmt: skip
    return True


def is_answer_text(message: object) -> bool:
    """True for an assistant's message that has text and no calls."""
    if not isinstance(message, dict):
        return False
    fields = cast("dict[str, object]", message)
    return fields.get("role") == "assistant" and bool(fields.get("content")) and not fields.get("tool_calls")


def answer_options(own: Mapping[str, Any], options: Mapping[str, Any]) -> Body:
    """Options that combine several fields: tokens, log-probabilities, priority and time."""
    found: Body = {}
    if options.get("max_tokens", 0) < 0:  # llama.cpp's "no bound"
        found["max_tokens"] = None
    elif options.get("max_tokens") == 0:
        raise ApiError(400, "max_tokens is 0, expected at least 1", param="max_tokens")
    if own.get("top_logprobs") is not None and not own.get("logprobs"):
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    if own.get("logprobs") or own.get("n_probs"):
        found["logprobs"] = own.get("top_logprobs", own.get("n_probs", 0))
    return found | scheduling_options(own)


def tool_options(own: Mapping[str, Any]) -> Body:
    """The options of tools; an empty list means none."""
    names = ("tools", "tool_choice", "parallel_tool_calls")
    found = {name: own[name] for name in names if own.get(name) is not None}
    if not found.get("tools"):
        found.pop("tools", None)
        found.pop("parallel_tool_calls", None)
        if found.get("tool_choice") in ("auto", "none"):
            found.pop("tool_choice")
    return found


def template_variables(own: Mapping[str, Any], service: Service) -> Body:
    """Variables of the chat template: the named ones, and reasoning effort where the template reads it."""
    named: Body = own.get("chat_template_kwargs") or {}
    effort = own.get("reasoning_effort")
    if effort is None:
        return service.template_variables(named)
    known = service.builder.chat.variables
    if "reasoning_effort" in known:
        return service.template_variables({"reasoning_effort": effort, **named})
    if "enable_thinking" in known:
        return service.template_variables({"enable_thinking": effort != "none", **named})
    if effort == "none":
        return service.template_variables(named)
    raise ApiError(
        400, "this model's chat template has no reasoning effort; leave reasoning_effort out",
        param="reasoning_effort",
    )  # fmt: skip


def known_variables(variables: Body, service: Service, call: Call) -> Body:
    """The variables that the template reads. Others become warnings: many clients send `enable_thinking`.

    Raises ApiError 400 for another variable under --strict.
    """
    if not variables:
        return {}
    known = service.builder.chat.variables | STANDARD  # the renderer's own names are refused there
    for name in variables.keys() - known:
        call.unknown(f"chat_template_kwargs.{name}")
    return {name: value for name, value in variables.items() if name in known}


def openai_message(message: object, service: Service) -> object:
    """A message in the form that templates read: known roles, no fields that are null, images decoded."""
    if not isinstance(message, dict):
        return message
    fields = cast("dict[str, object]", message)
    kept = {name: value for name, value in fields.items() if value is not None or name == "content"}
    if "role" in kept:
        kept["role"] = ROLES.get(str(kept["role"]), kept["role"])
    for name in ANSWER_FIELDS:
        if not kept.get(name):
            kept.pop(name, None)
    check_media(kept.get("content"))
    if isinstance(kept.get("content"), list):
        items = enumerate(cast("list[object]", kept["content"]))
        kept["content"] = [with_image(part, f"messages.content[{i}]", service) for i, part in items]
    if is_text_parts(kept.get("content")):
        parts = cast("list[dict[str, str]]", kept["content"])
        joint = "" if kept.get("role") == "assistant" else "\n"  # as in llama-server
        kept["content"] = joint.join(part["text"] for part in parts)
    return kept


def with_image(part: object, place: str, service: Service) -> object:
    """The part; an `image_url` as the image of its data URI."""
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, object]", part)
    if fields.get("type") != "image_url":
        return fields
    value = fields.get("image_url")
    uri = cast("dict[str, object]", value).get("url") if isinstance(value, dict) else value
    return of_data_uri(uri, f"{place}.image_url.url", service)


def is_text_parts(content: object) -> bool:
    """True for parts of text alone, which are joined: not every template takes parts."""
    parts = cast("list[object]", content) if isinstance(content, list) else []
    fields = [cast("dict[str, object]", part) for part in parts if isinstance(part, dict)]
    texts = [part for part in fields if part.get("type") == "text" and isinstance(part.get("text"), str)]
    return bool(parts) and len(texts) == len(parts) and all(set(part) == {"type", "text"} for part in texts)


def check_media(content: object) -> None:
    """Raises ApiError 501 for an audio or file part, and for an image that is no `image_url`."""
    for part in cast("list[object]", content) if isinstance(content, list) else ():
        kind = cast("dict[str, object]", part).get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in MEDIA:
            raise no_media(MEDIA[kind], "messages")


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The replies to one chat request."""

    service: Service
    own: Mapping[str, Any]
    id: str

    async def whole(self, started: Started) -> Body:
        """The reply as one object."""
        events: dict[int, list[Event]] = {}
        done: dict[int, Completion] = {}
        async with aclosing(started.batches()) as batches:
            async for batch in batches:
                events.setdefault(batch.choice, []).extend(batch.events)
                if batch.completion:
                    done[batch.choice] = batch.completion
        completions = [done[choice] for choice in sorted(done)]
        more = {"__verbose": self.verbose_body(started, completions[0])} if self.is_verbose else {}
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": created(),
            "model": self.service.shown_name,
            "system_fingerprint": started.fingerprint,
            "choices": [self.choice(i, completion, events[i]) for i, completion in enumerate(completions)],
            "usage": usage(completions),
            "timings": timings(completions[0]),
            **more,
        }

    def choice(self, index: int, done: Completion, events: Sequence[Event]) -> Body:
        """One choice of a whole reply."""
        calls = [openai_call(call) for call in done.tool_calls if call.complete]
        message: Body = {"role": "assistant", "content": done.text or (None if calls else "")}
        if done.reasoning:
            message["reasoning_content"] = done.reasoning
        if calls:
            message["tool_calls"] = calls
        return {
            "index": index,
            "message": message,
            "logprobs": self.logprobs(events),
            "finish_reason": done.finish_reason,
        }

    def logprobs(self, events: Sequence[Event]) -> Body | None:
        if not (self.own.get("logprobs") or self.own.get("n_probs")):
            return None
        return {"content": token_logprobs(events, model_tokenizer(self.service)), "refusal": None}

    async def frames(self, started: Started) -> AsyncIterator[bytes]:
        """The reply as server-sent events."""
        with_usage, head = wants_usage(self.own), None
        done: dict[int, Completion] = {}
        times = [LiveTimings(started.request.n_prompt) for _ in range(started.job.n)]
        opened = set[int]()
        async with aclosing(started.batches()) as batches:
            async for batch in batches:
                frames: list[bytes] = []
                head = head or ChunkHead.of(  # before the first batch, the adapter is not decided
                    self.id, CHAT_KIND, self.service, started.request.adapter, with_usage=with_usage
                )
                live = times[batch.choice]
                live.note(batch)
                frames += self.progress_frames(head, batch)
                if batch.choice not in opened and (batch.events or batch.completion):
                    opened.add(batch.choice)
                    frames.append(head.choice(batch.choice, ROLE))
                frames += self.event_frames(head, batch.choice, batch.events, live)
                if batch.completion:
                    done[batch.choice] = batch.completion
                    more = self.last_fields(started, done)
                    reason = batch.completion.finish_reason
                    frames.append(head.choice(batch.choice, {}, finish_reason=reason, more=more))
                if frames:
                    yield b"".join(frames)
        if with_usage and head:
            yield head.usage(usage([done[choice] for choice in sorted(done)]), timings(done[0]))
        yield DONE

    @property
    def is_verbose(self) -> bool:
        return bool(self.own.get("verbose"))

    def verbose_body(self, started: Started, done: Completion) -> Body:
        """llama.cpp's own final object, with token ids only where they are asked for."""
        body = final_body(started, 0, done, self.own)
        return body if self.own.get("return_tokens") else body | {"tokens": []}

    def last_fields(self, started: Started, done: Mapping[int, Completion]) -> Body:
        """Further fields of the chunk that ends the last choice; none in the ends of others.

        Where the usage has a chunk of its own, the timings are in that.
        """
        if len(done) < started.job.n:
            return {}
        more: Body = {} if wants_usage(self.own) else {"timings": timings(done[0])}
        return more | (
            {"__verbose": self.verbose_body(started, done[0]) | {"content": ""}} if self.is_verbose else {}
        )

    def progress_frames(self, head: ChunkHead, batch: Batch) -> list[bytes]:
        """A chunk per report on the prompt."""
        if not self.own.get("return_progress"):
            return []
        reports = map(prompt_progress, batch.progress)
        return [head.choice(batch.choice, ROLE, more={"prompt_progress": report}) for report in reports]

    def event_frames(
        self, head: ChunkHead, choice: int, events: Sequence[Event], live: LiveTimings
    ) -> list[bytes]:
        """A chunk per event: its text, or its parts and log-probabilities."""
        frames: list[bytes] = []
        own = self.own
        is_plain = not (own.get("logprobs") or own.get("n_probs") or own.get("timings_per_token"))
        for event in events:
            live.n_answer += event.token_id is not None
            if is_plain and is_content(event):
                if event.text:
                    frames.append(head.text(choice, event.text))
                continue
            logprobs = self.logprobs([event])
            more = {"timings": live.body()} if own.get("timings_per_token") else None
            deltas = part_deltas(event.parts) or [{"content": event.text}]
            frames += [
                head.choice(choice, delta, logprobs=None if i else logprobs, more=more)
                for i, delta in enumerate(deltas)
            ]
        return frames


def is_content(event: Event) -> bool:
    """True for an event whose text is all that it brings, as most do."""
    parts = event.parts
    return not parts or (len(parts) == 1 and type(parts[0]) is Content and parts[0].text == event.text)


def wants_usage(own: Mapping[str, Any]) -> bool:
    """True if a stream ends with its usage."""
    options: Mapping[str, Any] = own.get("stream_options") or {}
    return bool(options.get("include_usage"))


def part_deltas(parts: Sequence[Part]) -> list[Body]:
    """OpenAI's deltas of the parts of an event."""
    return [delta for part in parts if (delta := part_delta(part))]


def part_delta(part: Part) -> Body | None:
    match part:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        case _:
            return None


def openai_call(call: ToolCall) -> Body:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


ROUTES = (
    Route("POST", "/v1/chat/completions", chat_completions, CHAT),
    Route("POST", "/chat/completions", chat_completions, CHAT),
)
