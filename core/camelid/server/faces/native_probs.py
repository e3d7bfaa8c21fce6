"""`completion_probabilities`: log-probabilities of the model, or probabilities after all samplers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, fsum
from typing import Any

from camelid.requests.output_text import Event
from camelid.sampling.drawing import DrawNoise
from camelid.sampling.params import MAX_LOGPROBS
from camelid.sampling.samplers import SAMPLERS
from camelid.sampling.survivors import Survivors
from camelid.sampling.values import SamplerContext
from camelid.server.faces.common import Body, model_tokenizer, token_logprobs
from camelid.server.http.errors import ApiError
from camelid.server.service.service import Started


def n_logprobs(own: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """The log-probabilities to request of the engine.

    Raises ApiError 400 where probabilities after the samplers are unknown.
    """
    n = own.get("n_probs", own.get("logprobs", 0))
    if not n or not own.get("post_sampling_probs"):
        return n
    if options.get("mirostat") or options.get("grammar") or options.get("json_schema") is not None:
        raise ApiError(
            400, "post_sampling_probs does not exist with mirostat or a grammar; leave it out",
            param="post_sampling_probs",
        )  # fmt: skip
    return MAX_LOGPROBS


@dataclass(slots=True)
class TokenProbs:
    """The probabilities of one choice's tokens."""

    started: Started
    choice: int
    n: int
    is_post_sampling: bool
    history: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.history = list(self.started.request.prompt_ids)

    @classmethod
    def of(cls, started: Started, choice: int, own: Mapping[str, Any]) -> TokenProbs | None:
        """None for a request without probabilities."""
        n = own.get("n_probs", own.get("logprobs", 0))
        return cls(started, choice, n, bool(own.get("post_sampling_probs"))) if n else None

    def of_event(self, event: Event) -> Body:
        """The object of one token. Call it for each token in order."""
        tokenizer = model_tokenizer(self.started.service)
        (body,) = token_logprobs([event], tokenizer)
        if self.is_post_sampling:
            body = self._post_sampling(body, event)
        self.history += [] if event.token_id is None else [event.token_id]
        return body

    def _post_sampling(self, body: Body, event: Event) -> Body:
        found = self.probabilities(event.top_logprobs)
        order = sorted(body["top_logprobs"], key=lambda entry: -found.get(entry["id"], 0.0))
        return {
            **as_prob(body, found),
            "top_probs": [as_prob(entry, found) for entry in order[: self.n]],
        }

    def probabilities(self, likeliest: Sequence[tuple[int, float]]) -> dict[int, float]:
        """The probabilities after all samplers, of the tokens that survive among the likeliest.

        The chain runs on the model's `MAX_LOGPROBS` likeliest tokens; rarer ones count as dropped.
        """
        params = self.started.request.sampling
        survivors = Survivors([i for i, _ in likeliest], [value for _, value in likeliest])
        for name in params.chain:
            if params.is_greedy and name == "temperature":
                break
            SAMPLERS[name].apply(survivors, self._context())
        if params.is_greedy:
            return {survivors.ids[0]: 1.0} if survivors.ids else {}
        weights = [exp(logit) for logit in survivors.relative_logits] if survivors.ids else []
        return {i: w / fsum(weights) for i, w in zip(survivors.ids, weights, strict=True)}

    def _context(self) -> SamplerContext:
        request = self.started.request
        params = request.sampling
        assert params.seed is not None, "a started request has a seed"
        return SamplerContext(
            params=params,
            noise=DrawNoise(params.seed, self.choice, len(self.history)),
            history=self.history,
            vocab_size=self.started.service.host.running.engine.vocab_size,
            mu=0.0,
            token_bytes=request.token_bytes,
            breakers=[breaker.encode() for breaker in params.dry_sequence_breakers],
        )


def as_prob(entry: Body, found: Mapping[int, float]) -> Body:
    """A token's object with its probability after the samplers."""
    kept = {name: entry[name] for name in ("id", "token", "bytes")}
    return kept | {"prob": found.get(entry["id"], 0.0)}
