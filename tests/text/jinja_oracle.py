"""jinja2 set up as transformers sets it up for chat templates (utils/chat_template_utils.py)."""

from __future__ import annotations

import json
from functools import cache

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tests.text.conversations import strftime_now


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


@cache
def environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


@cache
def compiled(source: str) -> Template:
    return environment().from_string(source)


def oracle_render(source: str, **context: object) -> str:
    return compiled(source).render(**context)
