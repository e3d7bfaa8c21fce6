"""A compiled grammar and the caches that all its matchers share."""

from __future__ import annotations

from camelid.text.grammar.assembly import checked_network
from camelid.text.grammar.configs import Configs
from camelid.text.grammar.masks import Masks
from camelid.text.grammar.network import Network
from camelid.text.grammar.rules import Rules
from camelid.text.grammar.trie import TokenTable

MAX_STATES = 200_000


class Automaton:
    """A compiled grammar. One automaton serves all requests of a grammar, since they share its caches."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.configs = Configs(network)
        self._masks: dict[TokenTable, Masks] = {}

    @property
    def held_bytes(self) -> int:
        """The memory of the grammar and its caches, roughly."""
        masks = sum(masks.held_bytes for masks in self._masks.values())
        return self.network.held_bytes + self.configs.held_bytes + masks

    def masks(self, tokens: TokenTable) -> Masks:
        """The masks over one vocabulary, made on first use."""
        if tokens not in self._masks:
            self._masks[tokens] = Masks(self.network, self.configs, tokens)
        return self._masks[tokens]


def compile_rules(rules: Rules, *, max_states: int = MAX_STATES) -> Automaton:
    """Compiles a grammar.

    Raises RequestError for a rule that is missing, left-recursive or endless, and for a grammar of more than
    `max_states` states. Rules that the root does not reach are not compiled.
    """
    return Automaton(checked_network(rules, max_states))
