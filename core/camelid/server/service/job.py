"""A job: a request as every dialect hands it to a model's service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from camelid.requests.build import RequestBuilder
from camelid.requests.options import Prompt
from camelid.requests.output_text import ChatPrompt
from camelid.server.http.keys import ANONYMOUS, Key

RENDERED = ("tools", "variables")  # options that the prompt depends on


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A prompt, the options of the Python API, and the number of choices.

    `prepare` makes the prompt from `prompt` and `suffix` where neither text nor the chat template does. With
    `prompt_logprobs` the job scores its prompt, with that many alternatives a token, and generates nothing.
    `endpoint` and `request_id` name the job in metrics, logs and the witness log. `id_slot` is the slot that
    the client prefers, -1 for any. With `reports_progress` batches report the computed part of the prompt.
    `max_answer_s` is the limit of `AnswerTime` in seconds, 0 for none. `reply_id` is the id by which the
    client will give feedback. With `heads_first` the reply names its adapter before the first token.
    """

    prompt: Prompt | ChatPrompt
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    n: int = 1
    suffix: str = ""
    prepare: Callable[[RequestBuilder], Prompt | ChatPrompt] | None = None
    prompt_logprobs: int | None = None
    endpoint: str = ""
    request_id: str = ""
    key: Key = ANONYMOUS
    id_slot: int = -1
    reports_progress: bool = False
    max_answer_s: float = 0.0
    reply_id: str = ""
    heads_first: bool = False

    @property
    def is_decided_at_once(self) -> bool:
        """True if the adapter of the answer must be known before the first token."""
        return self.heads_first or self.reports_progress or self.prompt_logprobs is not None

    @property
    def texts(self) -> object:
        """All that is rendered and tokenized for the prompt."""
        return self.prompt, self.suffix, [self.options.get(name) for name in RENDERED]
