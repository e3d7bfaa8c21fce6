"""Follows a grammar token by token."""

from __future__ import annotations

from camelid.errors import RequestError
from camelid.text.grammar.automaton import Automaton
from camelid.text.grammar.configs import Config
from camelid.text.grammar.trie import TokenTable


class Matcher:
    """Where one answer stands in a grammar.

    A token that ends a text is allowed where the text so far is complete, and changes nothing. Control
    tokens have no text: only a grammar that names them as tokens allows them. Every call may raise
    RequestError: for a token id that the vocabulary does not have, or a grammar too ambiguous to follow.
    """

    def __init__(self, automaton: Automaton, tokens: TokenTable) -> None:
        self._automaton = automaton
        self._tokens = tokens
        self._masks = automaton.masks(tokens)
        self._path: list[Config] = [automaton.configs.start]

    @property
    def is_complete(self) -> bool:
        """The text so far is all that the grammar asks for; more may be allowed."""
        return self._path[-1].complete

    @property
    def is_finished(self) -> bool:
        """The text so far is complete and the grammar allows no more."""
        return self.is_complete and not self._path[-1].items

    @property
    def is_stuck(self) -> bool:
        """The text so far is not complete, and the vocabulary has no token that goes on."""
        return not self.is_complete and not self._masks.mask(self._path[-1])

    def mask(self) -> bytes:
        """The tokens that may come next: bit i % 8 of byte i // 8 is token i."""
        bits = self._masks.mask(self._path[-1])
        return bits.to_bytes((self._tokens.vocab_size + 7) // 8, "little")

    def test(self, token_id: int) -> bool:
        """Whether the token may come next."""
        return self._after(token_id) is not None

    def accept(self, token_id: int) -> bool:
        """Go on by one token; False, and no change, where it may not come next."""
        after = self._after(token_id)
        if after is None:
            return False
        self._path.append(after)
        return True

    def rollback(self, n_tokens: int) -> None:
        """Take back the last tokens that were accepted. Raises RequestError when there are not so many."""
        if not 0 <= n_tokens < len(self._path):
            raise RequestError(
                f"cannot roll back {n_tokens} tokens, {len(self._path) - 1} were accepted",
                field="n_tokens",
                got=n_tokens,
            )
        del self._path[len(self._path) - n_tokens :]

    def fork(self) -> Matcher:
        """Another matcher at the same place, on its own from here."""
        other = Matcher(self._automaton, self._tokens)
        other._path = self._path.copy()
        return other

    def _after(self, token_id: int) -> Config | None:
        config = self._path[-1]
        if token_id in self._tokens.eos_ids:
            return config if config.complete else None
        data = self._tokens.checked_bytes(token_id).translate(self._automaton.network.class_of)
        after = self._automaton.configs.read_token(config, token_id, data)
        return None if after is self._automaton.configs.dead else after
