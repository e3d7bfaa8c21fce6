"""Speculative decoding: one step verifies several draft tokens (idea: Leviathan et al., 2023).

At each draft position a token is drawn with that position's noise, and drafts are accepted before the first
that differs from the draw. So the tokens are those of decoding without drafts, where the backend's logits do
not depend on the rows of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol, runtime_checkable

from camelid.errors import CamelidError, RequestError, shown
from camelid.sampling.params import SamplingParams

LONGEST, SHORTEST = 4, 2  # longest and shortest n-gram that is looked up


@runtime_checkable
class Proposer(Protocol):
    """Proposes draft tokens for one sequence."""

    async def propose(self, token_ids: Sequence[int], most: int, sampling: SamplingParams) -> Sequence[int]:
        """Up to `most` token ids that may follow `token_ids`; empty if no draft is likely.

        A draft model draws with the seed of `sampling`, as the model does.
        """
        ...


async def propose_drafts(
    proposer: Proposer, token_ids: Sequence[int], most: int, sampling: SamplingParams, vocab_size: int
) -> tuple[int, ...]:
    """The proposer's drafts, at most `most`.

    Raises RequestError if it fails or returns ids outside the vocabulary.
    """
    try:
        drafts = tuple(islice(await proposer.propose(token_ids, most, sampling), most))
    except CamelidError:
        raise
    except Exception as error:  # a proposer may be user code
        raise _proposer_error(proposer, f"raised {type(error).__name__}: {error}") from error
    for i in drafts:
        if type(i) is not int or not 0 <= i < vocab_size:
            raise _proposer_error(proposer, f"proposed {shown(i)}, expected ids from 0 to {vocab_size - 1}")
    return drafts


def _proposer_error(proposer: Proposer, fault: str) -> RequestError:
    """The error for a proposer that failed or proposed invalid ids."""
    name = type(proposer).__name__
    return RequestError(f"speculation: {name} {fault}; fix it, or omit speculate", field="speculate")


class NgramLookup:
    """Prompt lookup (Saxena, 2023): proposes the tokens after the previous occurrence of the last n-gram."""

    def __init__(self) -> None:
        self._index: dict[tuple[int, ...], int] = {}  # n-gram -> index of the token after it
        self._n_read = 0

    async def propose(self, token_ids: Sequence[int], most: int, sampling: SamplingParams) -> Sequence[int]:  # noqa: ARG002
        """The tokens after the latest earlier occurrence of the longest suffix of 4 to 2 tokens."""
        self._read(token_ids)
        for n in range(LONGEST, SHORTEST - 1, -1):
            at = self._index.get(tuple(token_ids[-n:]))
            if at is not None and len(token_ids) > n:
                return token_ids[at : at + most]
        return ()

    def _read(self, token_ids: Sequence[int]) -> None:
        """Indexes the n-grams since the last call, except those that end with the last token."""
        if len(token_ids) <= self._n_read:  # a context shift dropped tokens
            self.__init__()
        for end in range(max(self._n_read, SHORTEST), len(token_ids)):
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                self._index[tuple(token_ids[end - n : end])] = end
        self._n_read = len(token_ids)


PROPOSERS: dict[str, Callable[[], Proposer]] = {"ngram": NgramLookup}


def proposer_of(speculate: object) -> Callable[[], Proposer] | None:
    """The factory of a sequence's proposer, from the `speculate` option: a name, or an object with `propose`.

    All sequences share an object, such as a draft model. Raises RequestError for any other value.
    """
    if speculate is None:
        return None
    if isinstance(speculate, str) and speculate in PROPOSERS:
        return PROPOSERS[speculate]
    if isinstance(speculate, Proposer):
        return lambda: speculate
    known = ", ".join(repr(name) for name in PROPOSERS)
    raise RequestError(
        f"speculate is {shown(speculate)}, expected {known} or an object with `propose`, such as a loaded "
        "model",
        field="speculate",
    )
