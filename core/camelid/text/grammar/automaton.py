"""A compiled grammar with all that is remembered while it is used."""

from __future__ import annotations

from camelid.text.grammar.configs import Configs
from camelid.text.grammar.masks import Masks
from camelid.text.grammar.network import Network, checked_network
from camelid.text.grammar.rules import Rules
from camelid.text.grammar.trie import TokenTable

MAX_STATES = 200_000


class Automaton:
    """Share one among all answers that follow the same grammar: what one finds out serves the others."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.configs = Configs(network)
        self._masks: dict[TokenTable, Masks] = {}

    def masks(self, tokens: TokenTable) -> Masks:
        """The masks over one vocabulary."""
        if tokens not in self._masks:
            self._masks[tokens] = Masks(self.network, self.configs, tokens)
        return self._masks[tokens]


def compile_rules(rules: Rules, *, max_states: int = MAX_STATES) -> Automaton:
    """The automaton of a grammar.

    Raises RequestError for a rule that is missing, left-recursive or never ends, and for a grammar that
    needs more than `max_states` states. Rules that the root does not need are not looked at.
    """
    return Automaton(checked_network(rules, max_states))
