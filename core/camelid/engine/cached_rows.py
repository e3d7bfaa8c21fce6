"""Rows in an engine's prefix cache: export, import, and removal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Seq

from camelid.backends.base import Backend
from camelid.engine.adapters import NO_ADAPTER, RowKeys
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.recovery import Recovery
from camelid.engine.request import check_ids
from camelid.engine.state_transfer import ExportedState, export_rows, import_rows


class CachedRows:
    """The methods of an engine on its prefix cache."""

    backend: Backend
    state: KVCacheManager
    recovery: Recovery
    vocab_size: int
    _turn: asyncio.Lock

    async def export_rows(
        self, token_ids: Seq[int], salt: str = "", keys: RowKeys = NO_ADAPTER
    ) -> ExportedState:
        """The state of the longest prefix of these tokens in the prefix cache, computed with an adapter."""
        ids, salt = self._cache_keys(token_ids, salt, keys)
        return await self.recovery.on_device(lambda: export_rows(self.backend, self.state, ids, salt))

    async def import_rows(
        self, token_ids: Seq[int], exported: ExportedState, salt: str = "", keys: RowKeys = NO_ADAPTER
    ) -> int:
        """Adds exported state to the prefix cache and returns the number of cached rows of these tokens.

        Raises RequestError if too few units are free, or if the state does not match the tokens.
        """
        ids, salt = self._cache_keys(token_ids, salt, keys)
        return await self.recovery.on_device(
            lambda: import_rows(self.backend, self.state, ids, exported, salt)
        )

    def cached_rows(self, token_ids: Seq[int], salt: str = "", keys: RowKeys = NO_ADAPTER) -> int:
        """Length of the longest prefix of these tokens in the prefix cache."""
        return self.state.match_prefix(*self._cache_keys(token_ids, salt, keys)).n_rows

    async def forget_rows(
        self, token_ids: Seq[int], salt: str = "", n_kept: int = 0, keys: RowKeys = NO_ADAPTER
    ) -> int:
        """Removes the pages of these tokens behind the first `n_kept` from the prefix cache.

        Returns the number of rows that were cached.
        """
        ids, salt = self._cache_keys(token_ids, salt, keys)
        async with self._turn:
            return self.state.forget_prefix(ids, salt, n_kept)

    def _cache_keys(self, token_ids: Seq[int], salt: str, keys: RowKeys) -> tuple[Seq[int], str]:
        """The ids and the salt by which the prefix cache finds the rows of these tokens."""
        check_ids(token_ids, self.vocab_size)
        return keys.ids(token_ids), keys.salt(salt)
