"""OpenAI's `tool_choice` and `parallel_tool_calls`: checks, and the grammar that enforces them.

A request with neither option has no grammar: its answer is parsed only, and the device samples ahead. "auto"
as an option enforces complete calls, at the price of a constrained request; see `text.toolcalls.call_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from camelid.errors import RequestError, shown
from camelid.text.toolcalls.family import Controls, Family

WORDS = ("auto", "none", "required")
WANT = f"{', '.join(map(repr, WORDS))} or {{'type': 'function', 'function': {{'name': ...}}}}"
NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
BAD_ENDING = ".call"  # Python calls of some models end so behind the name


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """A checked choice: one of WORDS, the tools that may be called, and True for several calls."""

    word: str
    tools: Mapping[str, object]  # name -> schema of the arguments
    parallel: bool

    @property
    def forbids(self) -> bool:
        """True if no tool may be called."""
        return self.word == "none"

    def description(
        self, family: Family, *, in_reasoning: bool, controls: Controls
    ) -> Mapping[str, object] | None:
        """The answer's grammar for `rules_of_calls`; None if the family has no calls that text could become.

        Raises RequestError for a demanded call in such a family.
        """
        if not family.call:
            if self.word == "required":
                raise RequestError(
                    "tool_choice demands a call, but this model's chat template has no known format of calls "
                    f"(family {family.name}); leave tool_choice out",
                    field="tool_choice",
                )
            return None
        if family.no_tool in self.tools:
            raise RequestError(
                f"the calls of {family.name} write {family.no_tool!r} for the user; rename that tool",
                field="tools",
            )
        return {
            "family": family.name, "thinking": family.thinking, "tools": self.tools, "choice": self.word,
            "parallel": self.parallel, "in_reasoning": in_reasoning, "controls": controls,
        }  # fmt: skip


def checked_choice(
    tools: Sequence[Mapping[str, Any]] | None, choice: object, parallel: object
) -> ToolChoice | None:
    """The choice of a request; None if it sets neither option, or has no tools that could be called.

    A named tool is the only one that may be called. Raises RequestError for a malformed option, for an
    unknown tool, for a demanded call without tools, and for a tool's name that not every format of calls can
    write.
    """
    if not isinstance(parallel, bool | None):
        refuse("parallel_tool_calls", parallel, "True or False")
    if choice is None and parallel is not False:
        return None
    schemas = dict(map(named_schema, tools or ()))
    word = "auto" if choice is None else choice
    if isinstance(word, Mapping):
        name = chosen_name(cast("Mapping[str, object]", word), schemas)
        return ToolChoice("required", {name: schemas[name]}, parallel is not False)
    if word not in WORDS:
        refuse("tool_choice", choice, WANT)
    if not schemas and word == "required":
        raise RequestError("tool_choice is 'required', but the request has no tools", field="tool_choice")
    return ToolChoice(str(word), schemas, parallel is not False) if schemas else None


def chosen_name(choice: Mapping[str, object], tools: Mapping[str, object]) -> str:
    """The name of the one tool that a choice demands."""
    function = choice.get("function")
    if choice.get("type") != "function" or not isinstance(function, Mapping) or "name" not in function:
        refuse("tool_choice", choice, WANT)
    name = cast("Mapping[str, object]", function)["name"]
    if not isinstance(name, str) or name not in tools:
        known = ", ".join(tools) or "none"
        raise RequestError(
            f"tool_choice names the tool {shown(name)}, which is not among the tools: {known}",
            field="tool_choice",
        )
    return name


def named_schema(tool: Mapping[str, Any]) -> tuple[str, object]:
    """A tool's name, and the schema of its arguments."""
    function = cast("Mapping[str, object]", tool["function"])
    name = str(function["name"])
    if not NAME.fullmatch(name) or name.endswith(BAD_ENDING):
        raise RequestError(
            f"tool_choice needs names of up to 128 letters, digits, _ . : / and -, not ending in "
            f"{BAD_ENDING}; found {shown(name)}",
            field="tools",
        )
    return name, function.get("parameters")


def refuse(name: str, got: object, want: str) -> NoReturn:
    raise RequestError(f"{name} is {shown(got)}, expected {want}", field=name)
