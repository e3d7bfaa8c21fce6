"""Speculation: cheap guesses of what comes next, of which one step checks several (Leviathan et al., 2023).

The model draws at every guessed position with that position's own noise, and guesses count as far as they are
what it drew. So the answer is the one that it would have given without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from camelid.errors import CamelidError, RequestError, shown
from camelid.sampling.params import SamplingParams

LONGEST, SHORTEST = 4, 2  # tokens that must have stood there before


class Proposer(Protocol):
    """Guesses what comes next."""

    async def propose(self, token_ids: Sequence[int], most: int, sampling: SamplingParams) -> Sequence[int]:
        """Up to `most` ids that may follow these; none without a good guess."""
        ...


async def propose_drafts(
    proposer: Proposer, token_ids: Sequence[int], most: int, sampling: SamplingParams, vocab_size: int
) -> tuple[int, ...]:
    """What it proposes, at most so many ids. RequestError where it fails, or they are no ids of the model."""
    try:
        drafts = tuple(islice(await proposer.propose(token_ids, most, sampling), most))
    except CamelidError:
        raise
    except Exception as error:  # it may be anybody's code
        raise _misbehaved(proposer, f"raised {type(error).__name__}: {error}") from error
    for i in drafts:
        if type(i) is not int or not 0 <= i < vocab_size:
            raise _misbehaved(proposer, f"proposed {shown(i)}, expected ids from 0 to {vocab_size - 1}")
    return drafts


def _misbehaved(proposer: Proposer, what: str) -> RequestError:
    name = type(proposer).__name__
    return RequestError(f"speculation: {name} {what}; mend it, or leave out speculate", field="speculate")


class NgramLookup:
    """What followed the last few tokens when they stood there before (Saxena, 2023: prompt lookup)."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, ...], int] = {}  # n-gram -> where the token after it stands
        self._n_read = 0

    async def propose(self, token_ids: Sequence[int], most: int, sampling: SamplingParams) -> Sequence[int]:  # noqa: ARG002
        """What followed the longest known n-gram at the end, the last time."""
        self._read(token_ids)
        for n in range(LONGEST, SHORTEST - 1, -1):
            at = self._seen.get(tuple(token_ids[-n:]))
            if at is not None and len(token_ids) > n:
                return token_ids[at : at + most]
        return ()

    def _read(self, token_ids: Sequence[int]) -> None:
        """Learns the n-grams that ended since the last call, but for those at the very end."""
        if len(token_ids) <= self._n_read:  # tokens were dropped
            self.__init__()
        for end in range(max(self._n_read, SHORTEST), len(token_ids)):
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                self._seen[tuple(token_ids[end - n : end])] = end
        self._n_read = len(token_ids)


PROPOSERS: dict[str, Callable[[], Proposer]] = {"ngram": NgramLookup}


def proposer_of(way: object) -> Callable[[], Proposer] | None:
    """Makes the proposer of one sequence: by name, or an object that proposes, such as a draft model."""
    if way is None:
        return None
    if isinstance(way, str) and way in PROPOSERS:
        return PROPOSERS[way]
    if hasattr(way, "propose"):
        proposer: Proposer = way  # type: ignore[assignment]  # it has what the protocol asks for
        return lambda: proposer
    known = ", ".join(repr(name) for name in PROPOSERS)
    raise RequestError(
        f"speculate is {shown(way)}, expected {known} or an object with `propose`, such as a loaded model",
        field="speculate",
    )
