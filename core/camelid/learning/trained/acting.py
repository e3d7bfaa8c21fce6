"""Scopes of prompts, and a trained adapter with its scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from camelid.learning.trained.adapter_bytes import adapter_from_bytes
from camelid.learning.trained.scope_head import F32, ScopeHead
from camelid.learning.trained.shapes import shape_hash
from camelid.model.adapter import Adapter
from camelid.model.features import DEPTHS


@dataclass(frozen=True, slots=True)
class PromptScope:
    """A fitted head, and the hashed shapes of drafts in scope (None: any draft)."""

    head: ScopeHead
    shapes: frozenset[str] | None

    @classmethod
    def of(cls, head: bytes, shapes: Iterable[str] | None) -> PromptScope:
        """The scope of a head's bytes and stored shapes."""
        return cls(ScopeHead.from_bytes(head), None if shapes is None else frozenset(shapes))

    def has(self, features: F32) -> bool:
        """True if a prompt of these features [D * C] is in scope, as far as its draft agrees."""
        return self.head.has(features)

    def agrees(self, draft: str) -> bool:
        """True if the base's answer begins as to the feedback."""
        return self.shapes is None or shape_hash(draft) in self.shapes


@dataclass(frozen=True, slots=True)
class Acting:
    """A trained adapter and the scope in which it acts."""

    adapter: Adapter
    scope: PromptScope

    @classmethod
    def of(cls, name: str, adapter: bytes, scope: bytes, config: Mapping[str, Any]) -> Acting:
        """The acting adapter of a version's bytes, under a name."""
        return cls(adapter_from_bytes(adapter, name), PromptScope.of(scope, config.get("shapes")))


def pooled(rows: Sequence[memoryview[float]]) -> F32:
    """Features of a prompt, [D * C], from those of its last message's tokens: means, and at the last depth
    the last token.
    """
    each = np.stack([np.asarray(row, np.float32) for row in rows]).reshape(len(rows), len(DEPTHS), -1)
    return np.concatenate([each[:, :-1].mean(axis=0), each[-1:, -1]]).reshape(-1)
