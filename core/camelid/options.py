"""What a caller may say: the options of a request and of loading, and what a prompt may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, cast

from camelid.errors import RequestError
from camelid.messages import shown

Message: TypeAlias = Mapping[str, object]
Prompt: TypeAlias = str | Sequence[int] | Sequence[Message]


class GuideOptions(TypedDict, total=False):
    """What an answer must follow; one of these at most.

    `grammar` is GBNF text; `json_schema` a schema or its JSON text; `regex` a pattern for the whole answer;
    `choice` a list of texts; `response_format` as OpenAI has it.
    """

    grammar: str
    json_schema: Mapping[str, Any] | bool | str
    regex: str
    choice: Sequence[str]
    response_format: Mapping[str, Any]


class Options(GuideOptions, total=False):
    """What a request may say besides its prompt.

    `max_tokens` None goes on up to the context; `stop` ends the text before the first of these strings;
    `special` lets a text prompt name control tokens; `ignore_eos` goes on past end tokens. `temperature` 0 is
    greedy; the default is what the model's file recommends, else 0.8. Without a `seed` one is drawn.

    With messages as the prompt: `tools`, as OpenAI has them, which the model may call; `variables` for the
    chat template, such as {"enable_thinking": False}.
    """

    max_tokens: int | None
    stop: str | Sequence[str]
    special: bool
    ignore_eos: bool
    temperature: float
    seed: int | None
    tools: Sequence[Mapping[str, Any]]
    variables: Mapping[str, object]


class LoadWords(TypedDict, total=False):
    """How a model is loaded.

    `backend` auto takes webgpu on a hardware adapter, else the reference; `adapter` asks for a device whose
    name contains this text. `context` bounds prompt and answer of one sequence (the model's own length up to
    4096 unless given), `parallel` the sequences that run at once, `chunk` the prompt rows of one step; these
    three bound the memory. `kv_type` is how keys and values are held: f32, f16, q8_0, q4_0, or two-tier and
    two-tier-q4_0: q8_0 or q4_0, with the latest 256 rows or more in f16 as well. `max_in_flight` lowers the
    steps that run ahead; `record_tape` is for `save_tape`.
    """

    backend: str
    adapter: str
    context: int | None
    parallel: int
    chunk: int
    kv_type: str
    max_in_flight: int | None
    record_tape: bool


def checked_stops(stop: object) -> tuple[str, ...]:
    """Stop strings, of one string or several. RequestError for anything else."""
    stops = (stop,) if isinstance(stop, str) else stop
    if isinstance(stops, list | tuple):
        items = cast("Sequence[object]", stops)
        if all(isinstance(item, str) and item for item in items):
            return tuple(cast("Sequence[str]", items))
    raise RequestError(f"stop is {shown(stop)}, expected strings that are not empty", field="stop")
