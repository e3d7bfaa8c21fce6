"""A request for text completions, from its checked fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from camelid.server.faces.chat_completions import wants_usage
from camelid.server.faces.common import answer_limit_s, check_stream_options, scheduling_options
from camelid.server.fields.table import Values
from camelid.server.fields.texts import TextOrIds
from camelid.server.http.errors import ApiError

MAX_TOKENS = 16  # of an answer that names no bound, as in OpenAI's API; -1 asks for as many as fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for text completions. `n_made` choices are generated, the `n` likeliest returned.

    `logprobs` None returns no log-probabilities.
    """

    prompts: Sequence[TextOrIds]
    options: Mapping[str, Any]
    n: int
    n_made: int
    max_tokens: int | None
    logprobs: int | None
    suffix: str | None
    has_echo: bool
    is_stream: bool
    with_usage: bool
    id_slot: int
    max_answer_s: float
    with_progress: bool  # reports on the prompt
    with_timings: bool  # in every chunk
    is_verbose: bool  # with llama.cpp's own final object

    @classmethod
    def of(cls, values: Values) -> Asked:
        """The request of checked fields. Raises ApiError 400 for fields that contradict each other."""
        own, options = values.own, dict(values.options)
        check_stream_options(own)
        n = own.get("n", 1)
        most = options.pop("max_tokens", MAX_TOKENS)
        asked = cls(
            prompts=own["prompt"],
            options=options | scheduling_options(own),
            n=n,
            n_made=own.get("best_of", n),
            max_tokens=None if most < 0 else most,
            logprobs=legacy_count(own.get("logprobs")),
            suffix=own.get("suffix"),
            has_echo=own.get("echo", False),
            is_stream=own.get("stream", False),
            with_usage=wants_usage(own),
            id_slot=own.get("id_slot", -1),
            max_answer_s=answer_limit_s(own),
            with_progress=own.get("return_progress", False),
            with_timings=own.get("timings_per_token", False),
            is_verbose=own.get("verbose", False),
        )
        asked.check()
        return asked

    def check(self) -> None:
        """Raises ApiError 400 for fields that contradict each other."""
        if self.n_made < self.n:
            raise ApiError(400, f"best_of is {self.n_made}, expected at least n = {self.n}", param="best_of")
        if self.is_stream and self.n_made > self.n:
            raise ApiError(
                400, "best_of above n cannot be streamed: the best are known at the end", param="best_of"
            )
        if self.suffix is not None and not all(isinstance(prompt, str) for prompt in self.prompts):
            raise ApiError(400, "suffix needs prompts of text, not of token ids", param="suffix")
        if self.suffix is not None and self.has_echo:
            raise ApiError(400, "suffix and echo cannot be combined", param="suffix")

    @property
    def scores_prompt(self) -> bool:
        """True if each prompt is computed by a job of its own before its answers, or without answers."""
        return self.max_tokens == 0 or (self.has_echo and self.logprobs is not None)


def legacy_count(value: bool | int | None) -> int | None:
    """The number of alternatives a token; None without log-probabilities."""
    if isinstance(value, bool):
        return 0 if value else None
    return value
