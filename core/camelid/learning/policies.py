"""The policy store: which settings work best in which context, learnt by a bandit from rewards.

Thompson sampling with a Beta posterior for each context and policy (Thompson, 1933; the regret grows with
the log of the number of requests: Agrawal and Goyal, arXiv 1209.3353). A reward is a number from 0 to 1, and
counts as the outcome of a coin of that chance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from camelid.errors import RequestError, shown
from camelid.learning.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of a request: sampling options, text before the prompt, width of speculation, adapter."""

    name: str
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prefix: str = ""
    draft_tokens: int = 0
    adapter: str = ""

    @property
    def key(self) -> str:
        """The policy as the store names it: a policy of other settings is another one."""
        return json.dumps(
            [self.name, dict(self.sampling), self.prefix, self.draft_tokens, self.adapter], sort_keys=True
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests and the sum of their rewards."""

    n: int = 0
    reward: float = 0.0

    @property
    def mean(self) -> float:
        """The mean reward; one half without a request."""
        return (self.reward + 1.0) / (self.n + 2.0)


class Policies:
    """The policies of one store. `context` is any short text, such as the number of a cluster."""

    def __init__(self, store: Store, policies: Sequence[Policy], rng: Random | None = None) -> None:
        if not policies or len({policy.key for policy in policies}) < len(policies):
            raise RequestError(
                "policies are none or equal ones, expected different policies", field="policies"
            )
        self._sql, self._rng = store.connection, rng or Random()
        self._by_key = {policy.key: policy for policy in policies}

    def tallies(self, context: str) -> dict[str, Tally]:
        """The tally of each policy in a context, by its key."""
        rows = self._sql.rows("SELECT arm, n, reward FROM policies WHERE context=?", context)
        known = {arm: Tally(n, reward) for arm, n, reward in rows}
        return {key: known.get(key, Tally()) for key in self._by_key}

    def choose(self, context: str) -> Policy:
        """The policy for a request: the best of one draw from each posterior."""
        draws = {
            key: self._rng.betavariate(1.0 + tally.reward, 1.0 + tally.n - tally.reward)
            for key, tally in self.tallies(context).items()
        }
        return self._by_key[max(draws, key=lambda key: draws[key])]

    def best(self, context: str) -> Policy:
        """The policy with the highest mean reward so far."""
        tallies = self.tallies(context)
        return self._by_key[max(tallies, key=lambda key: tallies[key].mean)]

    def reward(self, context: str, policy: Policy, reward: float) -> None:
        """Counts a request's reward, 0 to 1. Raises RequestError for any other."""
        if not 0.0 <= reward <= 1.0:
            raise RequestError(f"the reward is {shown(reward)}, expected 0 to 1", field="reward")
        with self._sql.transaction() as sql:
            sql.execute(
                "INSERT INTO policies VALUES(?, ?, 1, ?) ON CONFLICT(context, arm) "
                "DO UPDATE SET n = n + 1, reward = reward + excluded.reward",
                (context, policy.key, reward),
            )
