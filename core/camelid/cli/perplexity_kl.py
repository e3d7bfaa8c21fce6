"""Divergence of a model from a base on the same text: what a quantized type costs."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, fsum, sqrt

import numpy as np
from numpy.typing import NDArray

from camelid.api.llm import LLM
from camelid.api.perplexity import PerplexityEstimate, Window
from camelid.errors import RequestError

F64 = NDArray[np.float64]


@dataclass(slots=True)
class Divergence:
    """Kullback-Leibler divergences of scored tokens, in nats, from the base's probabilities to the model's;
    the tokens whose most probable next token is the same; the losses of both. Eight bytes a token
    are kept."""

    kl: array[float] = field(default_factory=lambda: array("d"))
    same: int = 0
    base: PerplexityEstimate = field(default_factory=PerplexityEstimate)
    model: PerplexityEstimate = field(default_factory=PerplexityEstimate)

    def add(self, window: Window, base: F64, model: F64) -> None:
        """Adds a window with log-probabilities [T, V] of both."""
        rows = slice(window.first - 1, len(window.token_ids) - 1)
        ids = np.array(window.token_ids[window.first :])
        own, other = base[rows], model[rows]
        self.kl.extend(np.maximum(np.einsum("tv,tv->t", np.exp(own), own - other), 0.0).tolist())
        self.same += int((own.argmax(axis=1) == other.argmax(axis=1)).sum())
        at = np.arange(len(ids))
        self.base = self.base.plus((-own[at, ids]).tolist())
        self.model = self.model.plus((-other[at, ids]).tolist())

    def facts(self) -> dict[str, float]:
        """Figures for --json: mean, its standard error, median, 99 % quantile and maximum of the divergence;
        the share of equal most probable tokens; perplexities and their ratio."""
        n, mean = len(self.kl), fsum(self.kl) / len(self.kl)
        spread = fsum((each - mean) ** 2 for each in self.kl) / n
        median, high = (float(each) for each in np.quantile(np.array(self.kl), (0.5, 0.99)))
        return {
            "kl_mean": mean,
            "kl_error": sqrt(spread / (n - 1)) if n > 1 else 0.0,
            "kl_median": median,
            "kl_99": high,
            "kl_max": max(self.kl),
            "top1": self.same / n,
            "base_perplexity": self.base.perplexity,
            "perplexity_ratio": exp(self.model.loss - self.base.loss),
        }


def log_probabilities(llm: LLM, token_ids: Sequence[int]) -> F64:
    """log softmax of the logits after each token, [T, V], in float64."""
    logits = np.asarray(llm.logits(token_ids)).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def check_alike(model: LLM, base: LLM, text: str) -> None:
    """Raises RequestError unless both models have the same vocabulary and read the text alike."""
    sizes = model.spec.vocab_size, base.spec.vocab_size
    start = text[:10_000]
    if sizes[0] != sizes[1] or [*model.tokenizer.encode(start)] != [*base.tokenizer.encode(start)]:
        raise RequestError(
            f"the base has other tokens (vocabularies of {sizes[1]:,} and {sizes[0]:,}); --kl compares two "
            "files of one model, such as a quantized one with its source",
            field="kl",
        )


def lines(facts: dict[str, float], n_tokens: int) -> list[str]:
    """The figures as text."""
    return [
        f"perplexity ratio {facts['perplexity_ratio']:.4f}, the base has {facts['base_perplexity']:.4f}",
        f"KL divergence in nats: mean {facts['kl_mean']:.6f} ± {facts['kl_error']:.6f}, median "
        f"{facts['kl_median']:.6f}, 99 % {facts['kl_99']:.6f}, max {facts['kl_max']:.6f}",
        f"same top token {100 * facts['top1']:.2f} % of {n_tokens:,}",
    ]
