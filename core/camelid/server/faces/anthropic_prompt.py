"""Anthropic's messages, tools and thinking as a conversation in OpenAI's shape, which templates read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from camelid.images.decode import ImageFile
from camelid.requests.chat import ChatTemplate
from camelid.requests.options import Message
from camelid.server.faces.common import Body
from camelid.server.faces.images import (
    check_takes_images,
    image_part,
    joined_contents,
    no_media,
    of_base64,
)
from camelid.server.faces.thinking import can_think, effort_variables, thinking_variables
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.service.service import Service

# Claude Code's first line of the system prompt: it changes every request, and no prefix would be cached.
BILLING = "x-anthropic-billing-header"
MEDIA = ("image", "document", "search_result")
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def conversation(own: Mapping[str, Any], service: Service) -> list[Message]:
    """The messages of a request, system prompt first; neighbours of one role are one message."""
    turns: list[Body] = [{"role": "system", "content": own["system"]}] if own.get("system") else []
    blocks = ((turn["role"], with_images(blocks_of(turn), service)) for turn in (*turns, *own["messages"]))
    messages = [each for role, own_blocks in blocks for each in ROLES[role](own_blocks)]
    return cast("list[Message]", joined(messages))


def continues(messages: Sequence[Message]) -> bool:
    """True if the answer continues the last message, which is the assistant's (prefill).

    Raises ApiError for one that no answer can continue: with calls, or with an end that no tokenizer keeps.
    """
    last = cast("Body", messages[-1]) if messages else {}
    if last.get("role") != "assistant":
        return False
    text, problem = last["content"], ""
    if "tool_calls" in last or not text:
        problem = "it has a tool call, or no text"
    elif text != text.rstrip():
        problem = "its text ends with whitespace"
    if problem:
        raise ApiError(
            400, f"the answer cannot continue the last message: {problem}; end with a user message",
            param="messages",
        )  # fmt: skip
    return True


def group(own: Mapping[str, Any], name: str) -> Body:
    """The values of a field that is an object; none if it is absent."""
    return own.get(name) or {}


def blocks_of(turn: Body) -> Sequence[Body]:
    content = turn["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def system_messages(blocks: Sequence[Body]) -> list[Body]:
    """The system message; none for a prompt of billing lines only."""
    lines = [line for block in blocks for line in without_billing(block["text"])]
    return [{"role": "system", "content": "\n".join(lines)}] if lines else []


def without_billing(text: str) -> list[str]:
    """A text without its lines of billing; a text without them is not split (0.1 s a million lines)."""
    if BILLING not in text:
        return [text]
    return [line for line in text.split("\n") if not line.startswith(BILLING)]


def user_messages(blocks: Sequence[Body]) -> list[Body]:
    """Results of tools as messages of their own, between the user's texts."""
    return [result_message(block) if block["type"] == "tool_result" else user_text(block) for block in blocks]


def user_text(block: Body) -> Body:
    content = [image_part(block["image"])] if "image" in block else block_text(block)
    return {"role": "user", "content": content}


def with_images(blocks: Sequence[Body], service: Service) -> list[Body]:
    """The blocks, with images decoded. Raises ApiError 501 without a tower, RequestError for a bad image."""
    return [{"type": "image", "image": image_of(b, service)} if b["type"] == "image" else b for b in blocks]


def image_of(block: Body, service: Service) -> ImageFile:
    """The image of a block's source, which is base64: an address is not fetched."""
    source: Body = block["source"]
    if source.get("type") != "base64":
        check_takes_images(service, "messages")
        raise ApiError(
            400, f"the image's source is {source.get('type')!r:.40}, expected 'base64': addresses and files "
            "are not fetched", param="messages",
        )  # fmt: skip
    return of_base64(source.get("data"), "messages", service)["image"]


def block_text(block: Body) -> str:
    """The text of a block. Raises ApiError 501 for an image in a tool's result, and for a document."""
    if block["type"] in MEDIA:
        raise no_media(block["type"], "messages")
    return block["text"]


def result_message(block: Body) -> Body:
    """A tool's result. Templates have no mark of an error, so the text begins with one."""
    content = block.get("content", "")
    text = content if isinstance(content, str) else "\n".join(map(block_text, content))
    if block.get("is_error") and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}


def assistant_messages(blocks: Sequence[Body]) -> list[Body]:
    """An answer, its thoughts and calls. Redacted thoughts, which nobody here can read, are left out."""
    by_type: dict[str, list[Body]] = {}
    for block in blocks:
        by_type.setdefault(block["type"], []).append(block)
    message: Body = {"role": "assistant", "content": "\n".join(b["text"] for b in by_type.get("text", ()))}
    if "thinking" in by_type:
        message["reasoning_content"] = "\n".join(block["thinking"] for block in by_type["thinking"])
    if "tool_use" in by_type:
        message["tool_calls"] = [call_of(block) for block in by_type["tool_use"]]
    return [message]


def call_of(block: Body) -> Body:
    function = {"name": block["name"], "arguments": block["input"]}
    return {"id": block["id"], "type": "function", "function": function}


# Role -> the messages of a turn's blocks.
ROLES: Mapping[str, Callable[[Sequence[Body]], list[Body]]] = {
    "system": system_messages,
    "user": user_messages,
    "assistant": assistant_messages,
}


def joined(messages: Iterable[Body]) -> list[Body]:
    """The messages with neighbours of one role as one: templates expect turns to alternate."""
    runs: list[list[Body]] = []
    for message in messages:
        if runs and runs[-1][0]["role"] == message["role"] != "tool":
            runs[-1].append(message)
        else:
            runs.append([message])
    return [one_of(run) if len(run) > 1 else run[0] for run in runs]


def one_of(run: Sequence[Body]) -> Body:
    """One message of several; texts are joined by line breaks."""
    texts = {
        name: joined_contents([text for message in run if (text := message.get(name))])
        for name in ("content", "reasoning_content")
        if any(name in message for message in run)
    }
    calls = [call for message in run for call in message.get("tool_calls", ())]
    return {**run[0], **texts, **({"tool_calls": calls} if calls else {})}


def tool_options(own: Mapping[str, Any]) -> Body:
    """The options of tools. A strict tool's calls obey its schema, which the choice "auto" enforces."""
    tools, choice = own.get("tools") or (), own.get("tool_choice")
    if not tools:
        if choice and choice["type"] in ("any", "tool"):
            raise ApiError(400, "tool_choice asks for a tool, but tools is empty", param="tool_choice")
        return {}
    found: Body = {"tools": [openai_tool(tool) for tool in tools]}
    if choice is None and any(tool.get("strict") for tool in tools):
        choice = {"type": "auto"}
    if choice:
        found["tool_choice"] = chosen(choice)
        if choice.get("disable_parallel_tool_use"):
            found["parallel_tool_calls"] = False
    return found


def openai_tool(tool: Body) -> Body:
    description = {"description": tool["description"]} if "description" in tool else {}
    function = {"name": tool["name"], **description, "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def chosen(choice: Body) -> Any:
    """OpenAI's form of a choice."""
    if choice["type"] == "tool":
        return {"type": "function", "function": {"name": choice["name"]}}
    return CHOICES[choice["type"]]


def template_variables(own: Mapping[str, Any], chat: ChatTemplate, call: Call) -> Body:
    """Variables of the chat template: thinking, and effort. "adaptive" leaves the choice to the model.

    Agents ask every model to think: one that cannot gets a warning, and under --strict an error. A budget of
    thoughts is a warning too: max_tokens bounds thoughts and answer together.
    """
    kind, effort = group(own, "thinking").get("type"), group(own, "output_config").get("effort")
    if kind == "enabled" and not can_think(chat):
        call.unknown("thinking")
        kind = None
    if kind == "enabled":
        call.warnings.append("thinking.budget_tokens is not enforced; max_tokens bounds thoughts and answer")
    switched = (
        thinking_variables(chat, kind == "enabled", "thinking") if kind in ("enabled", "disabled") else {}
    )
    return {**switched, **(effort_variables(chat, effort, "output_config.effort") if effort else {})}
