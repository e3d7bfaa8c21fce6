"""Defaults of a service's requests: options, and variables of the chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from camelid.requests.build import RequestBuilder
from camelid.server.service.host import EngineHost
from camelid.text.templates.named import named_templates
from camelid.text.templates.template import STANDARD


class TemplateDefaults:
    """The methods of a service on its defaults."""

    host: EngineHost
    builder: RequestBuilder
    defaults: Mapping[str, Any]
    template: str | None
    variables: Mapping[str, Any]

    def turn_thoughts(self, *, on: bool) -> None:
        """Sets the default of the template's variable for thoughts, if it has one."""
        has_template = self.template is not None or named_templates(self.host.running.file.gguf.metadata)
        switch = self.builder.chat.thought_switch if has_template else None
        if switch:
            self.variables = {switch: on, **self.variables}

    def template_variables(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """A request's variables of the chat template, with the server's defaults that the template reads."""
        known = self.builder.chat.variables | STANDARD if self.variables else frozenset[str]()
        defaults = {name: value for name, value in self.variables.items() if name in known}
        return {**defaults, **own}

    def check_defaults(self) -> None:
        """Raises RequestError for defaults that no request may have, and TemplateError for a template."""
        if self.host.running.file.spec.embeds:
            return
        self.builder.request((0,), self.defaults)
        if self.template is not None:
            _ = self.builder.chat.variables
