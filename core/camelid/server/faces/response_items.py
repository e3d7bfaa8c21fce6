"""Items of a conversation, as OpenAI's responses have them, to the messages that chat templates read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from camelid.images.decode import from_data_uri
from camelid.server.faces.common import Body, new_id
from camelid.server.faces.images import image_part, joined_contents

IMAGE = "input_image"
ROLES = {"developer": "system"}
PREFIXES = {"message": "msg_", "function_call": "fc_", "function_call_output": "fco_", "reasoning": "rs_"}
Item = Mapping[str, Any]


def input_items(value: str | Sequence[Item] | None) -> list[Body]:
    """A request's input as items with ids."""
    if value is None:
        return []
    if isinstance(value, str):
        value = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}]
    return [{"id": new_id(PREFIXES[item["type"]]), **item} for item in value]


def conversation_messages(items: Iterable[Item], instructions: str | None) -> list[Body]:
    """The messages of a conversation; instructions are its first message."""
    conversation = Conversation()
    if instructions:
        conversation.messages.append({"role": "system", "content": instructions})
    for item in items:
        READERS[item["type"]](conversation, item)
    return conversation.messages


class Conversation:
    """Messages under construction. Reasoning, text and calls of one turn make one message."""

    def __init__(self) -> None:
        self.messages: list[Body] = []

    def add_message(self, item: Item) -> None:
        """A message of any role."""
        role, content = ROLES.get(item["role"], item["role"]), item["content"]
        if role != "assistant":
            self.messages.append({"role": role, "content": message_content(content)})
            return
        answer = self._answer()
        if answer["content"] or "tool_calls" in answer:
            answer = self._open_answer()
        answer["content"] = content if isinstance(content, str) else joined_text(content)

    def add_reasoning(self, item: Item) -> None:
        """The reasoning before an answer; a summary stands for reasoning that is not shown."""
        parts = item.get("content") or item.get("summary") or ()
        answer = self._open_answer()
        if parts:
            answer["reasoning_content"] = joined_text(parts)

    def add_call(self, item: Item) -> None:
        """A call of a function. An incomplete call was not run."""
        if item.get("status", "completed") == "completed":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            self._answer().setdefault("tool_calls", []).append(call)

    def add_output(self, item: Item) -> None:
        """The result of a call."""
        output = message_content(item["output"])
        self.messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": output})

    def _answer(self) -> Body:
        """The model's message that is under construction."""
        last = self.messages[-1] if self.messages else {}
        return last if last.get("role") == "assistant" else self._open_answer()

    def _open_answer(self) -> Body:
        self.messages.append({"role": "assistant", "content": ""})
        return self.messages[-1]


# Type of an item -> its reader.
READERS: Mapping[str, Callable[[Conversation, Item], None]] = {
    "message": Conversation.add_message,
    "reasoning": Conversation.add_reasoning,
    "function_call": Conversation.add_call,
    "function_call_output": Conversation.add_output,
}


def message_content(content: str | Sequence[Item]) -> str | list[Body]:
    """Content as text: its parts as lines, since not every template takes parts. Images stay parts."""
    if isinstance(content, str):
        return content
    return joined_contents([[image_of(p)] if p["type"] == IMAGE else part_text(p) for p in content])


def image_of(part: Item) -> Body:
    """The image part of a data URI. Raises RequestError."""
    return image_part(from_data_uri(part["image_url"], "input"))


def has_images(items: Iterable[Item]) -> bool:
    """True if a message has an image."""
    contents = (item.get("content") for item in items if item["type"] == "message")
    return any(
        part["type"] == IMAGE for parts in contents if not isinstance(parts, str) for part in parts or ()
    )


def joined_text(parts: Iterable[Item]) -> str:
    """The text of all parts."""
    return "".join(map(part_text, parts))


def part_text(part: Item) -> str:
    """The text of a part; of a refusal, its reason."""
    return part.get("text") or part.get("refusal") or ""
