"""Log-probabilities of a prompt's tokens, reduced row by row on the engine's thread.

A row of logits is V floats, so the rows of a long prompt would take gigabytes; a score takes some bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from camelid.engine.request import Request
from camelid.errors import RequestError


class TokenScore(NamedTuple):
    """A token's natural log-probability after the tokens before it, and the likeliest tokens there."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class PromptScorer:
    """Scores the prompt's tokens with `n_top` alternatives each. The last row has no next token."""

    prompt_ids: tuple[int, ...]
    n_top: int

    def __call__(self, row: int, logits: memoryview[float], log_sum_exp: float) -> TokenScore | None:
        """The score of the token after a row, as if the token had been drawn."""
        if row + 1 == len(self.prompt_ids):
            return None
        top = tuple((i, logits[i] - log_sum_exp) for i in largest(logits, self.n_top))
        return TokenScore(logits[self.prompt_ids[row + 1]] - log_sum_exp, top)


def largest(logits: memoryview[float], n: int) -> list[int]:
    """Indices of the n largest logits, largest first, ties by index."""
    if n == 0:
        return []
    values = np.frombuffer(logits.cast("B"), np.float32)
    n = min(n, len(values))
    indices = np.flatnonzero(values >= np.partition(values, -n)[-n])
    return indices[np.argsort(-values[indices], kind="stable")][:n].tolist()


def scoring_request(request: Request, n_top: int) -> Request:
    """A request that scores its prompt and generates nothing.

    Raises RequestError for a prompt that an encoder reads, since no row of it predicts the next token.
    """
    if request.source_ids:
        raise RequestError(
            "logprobs of the prompt are asked for, but an encoder reads it and predicts none of its tokens; "
            "leave out echo or logprobs",
            field="echo",
        )
    return replace(
        request, all_logits=True, constraint=None, proposer=None,
        score=PromptScorer(request.prompt_ids, n_top),
    )  # fmt: skip
