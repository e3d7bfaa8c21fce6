"""Random features of prompts, as a base model would give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from camelid.model.features import DEPTHS

WIDTH = 12
rng = np.random.default_rng(27)


def features(n: int, centre: float) -> Any:
    """[n, D * WIDTH] around a centre."""
    return (rng.normal(size=(n, len(DEPTHS) * WIDTH)) + centre).astype(np.float32)
