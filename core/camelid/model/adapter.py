"""An adapter: low-rank terms for the matrices of one model, whatever file it came from.

LoRA (Hu et al., arXiv 2106.09685) adds `scale * B @ (A @ x)` to `W @ x`. The scale is alpha / rank, or
alpha / sqrt(rank) (rsLoRA, arXiv 2312.03732). An activated adapter (aLoRA, arXiv 2504.12397) acts from its
invocation tokens on, so that earlier rows are those of the base model.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

# Of a request: one name; names, perhaps with scales; or a scale for each name.
Selection: TypeAlias = str | Sequence[str | tuple[str, float]] | Mapping[str, float]
MOST_RANK = 64  # of one adapter, or of several that act on a request together


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """The term of one matrix [out, in], or of each matrix of a stack [experts, out, in].

    `a` is [experts, rank, in] and `b` is [experts, out, rank], row-major; `experts` is 0 for a single matrix,
    which has no such axis. Rows of `b` have the order of the GGUF weight's rows.
    """

    rank: int
    n_in: int
    n_out: int
    scale: float
    a: memoryview[float]  # float32, in the machine's order
    b: memoryview[float]
    experts: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Adapter:
    """Low-rank terms by the name of the model's weight, e.g. `blk.0.attn_q`. No slots: the digest is cached.

    `invocation` are the invocation tokens of an activated adapter; empty for one that acts on all rows.
    """

    name: str
    terms: Mapping[str, LowRank]
    invocation: tuple[int, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])  # for `camelid adapter info`

    @property
    def rank(self) -> int:
        """The largest rank of its terms."""
        return max((term.rank for term in self.terms.values()), default=0)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that changes a logit, in hex: equal adapters in different formats are equal."""
        total = hashlib.sha256(struct.pack(f"<{len(self.invocation)}I", *self.invocation))
        for name, term in sorted(self.terms.items()):
            shape = (term.experts, term.rank, term.n_in, term.n_out)
            total.update(f"{name} {shape} {term.scale!r}\n".encode())
            total.update(term.a)
            total.update(term.b)
        return total.hexdigest()
