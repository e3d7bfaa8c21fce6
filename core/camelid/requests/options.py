"""What a caller may say: the options of a request and of loading, and what a prompt may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, cast

from camelid.errors import RequestError, shown
from camelid.sampling.options import SamplingOptions

# Options of other runtimes that this version lacks: refused by name, so that none is ignored.
LATER = frozenset(("n",))
Message: TypeAlias = Mapping[str, object]
Prompt: TypeAlias = str | Sequence[int] | Sequence[Message]


class ConstraintOptions(TypedDict, total=False):
    """What an answer must follow; one of these at most.

    `grammar` is GBNF text; `json_schema` a schema or its JSON text; `regex` a pattern for the whole answer;
    `choice` a list of texts; `response_format` as OpenAI has it.
    """

    grammar: str
    json_schema: Mapping[str, Any] | bool | str
    regex: str
    choice: Sequence[str]
    response_format: Mapping[str, Any]


class EngineOptions(TypedDict, total=False):
    """How the engine treats a request.

    Of several that wait, a higher `priority` goes first, and may send a running one of lower priority back
    to wait. `timeout_s` and `queue_timeout_s` bound the seconds in all and before the first step.
    `overflow` says what happens where prompt and answer exceed the context: "error" at once, "stop" there,
    or "shift", which drops half of what follows the first `n_keep` tokens (unless given, those that open
    every prompt, such as BOS), as often as `max_tokens` needs it.
    `cache_prompt` False computes the prompt anew; requests of another `cache_salt` never share state.
    `speculate` guesses ahead and checks several guesses in one step: "ngram", or an object with `propose`.
    The answer stays the same. An `is_atomic` prompt goes through one step as a whole.
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
    """What a request may say besides its prompt.

    `max_tokens` None goes on up to the context; `stop` ends the text before the first of these strings;
    `special` lets a text prompt name control tokens; `ignore_eos` goes on past end tokens.

    With messages as the prompt: `tools`, as OpenAI has them, which the model may call; `variables` for the
    chat template, such as {"enable_thinking": False}.
    """

    max_tokens: int | None
    stop: str | Sequence[str]
    special: bool
    ignore_eos: bool
    tools: Sequence[Mapping[str, Any]]
    variables: Mapping[str, object]


def checked_stops(stop: object) -> tuple[str, ...]:
    """Stop strings, of one string or several. RequestError for anything else."""
    stops = (stop,) if isinstance(stop, str) else stop
    if isinstance(stops, list | tuple):
        items = cast("Sequence[object]", stops)
        if all(isinstance(item, str) and item for item in items):
            return tuple(cast("Sequence[str]", items))
    raise RequestError(f"stop is {shown(stop)}, expected strings that are not empty", field="stop")


def check_names(options: Mapping[str, object]) -> None:
    """Refuses an option that no request has. Raises RequestError with the known names."""
    unknown = sorted(options.keys() - Options.__annotations__.keys())
    if unknown:
        what = "is not available in this version" if unknown[0] in LATER else "is unknown"
        known = ", ".join(Options.__annotations__)
        raise RequestError(f"option {unknown[0]!r} {what}; known: {known}", field=unknown[0])
