"""Scopes of prompts, and a trained adapter with its scope."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from camelid.learning.orders import Order
from camelid.learning.rows import MIXTURES
from camelid.learning.trained.adapter_bytes import adapter_from_bytes
from camelid.learning.trained.scope_head import F32, ScopeHead
from camelid.learning.trained.shapes import DRAFT_TOKENS, shape_hash
from camelid.model.adapter import Adapter
from camelid.model.features import DEPTHS

PREFILTER = "prefilter_"  # begins the names of its arrays


@dataclass(frozen=True, slots=True)
class PromptScope:
    """A fitted head, and the hashed shapes of drafts of `n_drafted` tokens in scope (None: any draft).

    Only prompts that a prefilter passes need features; without one, all do.
    """

    head: ScopeHead
    shapes: frozenset[str] | None
    prefilter: ScopeHead | None = None
    n_drafted: int = DRAFT_TOKENS

    @classmethod
    def of(cls, heads: bytes, shapes: Iterable[str] | None, n_drafted: int = DRAFT_TOKENS) -> PromptScope:
        """The scope of the bytes of its heads and of stored shapes."""
        with np.load(io.BytesIO(heads), allow_pickle=False) as file:
            found: Mapping[str, Any] = {name: file[name] for name in file.files}
        n = len(PREFILTER)
        first = {name[n:]: array for name, array in found.items() if name.startswith(PREFILTER)}
        prefilter = ScopeHead.from_arrays(first) if first else None
        known = None if shapes is None else frozenset(shapes)
        return cls(ScopeHead.from_arrays(found), known, prefilter, n_drafted)

    def to_bytes(self) -> bytes:
        """The heads, without the shapes."""
        arrays = dict(self.head.to_arrays())
        if self.prefilter:
            arrays |= {PREFILTER + name: array for name, array in self.prefilter.to_arrays().items()}
        out = io.BytesIO()
        np.savez(out, **arrays)
        return out.getvalue()

    def passes(self, features: F32) -> bool:
        """False for a prompt that is not in scope by its `prefilter_features`."""
        return self.prefilter is None or self.prefilter.has(features)

    def has(self, features: F32) -> bool:
        """True if a prompt of these features [D * C] is in scope, as far as its draft agrees."""
        return self.head.has(features)

    def agrees(self, draft: str) -> bool:
        """True if the base's answer, as far as it was drafted, has a shape of those to the feedback."""
        return self.shapes is None or shape_hash(draft) in self.shapes


@dataclass(frozen=True, slots=True)
class Acting:
    """A trained adapter, the scope in which it acts, its order with memory as a mixture (`orders.py`), and
    the newest item that it has learnt from.
    """

    adapter: Adapter
    scope: PromptScope
    order: Order = "after"
    newest: int = 0

    @classmethod
    def of(cls, name: str, adapter: bytes, scope: bytes, config: Mapping[str, Any]) -> Acting:
        """The acting adapter of a version's bytes, under a name."""
        n_drafted = int(config.get("drafted", DRAFT_TOKENS))
        found = PromptScope.of(scope, config.get("shapes"), n_drafted)
        order: Order = config["order"] if config.get("form") in MIXTURES else "after"
        return cls(adapter_from_bytes(adapter, name), found, order)

    def yields_to(self, item: int) -> bool:
        """True if memory whose nearest item this is acts on a prompt before the adapter."""
        return self.order == "first" or item > self.newest


def prefilter_features(vector: Sequence[float], sketch: Sequence[float]) -> F32:
    """The vector of a prompt's question and the sketch of the logits after the prompt, [2 * C]."""
    return np.concatenate([np.asarray(vector, np.float32), np.asarray(sketch, np.float32)])


def pooled(rows: Sequence[memoryview[float]]) -> F32:
    """Features of a prompt, [D * C], from those of its last message's tokens: means, and at the last depth
    the last token.
    """
    each = np.stack([np.asarray(row, np.float32) for row in rows]).reshape(len(rows), len(DEPTHS), -1)
    return np.concatenate([each[:, :-1].mean(axis=0), each[-1:, -1]]).reshape(-1)
