"""Expected answers of the engine's fuzz, computed from the prompts alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.support.engine_fakes import FALL
from tests.support.engine_scenario import Ask
from tests.support.shadow import VOCAB, adapted, drawn, next_id, views_of

from camelid.errors import BackendError
from camelid.plan.plan import StateSpec
from camelid.sampling.params import SamplingParams


@dataclass
class EveryNth:
    """A grammar that allows token ids divisible by `n`; each mask is late for some looks."""

    n: int
    late: int = 0
    is_finished: bool = False
    looks: int = 0

    def ready(self) -> bool:
        self.looks += 1
        return self.looks > self.late

    @property
    def is_lazy(self) -> bool:
        return self.n == 7  # in the shadow model a draw with the mask is also one without it

    def mask(self) -> bytes:
        bits = sum(1 << i for i in range(0, VOCAB, self.n))
        return bits.to_bytes(-(-VOCAB // 8), "little")

    def accept(self, token_id: int) -> bool:
        is_allowed = token_id % self.n == 0
        self.looks *= not is_allowed
        return is_allowed


@dataclass
class Guesses:
    """A draft proposer that knows the model and corrupts a quarter of its drafts."""

    states: Sequence[StateSpec]
    ask: Ask
    draw: Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = Random(self.ask.guesses)

    async def propose(self, token_ids: Sequence[int], most: int, sampling: SamplingParams) -> Sequence[int]:
        known, how = list(token_ids), self.ask.params.words()
        if self.ask.falters and self.draw.random() < 0.2:
            raise BackendError("the draft model hiccupped", backend="hash")
        for _ in range(self.draw.randint(0, most)):
            guess = next_id(self.states, known, how)
            known.append(guess if self.draw.random() < 0.75 else self.draw.randrange(VOCAB))
        return known[len(token_ids) :]


def likeliest(states: Sequence[StateSpec], token_ids: Sequence[int]) -> int:
    return drawn(tuple(views_of(states, token_ids)))


def biased(best: int, biases: Sequence[tuple[int, float]]) -> int:
    """The likeliest token after biases; each logit is FALL below the logit of the previous id."""
    levels = {best: 0.0} | {i: bias - FALL * ((i - best) % VOCAB) for i, bias in biases}
    return max(sorted(levels), key=levels.__getitem__)


@dataclass
class Oracle:
    """The answer to one request within a context length. `choices` maps an answer index to the choice with
    which a fork draws from there on.
    """

    states: Sequence[StateSpec]
    ask: Ask
    context: int
    choices: tuple[tuple[int, int], ...] = ((0, 0),)

    def answer(self) -> list[int]:
        """All ids of the answer, ignoring end tokens."""
        return list(self._ids())

    def _ids(self) -> Iterator[int]:
        token_ids, n_shifted = list(self.ask.prompt), 0
        first = self.adapter_from(token_ids)
        for n in range(self.ask.max_tokens):
            if len(token_ids) == self.context:
                if self.ask.overflow == "stop":
                    return
                n_dropped = self._shift(token_ids)
                n_shifted += n_dropped
                keep = min(self.ask.n_keep, self.context - 2)
                first = max(first - n_dropped, keep) if first > keep else first
            token_ids.append(self._next(token_ids, n, n_shifted, self.stored(token_ids, first)))
            yield token_ids[-1]

    @property
    def invocation(self) -> tuple[int, ...]:
        """The token that activates the adapter, if one does."""
        at = len(self.ask.prompt) - self.ask.invocation
        return (self.ask.prompt[at],) if self.ask.invocation else ()

    def adapter_from(self, token_ids: Sequence[int]) -> int:
        """The first row on which the adapter acts: that of the last such token of the prompt."""
        if not self.ask.invocation:
            return 0
        return max(i for i, token_id in enumerate(token_ids) if token_id == self.invocation[0])

    def stored(self, token_ids: Sequence[int], first: int) -> list[int]:
        """The rows of these tokens."""
        own = [adapted(token_id, self.ask.adapter) for token_id in token_ids[first:]]
        return [*token_ids[:first], *own]

    def _shift(self, token_ids: list[int]) -> int:
        """Drops the older half of the tokens after the kept prefix. Returns the number dropped."""
        keep = min(self.ask.n_keep, len(token_ids) - 2)
        n = max((len(token_ids) - keep) // 2, 1)
        del token_ids[keep : keep + n]
        return n

    def _next(self, token_ids: Sequence[int], n: int, n_shifted: int, stored: Sequence[int]) -> int:
        ask = self.ask
        if ask.guided:
            best = likeliest(self.states, stored)
            return next(i % VOCAB for i in range(best, 2 * VOCAB) if i % VOCAB % ask.guided == 0)
        if ask.sampling == "many biases":
            return biased(likeliest(self.states, stored), ask.params.logit_bias)
        choice = max(pair for pair in self.choices if pair[0] <= n)[1]
        how = None if ask.is_hosted else replace(ask.params.words(), choice=choice, offset=n_shifted)
        return next_id(self.states, token_ids, how, stored)


def until(token_ids: Sequence[int], eos_ids: frozenset[int]) -> list[int]:
    """The answer before its first end token."""
    end = next((i for i, token_id in enumerate(token_ids) if token_id in eos_ids), len(token_ids))
    return list(token_ids[:end])
