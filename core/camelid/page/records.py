"""Events, completions, sessions and errors as JSON values: the names are those of the Python API."""

from __future__ import annotations

import traceback
from dataclasses import asdict
from typing import Any, TypeAlias

from camelid.api.llm import LLM, Completion, Event
from camelid.api.sessions.session import Session
from camelid.errors import CamelidError
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning
from camelid.version import __version__

Json: TypeAlias = dict[str, Any]


def event_record(event: Event) -> Json:
    """An event. Text outside a conversation, which has no parts, is a part of its own."""
    parts = event.parts or ((Content(event.text),) if event.text else ())
    record: Json = {"text": event.text, "token_id": event.token_id, "logprob": event.logprob}
    record["parts"] = [part_record(part) for part in parts]
    if event.top_logprobs:
        record["top_logprobs"] = [{"token_id": i, "logprob": value} for i, value in event.top_logprobs]
    return record


def part_record(part: Part) -> Json:
    """A part: its kind is "text", "reasoning" or "tool_call".

    A tool call has its `index` in each record; `id` and `name` in the first, pieces of `arguments` in the
    next ones, `complete` in the last.
    """
    match part:
        case Content(text):
            return {"kind": "text", "text": text}
        case Reasoning(text):
            return {"kind": "reasoning", "text": text}
        case CallStart(index, id, name):
            return {"kind": "tool_call", "index": index, "id": id, "name": name}
        case CallArguments(index, text):
            return {"kind": "tool_call", "index": index, "arguments": text}
        case CallEnd(index, complete):
            return {"kind": "tool_call", "index": index, "complete": complete}


def completion_record(answer: Completion) -> Json:
    """A finished answer with its usage and timings."""
    return asdict(answer)


def session_record(session: Session) -> Json:
    """The state of a session between two turns."""
    names = ("id", "messages", "options", "note", "n_forgotten", "cached_rows")
    return {name: getattr(session, name) for name in names} | {"n_tokens": len(session.token_ids)}


def info_record(llm: LLM, model: str) -> Json:
    """Facts of a loaded model.

    `why` is the reason why webgpu, the first choice of auto, was not selected; `images_on` is the backend of
    its vision tower.
    """
    device, tower = llm.capabilities, llm.running.tower
    note = llm.backend_note.removesuffix(f"; {tower.note}" if tower else "")
    why = note.removeprefix(f"{device.name} on {device.device}").removeprefix("; not webgpu: ")
    return {
        "model": model,
        "version": __version__,
        "backend": device.name,
        "device": device.device,
        "why": why,
        "context": llm.context,
        "weight_bytes": llm.weight_bytes,
        "has_template": llm.has_template,
        "takes_images": llm.takes_images,
        "images_on": tower.backend.capabilities().name if tower else "",
    }


def error_record(error: Exception) -> Json:
    """An error. One that is not a CamelidError is a defect: `detail` has its traceback."""
    record: Json = {"name": type(error).__name__, "message": str(error)}
    if isinstance(error, CamelidError):
        return record | {"facts": error.facts}
    return record | {"facts": {}, "detail": "".join(traceback.format_exception(error))}
