"""Names and types of a request's options, and the types of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

from camelid.model.adapter import Selection
from camelid.sampling.drawing import Constraint, ConstraintFactory
from camelid.sampling.options import SamplingOptions

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


@dataclass(frozen=True, slots=True)
class OptionConstraint:
    """The factory of a request's constraint, with the option that it enforces.

    The option is one of `ConstraintOptions`, or "tool_calls" with the description that `tool_choice` makes.
    """

    option: Mapping[str, object]
    make: ConstraintFactory

    def __call__(self) -> Constraint:
        """A new constraint for a sequence."""
        return self.make()


def constraint_option(factory: ConstraintFactory | None) -> Mapping[str, object] | None:
    """The option that a request's constraint enforces, by name; None without one."""
    return factory.option if isinstance(factory, OptionConstraint) else None


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
    `adapter` names a loaded adapter, or several, perhaps with scales: "a", ["a", ("b", 0.5)], {"a": 0.5};
    without it those that were loaded to apply act, with "" none.
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
    adapter: Selection | None


class Options(ConstraintOptions, SamplingOptions, EngineOptions, total=False):
    """All options of a request.

    `max_tokens` None continues up to the context length; `stop` is a stop sequence or several, and the text
    ends before the first match; `special` makes control tokens written in a text prompt count; `ignore_eos`
    continues past end tokens.

    For messages as the prompt: `tools` are OpenAI's tool objects, which the model may call; `variables` set
    variables of the chat template, such as {"enable_thinking": False}. `tool_choice` constrains the answer in
    the model's own format of calls: "required" demands calls, {"type": "function", "function": {"name": ...}}
    calls of one tool, "none" text without calls; "auto" leaves the choice to the model, and a call that has
    begun is complete and valid. `parallel_tool_calls` False allows one call at most. Without either option
    the answer is free, and its calls may be incomplete. `continue_final_message` True continues the text of
    the last message, an assistant's; `add_generation_prompt` False leaves out the template's words that open
    an answer. `reasoning_format` "none" leaves reasoning in the text, with its markers.
    """

    max_tokens: int | None
    stop: str | Sequence[str]
    special: bool
    ignore_eos: bool
    tools: Sequence[Mapping[str, Any]]
    tool_choice: Literal["auto", "none", "required"] | Mapping[str, Any]
    parallel_tool_calls: bool
    variables: Mapping[str, object]
    continue_final_message: bool
    add_generation_prompt: bool
    reasoning_format: Literal["auto", "none"]
