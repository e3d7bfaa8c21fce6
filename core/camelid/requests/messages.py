"""Checks the messages and tools of a conversation: OpenAI's shape, as chat templates read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, cast

from camelid.errors import RequestError, shown
from camelid.images.decode import from_data_uri, image_file

Fields: TypeAlias = Mapping[str, Any]
MAX_MESSAGES = 100_000


def checked_messages(messages: Sequence[object]) -> list[dict[str, object]]:
    """The messages in the form that templates read: arguments of tool calls are objects.

    Raises RequestError if malformed.
    """
    if len(messages) > MAX_MESSAGES:
        refuse("messages", f"{len(messages)} messages", f"at most {MAX_MESSAGES}")
    return [checked_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def checked_message(message: object, place: str) -> dict[str, object]:
    fields = mapping(message, place, "{'role': ..., 'content': ...}")
    unknown = sorted(fields.keys() - FIELDS.keys())
    if unknown:
        refuse(place, f"a field {unknown[0]!r:.80}", f"only {', '.join(FIELDS)}")
    if "role" not in fields:
        refuse(place, "no role", "a role such as 'user'")
    if fields.get("content") is None and not fields.get("tool_calls"):
        refuse(place, "no content", "content, or tool_calls")
    return {name: FIELDS[name](value, f"{place}.{name}") for name, value in fields.items()}


def text(value: object, place: str) -> str:
    return value if isinstance(value, str) else refuse(place, shown(value), "text")


def optional_text(value: object, place: str) -> str | None:
    return None if value is None else text(value, place)


def content(value: object, place: str) -> object:
    """Text, None, or parts of type text, image or image_url."""
    if not isinstance(value, list):
        return optional_text(value, place)
    parts = enumerate(cast("list[object]", value))
    return [content_part(part, f"{place}[{i}]") for i, part in parts]


def content_part(value: object, place: str) -> dict[str, object]:
    part = mapping(value, place, "{'type': 'text', 'text': ...}")
    kind = part.get("type")
    if kind in ("image", "image_url"):
        return image_part(part, str(kind), place)
    if kind != "text" or set(part) != {"type", "text"}:
        refuse(place, f"a part of type {kind!r:.80}", "{'type': 'text', 'text': ...}, or an image")
    return {"type": "text", "text": text(part["text"], f"{place}.text")}


def image_part(part: Fields, kind: str, place: str) -> dict[str, object]:
    """A part {"type": "image", "image": ...}, whose image is a path, bytes or a PIL image, or OpenAI's part
    {"type": "image_url", "image_url": {"url": a data URI}}.
    """
    if set(part) - {"type", kind} or kind not in part:
        refuse(place, f"the fields {', '.join(part):.80}", f"type and {kind}")
    inside = f"{place}.{kind}"
    if kind == "image":
        return {"type": "image", "image": image_file(part["image"], inside)}
    value = part[kind]
    url = (
        mapping(value, inside, "{'url': 'data:image/png;base64,...'}").get("url")
        if not isinstance(value, str)
        else value
    )
    return {"type": "image", "image": from_data_uri(text(url, f"{inside}.url"), f"{inside}.url")}


def tool_calls(value: object, place: str) -> object:
    if value is None:
        return None
    if not isinstance(value, list):
        refuse(place, shown(value), "a list of tool calls")
    return [tool_call(call, f"{place}[{i}]") for i, call in enumerate(cast("list[object]", value))]


def tool_call(value: object, place: str) -> dict[str, object]:
    call = mapping(value, place, "{'id', 'type': 'function', 'function': {'name', 'arguments'}}")
    function = mapping(call.get("function"), f"{place}.function", "{'name', 'arguments'}")
    name = text(function.get("name"), f"{place}.function.name")
    values = arguments(function.get("arguments"), f"{place}.function.arguments")
    return {**call, "type": "function", "function": {**function, "name": name, "arguments": values}}


def arguments(value: object, place: str) -> object:
    """Arguments as an object: clients send its JSON text, and templates write the JSON themselves."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            refuse(place, f"{value!r:.80}", "the JSON text of an object")
    return dict(mapping(value, place, "an object, or its JSON text"))


def checked_tools(tools: object) -> list[dict[str, object]] | None:
    """OpenAI's list of tools; each has a function with a name. Raises RequestError if malformed."""
    if tools is None:
        return None
    if not isinstance(tools, list | tuple):
        refuse("tools", shown(tools), "a list of {'type': 'function', 'function': {...}}")
    return [tool(item, f"tools[{i}]") for i, item in enumerate(cast("Sequence[object]", tools))]


def tool(value: object, place: str) -> dict[str, object]:
    fields = mapping(value, place, "{'type': 'function', 'function': {...}}")
    if fields.get("type") != "function":
        refuse(place, f"type {fields.get('type')!r:.80}", "'function'")
    function = mapping(fields.get("function"), f"{place}.function", "{'name', 'description', 'parameters'}")
    text(function.get("name"), f"{place}.function.name")
    return dict(fields)


# Field of a message -> its check.
FIELDS: dict[str, Callable[[object, str], object]] = {
    "role": text,
    "content": content,
    "name": text,
    "tool_calls": tool_calls,
    "tool_call_id": text,
    "reasoning_content": optional_text,
    "thinking": optional_text,
}


def mapping(value: object, place: str, want: str) -> Fields:
    fields = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None
    if fields is not None and all(isinstance(key, str) for key in fields):
        return cast(Fields, fields)
    refuse(place, shown(cast(object, value)), want)


def refuse(place: str, got: str, want: str) -> NoReturn:
    raise RequestError(f"{place}: found {got}, expected {want}", field=place.partition("[")[0])
