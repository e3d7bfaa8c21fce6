"""The fields of Anthropic's messages and of their token counts, with llama.cpp's samplers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from camelid.server.fields.kinds import (
    ANYTHING,
    Converted,
    Either,
    Flag,
    Integer,
    ListOf,
    Number,
    Object,
    OneOf,
    Schema,
    Text,
    refuse,
)
from camelid.server.fields.sampling import (
    MAX_STOP_CHARS,
    MAX_STOPS,
    MORE_SAMPLING,
    OPENAI_SAMPLING,
    stop_list,
)
from camelid.server.fields.table import Field, Refused, Table
from camelid.server.http.errors import ApiError

MAX_MESSAGES = 100_000
MAX_TOOLS = 512


@dataclass(frozen=True, slots=True)
class Tagged:
    """An object whose `type` names its fields."""

    kinds: Mapping[str, Object]

    def read(self, value: object, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            refuse(place, value, "an object with a type")
        tag = cast("dict[str, object]", value).get("type")
        if isinstance(tag, str) and tag in self.kinds:
            return self.kinds[tag].read(cast("object", value), place)
        refuse(f"{place}.type", tag, " or ".join(map(repr, self.kinds)))

    def schema(self) -> Schema:
        return {"anyOf": [kind.schema() for kind in self.kinds.values()]}


def tagged(**kinds: Mapping[str, Any]) -> Tagged:
    """Objects by their type; a field whose name ends in `?` may be absent."""
    return Tagged({name: _object({"type": OneOf((name,)), **fields}) for name, fields in kinds.items()})


def _object(fields: Mapping[str, Any]) -> Object:
    required = tuple(name for name in fields if not name.endswith("?"))
    return Object({name.removesuffix("?"): kind for name, kind in fields.items()}, required)


# Accepted without effect: the prefix cache keeps every prompt. `scope` is an addition of Claude Code.
CACHE = _object({"type": OneOf(("ephemeral",)), "ttl?": OneOf(("5m", "1h")), "scope?": Text(64)})
CACHED = {"cache_control?": CACHE}
TEXT = {"text": Text(), "citations?": ListOf(ANYTHING, 0), **CACHED}
SOURCE = {"source": Object(), **CACHED}
DOCUMENT = {**SOURCE, "title?": Text(), "context?": Text(), "citations?": Object()}
FOUND = {"source": Text(), "title": Text(), "content": ListOf(Object()), "citations?": Object(), **CACHED}
USER_BLOCKS: dict[str, Any] = {"text": TEXT, "image": SOURCE, "document": DOCUMENT, "search_result": FOUND}
RESULT = {
    "tool_use_id": Text(512), "is_error?": Flag(), **CACHED,
    "content?": Either({str: Text(), list: ListOf(tagged(**USER_BLOCKS))}, "text or a list of blocks"),
}  # fmt: skip
ASSISTANT_BLOCKS: dict[str, Any] = {
    "text": TEXT,
    "thinking": {"thinking": Text(), "signature?": Text()},
    "redacted_thinking": {"data": Text()},
    "tool_use": {"id": Text(512), "name": Text(512, 1), "input": Object(), "caller?": Object(), **CACHED},
}
# Role -> the blocks of its messages.
BLOCKS: Mapping[str, Tagged] = {
    "user": tagged(**USER_BLOCKS, tool_result=RESULT),
    "assistant": tagged(**ASSISTANT_BLOCKS),
    "system": tagged(text=TEXT),
}


def content(blocks: Tagged) -> Either:
    """Text, or a list of blocks."""
    return Either({str: Text(), list: ListOf(blocks)}, "text or a list of blocks")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message, whose role decides its blocks."""

    def read(self, value: object, place: str) -> dict[str, Any]:
        head = Object({"role": OneOf(tuple(BLOCKS)), "content": ANYTHING}, ("role", "content"))
        turn = head.read(value, place)
        kind = content(BLOCKS[turn["role"]])
        return {**turn, "content": kind.read(turn["content"], f"{place}.content")}

    def schema(self) -> Schema:
        turns = [
            _object({"role": OneOf((role,)), "content": content(blocks)}) for role, blocks in BLOCKS.items()
        ]
        return {"anyOf": [turn.schema() for turn in turns]}


@dataclass(frozen=True, slots=True)
class Tool:
    """A client's own tool; Anthropic's built-in tools are refused by name."""

    def read(self, value: object, place: str) -> dict[str, Any]:
        tag = cast("dict[str, object]", value).get("type") if isinstance(value, dict) else None
        if tag not in (None, "custom"):
            raise ApiError(
                400, f"{place} is the built-in tool {tag!r:.80}, which this server does not have; describe a "
                "tool of your own by name and input_schema", param=place,
            )  # fmt: skip
        return OWN_TOOL.read(cast("object", value), place)

    def schema(self) -> Schema:
        return OWN_TOOL.schema()


OWN_TOOL = _object({
    "name": Text(128, 1), "input_schema": Object(), "description?": Text(), "type?": OneOf(("custom",)),
    "strict?": Flag(), "eager_input_streaming?": Flag(), "defer_loading?": OneOf((False,)),
    "allowed_callers?": OneOf((["direct"],)), "input_examples?": ListOf(Object(), 0), **CACHED,
})  # fmt: skip
SERIAL = {"disable_parallel_tool_use?": Flag()}
SHOWN = {"display?": OneOf(("summarized", "omitted"))}
SCHEMA_FORMAT = tagged(json_schema={"schema": Object()})
EFFORTS = ("low", "medium", "high", "xhigh", "max")
# A clearing of thoughts that keeps all of them, which changes nothing.
KEEPS_ALL = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
PROMPT = (
    Field("model", Text(512)),
    Field("messages", ListOf(Turn(), MAX_MESSAGES, 1), is_required=True),
    Field("system", content(BLOCKS["system"])),
    Field("tools", ListOf(Tool(), MAX_TOOLS)),
    Field("tool_choice", tagged(auto=SERIAL, any=SERIAL, tool={"name": Text(128), **SERIAL}, none={})),
    Field(
        "thinking",
        tagged(enabled={"budget_tokens": Integer(1), **SHOWN}, disabled={}, adaptive=SHOWN),
    ),
    Field("output_config", _object({"format?": SCHEMA_FORMAT, "effort?": OneOf(EFFORTS)})),
    Field("cache_control", CACHE),
    Refused("speed", "all requests are served alike", ("standard",)),
    Refused("container", "no tool of the server itself exists"),
    Refused("mcp_servers", "no tool of the server itself exists", ([],)),
    Refused("context_management", "no part of a prompt is left out", ({}, {"edits": []}, KEEPS_ALL)),
    Refused("user_profile_id", "keys name the users of this server"),
    Refused("workspace_id", "there are no workspaces here"),
)
COUNT = Table.of(PROMPT)
MESSAGES = Table.of(
    MORE_SAMPLING,
    [field for field in OPENAI_SAMPLING if field.name == "seed"],
    PROMPT,
    Field("max_tokens", Integer(1), "max_tokens"),
    Field("stream", Flag()),
    Field("stop_sequences", Converted(ListOf(Text(MAX_STOP_CHARS), MAX_STOPS), stop_list), "stop"),
    Field("temperature", Number(0, 1), "temperature"),
    Field("top_p", Number(0, 1), "top_p"),
    Field("metadata", Object({"user_id": Text(512)})),
    Field("service_tier", OneOf(("auto", "standard_only"))),
    Refused("inference_geo", "this server is where it is", ("global",)),
    Refused("diagnostics", "a message is not remembered once it is sent"),
    Refused("fallbacks", "one model answers a request", ([],)),
)
