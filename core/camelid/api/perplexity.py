"""Perplexity of a model on a text: windows over the token ids, and the loss of the scored ids.

There are two kinds of windows. Chunks, as in llama.cpp: chunks of `context` ids do not overlap, and the
second half of each chunk is scored. Strided windows, as in the documentation of transformers: windows
overlap, and every id but the first is scored once, after all earlier ids of its window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, log, sqrt

from camelid.errors import RequestError


@dataclass(frozen=True, slots=True)
class Window:
    """Token ids of one forward pass. Ids from index `first` (at least 1) on are scored."""

    token_ids: tuple[int, ...]
    first: int

    @property
    def n_scored(self) -> int:
        """Number of scored ids."""
        return len(self.token_ids) - self.first


@dataclass(frozen=True, slots=True)
class PerplexityEstimate:
    """Sums over scored ids: their count, negative log-likelihoods in nats, and squares of these."""

    n_tokens: int = 0
    total: float = 0.0
    squares: float = 0.0

    def plus(self, losses: Sequence[float]) -> PerplexityEstimate:
        """The estimate with the losses of more ids."""
        return PerplexityEstimate(
            self.n_tokens + len(losses),
            self.total + fsum(losses),
            self.squares + fsum(loss * loss for loss in losses),
        )

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood, in nats a token."""
        return self.total / self.n_tokens

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite beyond the range of float64."""
        return exp(self.loss) if self.loss < 709 else inf

    @property
    def error(self) -> float:
        """Standard error of the perplexity: ppl * sqrt(var(loss) / (n - 1)); 0.0 for one id."""
        if self.n_tokens < 2:
            return 0.0
        variance = max(self.squares / self.n_tokens - self.loss**2, 0.0)
        return self.perplexity * sqrt(variance / (self.n_tokens - 1))


def chunk_windows(token_ids: Sequence[int], context: int, before: Sequence[int] = ()) -> Iterator[Window]:
    """Chunks of `context` ids; `before` (BOS, if the model has a BOS) replaces the first ids of a chunk.

    A partial last chunk is left out. Raises RequestError for a text shorter than one chunk.
    """
    _check(len(token_ids), context, least=4, need=context)
    for start in range(0, len(token_ids) - context + 1, context):
        chunk = token_ids[start : start + context]
        yield Window((*before, *chunk[len(before) :]), context // 2 + 1)


def strided_windows(token_ids: Sequence[int], context: int, stride: int) -> Iterator[Window]:
    """Windows of up to `context` ids at distances of `stride`; each scores the ids not scored before.

    Raises RequestError for a stride that would leave ids out, and for a text of one id.
    """
    _check(len(token_ids), context, least=2, need=2)
    if not 1 <= stride < context:
        raise RequestError(
            f"stride is {stride}, expected 1 to {context - 1}, so that windows of {context} overlap",
            field="stride",
        )
    scored = 1  # the first id has no predecessor
    for start in range(0, len(token_ids), stride):
        end = min(start + context, len(token_ids))
        yield Window(tuple(token_ids[start:end]), scored - start)
        scored = end
        if end == len(token_ids):
            return


def _check(n_ids: int, context: int, *, least: int, need: int) -> None:
    if context < least:
        raise RequestError(f"context is {context}, expected at least {least}", field="context")
    if n_ids < need:
        raise RequestError(
            f"the text has {n_ids} tokens, expected at least {need}; give a longer text or a smaller context",
            field="text", n_tokens=n_ids, context_length=context,
        )  # fmt: skip


def window_losses(window: Window, logits: memoryview[float]) -> list[float]:
    """The negative log-likelihood of each scored id, from `logits` [T, V] of the window's ids."""
    ids, n_vocab = window.token_ids, (logits.shape or (0, 0))[1]
    rows = logits.cast("B").cast("f")  # flat: a two-dimensional memoryview cannot be sliced
    return [token_loss(rows[(i - 1) * n_vocab : i * n_vocab], ids[i]) for i in range(window.first, len(ids))]


def token_loss(logits: memoryview[float], token_id: int) -> float:
    """-log softmax(logits)[token_id] in float64. `logits` is [V]."""
    values = logits.tolist()
    top = max(values)
    return top + log(fsum(exp(value - top) for value in values)) - values[token_id]
