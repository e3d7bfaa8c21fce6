"""Names and types of the options of a request and of loading, and the types of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, cast

from camelid.errors import RequestError, shown
from camelid.sampling.options import SamplingOptions

# Options of other runtimes that this version lacks, refused by name.
LATER = frozenset(("n",))
Message: TypeAlias = Mapping[str, object]
Prompt: TypeAlias = str | Sequence[int] | Sequence[Message]


class ConstraintOptions(TypedDict, total=False):
    """Constraints on the answer's text; at most one option.

    `grammar` is GBNF text; `json_schema` a schema or its JSON text; `regex` a pattern that matches the whole
    answer; `choice` a list of texts; `response_format` OpenAI's object.
    """

    grammar: str
    json_schema: Mapping[str, Any] | bool | str
    regex: str
    choice: Sequence[str]
    response_format: Mapping[str, Any]


class EngineOptions(TypedDict, total=False):
    """Scheduling, context overflow, prefix cache and speculation of a request.

    A request of higher `priority` runs first and may preempt a running request of lower priority.
    `timeout_s` bounds the seconds until the answer ends, `queue_timeout_s` those until the first step.
    `overflow` is the action where prompt and answer exceed the context: "error" refuses the request, "stop"
    ends the answer at the limit, "shift" drops half of the tokens behind the first `n_keep` (by default the
    tokens that open every prompt, such as BOS), as often as `max_tokens` needs it.
    `cache_prompt` False computes the whole prompt without the prefix cache; requests of different
    `cache_salt` never share state. `speculate` drafts tokens and verifies several in one step: "ngram", or an
    object with `propose`; the answer stays the same. An `is_atomic` prompt is prefilled in one step.
    """

    priority: int
    timeout_s: float | None
    queue_timeout_s: float | None
    overflow: Literal["error", "stop", "shift"]
    n_keep: int
    cache_prompt: bool
    cache_salt: str
    speculate: object
    is_atomic: bool


class Options(ConstraintOptions, SamplingOptions, EngineOptions, total=False):
    """All options of a request.

    `max_tokens` None continues up to the context length; `stop` is a stop sequence or several, and the text
    ends before the first match; `special` makes control tokens written in a text prompt count; `ignore_eos`
    continues past end tokens.

    For messages as the prompt: `tools` are OpenAI's tool objects, which the model may call; `variables` set
    variables of the chat template, such as {"enable_thinking": False}.
    """

    max_tokens: int | None
    stop: str | Sequence[str]
    special: bool
    ignore_eos: bool
    tools: Sequence[Mapping[str, Any]]
    variables: Mapping[str, object]


def checked_stops(stop: object) -> tuple[str, ...]:
    """Stop sequences, from one string or several. Raises RequestError for any other value."""
    stops = (stop,) if isinstance(stop, str) else stop
    if isinstance(stops, list | tuple):
        items = cast("Sequence[object]", stops)
        if all(isinstance(item, str) and item for item in items):
            return tuple(cast("Sequence[str]", items))
    raise RequestError(
        f"stop is {shown(stop)}, expected a string or a list of strings, none of them empty", field="stop"
    )


def check_names(options: Mapping[str, object]) -> None:
    """Raises RequestError, with the known names, for an unknown option."""
    unknown = sorted(options.keys() - Options.__annotations__.keys())
    if unknown:
        what = "is not available in this version" if unknown[0] in LATER else "is unknown"
        known = ", ".join(Options.__annotations__)
        raise RequestError(f"option {unknown[0]!r} {what}; known: {known}", field=unknown[0])
