"""How well a model predicts a text: windows over its token ids, and the perplexity of what is scored.

Two ways to cut a text are in use. Chunks, as llama.cpp has it: each `context` ids are read by themselves and
the second half is scored. Strided, as the documentation of transformers has it: windows overlap, and every id
but the first is scored once, after as many ids as its window holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, log, sqrt

from camelid.errors import RequestError


@dataclass(frozen=True, slots=True)
class Window:
    """Ids to read at once. Those from index `first` (at least 1) on are scored."""

    token_ids: tuple[int, ...]
    first: int

    @property
    def n_scored(self) -> int:
        """Ids that are scored."""
        return len(self.token_ids) - self.first


@dataclass(frozen=True, slots=True)
class PerplexityEstimate:
    """Sums over scored ids: how many, of their negative log-likelihoods in nats, and of the squares."""

    n_tokens: int = 0
    total: float = 0.0
    squares: float = 0.0

    def plus(self, losses: Sequence[float]) -> PerplexityEstimate:
        """With more ids."""
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
        """e to the loss; infinite where that is beyond float64."""
        return exp(self.loss) if self.loss < 709 else inf

    @property
    def error(self) -> float:
        """Standard error of the perplexity, by the loss's own: ppl * sqrt(var / (n - 1)). 0.0 for one id."""
        if self.n_tokens < 2:
            return 0.0
        variance = max(self.squares / self.n_tokens - self.loss**2, 0.0)
        return self.perplexity * sqrt(variance / (self.n_tokens - 1))


def chunk_windows(token_ids: Sequence[int], context: int, before: Sequence[int] = ()) -> Iterator[Window]:
    """Whole chunks of `context` ids; `before` (BOS, if the model reads one) replaces a chunk's first ids.

    A last chunk that is not full is left out. RequestError if nothing is left to score.
    """
    _check(len(token_ids), context, least=4, need=context)
    for start in range(0, len(token_ids) - context + 1, context):
        chunk = token_ids[start : start + context]
        yield Window((*before, *chunk[len(before) :]), context // 2 + 1)


def strided_windows(token_ids: Sequence[int], context: int, stride: int) -> Iterator[Window]:
    """Windows of up to `context` ids, each `stride` further on, that score the ids not scored before.

    RequestError for a stride that would leave ids out, and for a text of one id.
    """
    _check(len(token_ids), context, least=2, need=2)
    if not 1 <= stride < context:
        raise RequestError(
            f"stride is {stride}, expected 1 to {context - 1}, so that windows of {context} overlap",
            field="stride",
        )
    scored = 1  # nothing comes before the first id
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
    rows = logits.cast("B").cast("f")  # flat: slices of two-dimensional views do not exist
    return [token_loss(rows[(i - 1) * n_vocab : i * n_vocab], ids[i]) for i in range(window.first, len(ids))]


def token_loss(logits: memoryview[float], token_id: int) -> float:
    """-log softmax(logits)[token_id] in float64. `logits` is [V]."""
    values = logits.tolist()
    top = max(values)
    return top + log(fsum(exp(value - top) for value in values)) - values[token_id]
