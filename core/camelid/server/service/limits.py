"""Bounds on the sizes and options of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from camelid.server.http.errors import ApiError

SCHEMAS = frozenset({"grammar", "json_schema", "regex", "choice", "response_format", "tools"})


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one request, in the order in which they are checked."""

    max_choices: int = 16
    max_tokens: int | None = None  # of an answer; None: up to the context
    max_prompt_tokens: int | None = None
    timeout_s: float | None = None
    queue_timeout_s: float | None = None
    max_tools: int = 512
    max_schema: int = 256 << 10  # bytes of a schema, a grammar, or all tools as JSON

    def check_sizes(self, options: Mapping[str, Any]) -> None:
        """Raises ApiError for too many tools, and for a schema or grammar that is too large."""
        n_tools = len(options.get("tools") or ())
        if n_tools > self.max_tools:
            raise ApiError(400, f"{n_tools} tools, at most {self.max_tools} are allowed", param="tools")
        for name in SCHEMAS & options.keys():
            value = options[name]
            size = len(value if isinstance(value, str) else json.dumps(value, default=str))
            if size > self.max_schema:
                raise ApiError(
                    400, f"{name} has {size:,} characters as JSON, at most {self.max_schema:,} are allowed",
                    param=name,
                )  # fmt: skip

    def bounded(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with numbers of tokens and seconds within the limits."""
        own = dict(options)
        if self.max_tokens is not None:
            own["max_tokens"] = min(own.get("max_tokens") or self.max_tokens, self.max_tokens)
        for name in ("timeout_s", "queue_timeout_s"):
            bound = getattr(self, name)
            if bound is not None:
                own[name] = min(own.get(name) or bound, bound)
        return own
