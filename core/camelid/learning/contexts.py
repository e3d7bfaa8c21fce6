"""kNN-LM over a few items: keys of contexts, and the mixture that they make for one request.

The key of a context is a sketch of the model's logits after it: the logits are a linear map of the last
hidden state, so near states have near keys, and every backend returns logits. Khandelwal et al. (arXiv
1911.00172) mix with a constant weight over millions of keys. Among the few hundred keys of some items most
contexts have no neighbour, so here the weight falls to 0 with the similarity of the nearest key: on cria,
the nearest key's token is right in nearly all contexts above 0.7 and in few below.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum

from camelid.learning.rows import Contexts
from camelid.learning.vectors import Kernels, Rows
from camelid.sampling.mixture import Mixing

DIM = 256
KEY_BYTES = 4 * DIM
WEIGHT = 0.6  # of the nearest keys against the model
FAR, NEAR = 0.6, 0.75  # similarities of the nearest key with no weight and with all of it
SHARPNESS = 300.0  # per unit of similarity of keys
N_KEYS = 3


@dataclass(slots=True)
class NearestContexts:
    """A `Mixer` over the contexts of some items."""

    rows: Rows
    tokens: Sequence[int]
    kernels: Kernels
    answers: Sequence[tuple[int, ...]] = ()  # of items known to be near
    n_prompt: int = 0

    @classmethod
    def of(cls, found: Sequence[Contexts], kernels: Kernels, n_prompt: int | None = None) -> NearestContexts:
        """The mixer of these items' contexts. A request of `n_prompt` tokens is known to be near them."""
        rows, tokens = Rows(DIM, kernels), [token for each in found for token in each.tokens]
        keys = array("f", b"".join(each.keys for each in found))
        for i in range(len(tokens)):
            rows.add(i, keys[i * DIM : (i + 1) * DIM])
        answers = [each.tokens for each in found] if n_prompt is not None else ()
        return cls(rows, tokens, kernels, answers, n_prompt or 0)

    def mixing(self, logits: memoryview[float], history: Sequence[int]) -> Mixing | None:
        """The tokens after the nearest contexts; None if no context is near."""
        is_whole = len(history) >= self.n_prompt  # not shifted
        if is_whole and (agreed := self._agreed(history[self.n_prompt :])):
            return agreed
        nearest = self.rows.nearest(self.kernels.sketch(logits, DIM), N_KEYS)
        near = (nearest[0][0] - FAR) / (NEAR - FAR) if nearest else 0.0
        if near <= 0.0:
            return None
        return Mixing(WEIGHT * min(near, 1.0), self._distribution(nearest))

    def _agreed(self, answer: Sequence[int]) -> Mixing | None:
        """The next token of the items whose answers begin as this one, if two or more do and all agree: it
        is what the feedback has in common. Where they differ, a request has words of its own.
        """
        n, begun = len(answer), tuple(answer)
        followed = [tokens[n] for tokens in self.answers if len(tokens) > n and tokens[:n] == begun]
        if len(followed) < 2 or len(set(followed)) > 1:
            return None
        return Mixing(WEIGHT, {followed[0]: 1.0})

    def _distribution(self, nearest: Sequence[tuple[float, int]]) -> Mapping[int, float]:
        """q: a softmax over the nearest keys' similarities, summed by token."""
        weights = [exp(SHARPNESS * (similarity - nearest[0][0])) for similarity, _ in nearest]
        total, found = fsum(weights), dict[int, float]()
        for weight, (_, i) in zip(weights, nearest, strict=True):
            token = self.tokens[i]
            found[token] = found.get(token, 0.0) + weight / total
        return found
