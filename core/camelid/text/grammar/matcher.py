"""The position of one sequence in a grammar, followed token by token."""

from __future__ import annotations

from camelid.errors import RequestError
from camelid.text.grammar.automaton import Automaton
from camelid.text.grammar.configs import Config
from camelid.text.grammar.trie import TokenTable


class Matcher:
    """The position of one sequence in a grammar.

    A token that ends a text is allowed where the text so far is complete, and leaves the position unchanged.
    Control tokens have no text: only a grammar that names them as tokens allows them. `is_lazy` is a note for
    samplers: a token that was drawn without the mask counts if it is allowed. Every method raises
    RequestError for a token id outside the vocabulary and for a grammar too ambiguous to follow.
    """

    def __init__(self, automaton: Automaton, tokens: TokenTable, *, is_lazy: bool = False) -> None:
        self.is_lazy = is_lazy
        self.automaton = automaton
        self._tokens = tokens
        self._masks = automaton.masks(tokens)
        self._path: list[Config] = [automaton.configs.start]

    @property
    def is_complete(self) -> bool:
        """True if the text so far matches the grammar; more text may be allowed."""
        return self._path[-1].complete

    @property
    def is_finished(self) -> bool:
        """True if the text so far matches the grammar and no more text is allowed."""
        return self.is_complete and not self._path[-1].items

    @property
    def config(self) -> Config:
        """All positions of the text so far in the grammar."""
        return self._path[-1]

    @property
    def knows_mask(self) -> bool:
        """True if the next mask is in the cache."""
        return self._masks.knows(self._path[-1])

    def mask(self) -> bytes:
        """The allowed next tokens: bit i % 8 of byte i // 8 is token i."""
        bits = self._masks.mask(self._path[-1])
        return bits.to_bytes((self._tokens.vocab_size + 7) // 8, "little")

    def ready(self) -> bool:
        """True: this process computes the masks."""
        return True

    def test(self, token_id: int) -> bool:
        """True if the token is allowed next."""
        return self._after(token_id) is not None

    def accept(self, token_id: int) -> bool:
        """Advances by one token. Returns False, without a change, if the token is not allowed."""
        after = self._after(token_id)
        if after is None:
            return False
        self._path.append(after)
        return True

    def rollback(self, n_tokens: int) -> None:
        """Undoes the last accepted tokens. Raises RequestError if fewer tokens were accepted."""
        if not 0 <= n_tokens < len(self._path):
            raise RequestError(
                f"cannot roll back {n_tokens} tokens; {len(self._path) - 1} were accepted",
                field="n_tokens",
                got=n_tokens,
            )
        del self._path[len(self._path) - n_tokens :]

    def fork(self) -> Matcher:
        """A second, independent matcher at the same position."""
        other = Matcher(self.automaton, self._tokens, is_lazy=self.is_lazy)
        other._path = self._path.copy()
        return other

    def _after(self, token_id: int) -> Config | None:
        config = self._path[-1]
        if token_id in self._tokens.eos_ids:
            return config if config.complete else None
        data = self._tokens.checked_bytes(token_id).translate(self.automaton.network.class_of)
        after = self.automaton.configs.read_token(config, token_id, data)
        return None if after is self.automaton.configs.dead else after
