"""Settings of training, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from camelid.errors import RequestError
from camelid.model.adapter import MOST_RANK
from camelid.plan.differentiate import KEEPS
from camelid.training.examples import AVOID, KEEP, LEARN

FISHER_EXAMPLES = 48
WARMUP_STEPS, LAST_SHARE = 5, 0.1  # the rate rises over the first steps, then falls to this share of it


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """How an adapter is trained.

    - `rank` and `alpha`: the term of a matrix is alpha / rank * B @ A. `targets` are the last words of weight
      names, e.g. "attn_q" (empty: all linear maps of layers). `invocation` makes an activated adapter.
    - `rate`, `decay`, `betas`, `clip` (length of the gradient; 0: unbounded): AdamW. `steps` of up to `batch`
      examples to learn or avoid (0: all), with `keep_batch` examples to keep.
    - `kl` and `unlikelihood` scale these losses; cross entropy has the scale 1. `ewc` scales the penalty
      sum(F * (scale * B @ A)^2), with F of the base's weights on up to `FISHER_EXAMPLES` examples to keep,
      divided by its mean (elastic weight consolidation, arXiv 1612.00796).
    - Bounds: `seconds`, after which the last whole step counts; `rows` of one run, and `most_bytes` beside
      the model's weights. `keeps` "products" is faster and needs more memory than "layers"
      (plan/differentiate.py); "" takes products where they fit.
    - `seed` decides the first A and the examples of each step; B is 0 at first.
    """

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ()
    invocation: tuple[int, ...] = ()
    rate: float = 1.5e-3
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float = 1.0
    steps: int = 40
    batch: int = 0
    keep_batch: int = 8
    kl: float = 5.0
    unlikelihood: float = 1.0
    ewc: float = 0.0
    seconds: float | None = None
    rows: int = 512
    most_bytes: int = 1 << 30
    keeps: str = ""
    seed: int = 0

    @property
    def choices(self) -> tuple[str, ...]:
        """What may be kept, the fastest first."""
        return (self.keeps,) if self.keeps else KEEPS[::-1]

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @property
    def scales(self) -> Mapping[str, float]:
        """Scale of the loss of each role."""
        return {LEARN: 1.0, KEEP: self.kl, AVOID: self.unlikelihood}

    def rate_at(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        rising = min(1.0, (step + 1) / WARMUP_STEPS)
        return self.rate * rising * (1.0 - (1.0 - LAST_SHARE) * step / self.steps)

    def is_target(self, name: str) -> bool:
        """True for a weight to train, e.g. `blk.0.attn_q.weight`."""
        return not self.targets or name.removesuffix(".weight").rsplit(".", 1)[-1] in self.targets

    def check(self) -> None:
        """Raises RequestError for the first setting out of its range."""
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RequestError(f"{name} is {value}, expected {low:g} to {high:g}", field=name)
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise RequestError(f"betas are {self.betas}, expected numbers from 0 to below 1", field="betas")
        if self.keeps not in ("", *KEEPS):
            raise RequestError(
                f"keeps is {self.keeps!r:.40}, expected {', '.join(KEEPS)} or ''", field="keeps"
            )


RANGES: Mapping[str, tuple[float, float]] = {
    "rank": (1, MOST_RANK),
    "alpha": (0.0, 1e4),
    "rate": (0.0, 1.0),
    "decay": (0.0, 1.0),
    "clip": (0.0, 1e9),
    "steps": (1, 1_000_000),
    "batch": (0, 1 << 20),
    "keep_batch": (0, 1 << 20),
    "kl": (0.0, 1e6),
    "unlikelihood": (0.0, 1e6),
    "ewc": (0.0, 1e6),
    "seconds": (0.0, 1e9),
    "rows": (1, 1 << 16),
    "most_bytes": (0, 1 << 62),
    "seed": (0, (1 << 63) - 1),
}
