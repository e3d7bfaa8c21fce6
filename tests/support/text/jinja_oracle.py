"""jinja2, configured as transformers does for chat templates (utils/chat_template_utils.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from tests.support.text.conversations import strftime_now


def tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message: str) -> None:
    raise TemplateError(message)


class Generation(Extension):
    """The tag {% generation %}, which prints its body."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("printed"), [], [], body).set_lineno(line)

    def printed(self, caller: Callable[[], str]) -> str:
        return caller()


class CheckedNamespace(Namespace):
    """Refuses names with an underscore, as transformers does."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        Namespace.__init__(self)
        for name, value in dict(*rest, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            raise SecurityError(name)
        super().__setitem__(name, value)


def with_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the keys under which transformers passes a message's reasoning to the template."""
    names = [name for name in ("reasoning_content", "thinking", "reasoning") if message.get(name) is not None]
    if not names:
        return dict(message)
    text = message[names[0]]
    return {"thinking": text, **message, "reasoning_content": text}


@cache
def environment() -> ImmutableSandboxedEnvironment:
    extensions = [Generation, loopcontrols]
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    made.globals["namespace"] = CheckedNamespace
    return made


@cache
def compiled(source: str) -> Template:
    return environment().from_string(source)


def oracle_render(source: str, **context: Any) -> str:
    context["messages"] = [with_reasoning(message) for message in context.get("messages", ())]
    return compiled(source).render(**context)
